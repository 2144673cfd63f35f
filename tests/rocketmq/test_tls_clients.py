"""RocketMQ's own clients over TLS: with a certificate of their own, and nobody without one comes in."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import v2_clients
from certificates import Authority
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import StoreConfig
from dejamq_namesrv.doors.services import NameServerDoors
from java_clients import by_scenario, compiled, java, output_of

pytestmark = [pytest.mark.openssl, pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ours")


@pytest.fixture
async def address(tmp_path: Path, authority: Authority) -> AsyncIterator[str]:
    """A server of one process that takes TLS only, and asks for certificates of clients without insisting."""
    config = BrokerConfig(
        listen="127.0.0.1:0", namesrv="", store_directory=str(tmp_path / "store"), broker_fast_failure_enable=False,
        store=StoreConfig(mapped_file_size_commit_log=64 << 20, disk_check_enable=False), tls_ca=authority.pem,
        **authority.issue("server").server(
            "enforcing", tls_server_need_client_auth="optional", tls_server_trust_cert_path=authority.pem
        ),
    )  # fmt: skip
    broker = Broker(config, guest=NameServerDoors.in_memory())
    await broker.start()
    yield broker.address
    await broker.close()


async def never() -> None:
    raise AssertionError("no scenario here restarts the broker")


@pytest.mark.mvn
async def test_a_java_client_with_its_own_certificate_sends_and_consumes(
    address: str, authority: Authority, tmp_path: Path
) -> None:
    own = authority.issue("java")
    options = [
        "-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={authority.pem}", f"-Dtls.client.certPath={own.cert}",
        f"-Dtls.client.keyPath={own.key}", f"-Dtls.config.file={tmp_path / 'none'}",
    ]  # fmt: skip
    class_path = await asyncio.to_thread(compiled, "5.3.3")
    command = java(class_path, tmp_path, *options, "Scenarios", address, "t", "sync", "large")
    told = by_scenario(await output_of(command))
    assert told["large"] == ["SEND_OK"] * 4 + ["whole true"] * 4
    assert len(told["sync"]) == 7


async def test_the_python_client_of_rocketmq_5_sends_and_receives(
    address: str, authority: Authority, tmp_path: Path
) -> None:
    """It trusts no CA but those of gRPC, for which gRPC has a variable."""
    program = await asyncio.to_thread(v2_clients.python_program)
    told = await v2_clients.played(
        program, address, "t", ["normal"], tmp_path, never, WITH_TLS="1",
        GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=authority.pem,
    )  # fmt: skip
    assert told["normal"] == ["20 messages, attempts {1}", "tea k-7 v-7", "then 0"]
