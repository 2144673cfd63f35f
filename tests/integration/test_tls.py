"""Our own clients and servers over TLS: who is trusted, who is refused, and that both sides say why."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_wire import broker_config, running, until
from certificates import Authority, Pair
from cli_runner import run_beside
from dejamq import Admin, LitePullConsumer, Message, Producer
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.doors.remoting.namesrv import RocketMQRegistration, refuses_grpc
from dejamq_broker.store import StoreConfig
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_namesrv.doors.services import NameServerDoors
from dejamq_proto.codes import BrokerUnavailable, ConfigError, DejamqError
from dejamq_proto.config.tls import TlsClientSettings
from dejamq_proto.probe import state_of
from dejamq_proto.records.record import decode
from dejamq_proto.remoting import requests as r
from dejamq_proto.wire.tls import ClientTls
from remoting_wire import a_send, remoting

pytestmark = pytest.mark.openssl


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ours")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "theirs")


@pytest.fixture(scope="session")
def server(authority: Authority) -> Pair:
    return authority.issue("server")


def tls_of(authority: Authority, **more: Any) -> ClientTls:
    return ClientTls(TlsClientSettings(tls_ca=authority.pem, **more))


@asynccontextmanager
async def cluster(folder: Path, dialled: dict[str, Any], **settings: Any) -> AsyncIterator[tuple[str, Broker]]:
    """A name server and a broker with these settings of TLS; ``dialled`` are those by which the broker dials."""
    namesrv = NameServer(NamesrvConfig(listen="127.0.0.1:0", **settings))
    address = await namesrv.start()
    try:
        async with running(folder / "store", namesrv=address, **settings, **dialled) as broker:
            yield address, broker
    finally:
        await namesrv.close()


async def refusal(namesrv: str, **settings: Any) -> str:
    """What a client is told that cannot connect."""
    async with Producer("refused", namesrv=namesrv, **settings) as producer:
        with pytest.raises(BrokerUnavailable) as told:
            await producer.send(Message("t", b"x"))
    return str(told.value)


async def test_clients_send_and_receive_over_tls_alone(
    tmp_path: Path, authority: Authority, server: Pair, transport: str
) -> None:
    settings: dict[str, Any] = {"tls_ca": authority.pem}
    async with cluster(tmp_path, settings, **server.server("enforcing")) as (namesrv, broker):
        async with (
            Producer("pg", namesrv=namesrv, **settings) as producer,
            LitePullConsumer("cg", namesrv=namesrv, **settings) as consumer,
        ):
            bodies = {b"small", b"large" * 100_000}
            for body in bodies:
                await producer.send(Message("t", body))
            consumer.subscribe("t")
            got: set[bytes] = set()
            await until(lambda: _poll(consumer, got, bodies), 20)
            assert broker.fast.connections == (2 if transport == "frames" else 0)
        async with Admin(namesrv, **settings) as admin:
            assert [one.broker_name for one in await admin.brokers()] == ["broker-a"]


async def _poll(consumer: LitePullConsumer, got: set[bytes], wanted: set[bytes]) -> bool:
    got |= {message.body for message in await consumer.poll(timeout_ms=200)}
    return got == wanted


async def test_remoting_and_health_are_spoken_over_tls(tmp_path: Path, authority: Authority, server: Pair) -> None:
    async with running(tmp_path, **server.server("enforcing")) as broker:
        tls = tls_of(authority)
        async with remoting(broker.address, tls) as client:
            assert (await client.ask(r.SEND_MESSAGE_V2, b"x" * 300_000, **a_send())).code == 0
        assert await state_of(broker.address, tls=tls) == "SERVING"
        assert await state_of(broker.address) == "UNAVAILABLE"


async def test_a_message_is_born_at_the_clients_own_address(tmp_path: Path, authority: Authority, server: Pair) -> None:
    async with running(tmp_path, **server.server()) as broker, remoting(broker.address, tls_of(authority)) as client:
        assert (await client.ask(r.SEND_MESSAGE_V2, b"x", **a_send())).code == 0
        raw = broker.domain.store.record_at(0)
        assert raw is not None
        assert decode(raw).born_host == client.writer.get_extra_info("sockname")[:2]


async def test_a_server_whose_ca_is_not_trusted_is_refused(
    tmp_path: Path, authority: Authority, stranger: Authority, server: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with cluster(tmp_path, {"tls_ca": authority.pem}, **server.server()) as (namesrv, _):
        assert "unable to get local issuer certificate; see tls_ca" in await refusal(namesrv, tls_ca=stranger.pem)
        with pytest.raises(BrokerUnavailable, match="unable to get local issuer certificate"):
            async with remoting(namesrv, tls_of(stranger)):
                pass
    assert any("tls_refused" in line and "it may not trust the certificate" in line for line in caplog.messages)


async def test_a_server_of_another_name_is_refused_unless_the_client_expects_that_name(
    tmp_path: Path, authority: Authority
) -> None:
    other = authority.issue("other", "DNS:mq.example")
    expected: dict[str, Any] = {"tls_ca": authority.pem, "tls_name": "mq.example"}
    async with cluster(tmp_path, expected, **other.server()) as (namesrv, broker):
        assert "another host name; see tls_name" in await refusal(namesrv, tls_ca=authority.pem)
        with pytest.raises(BrokerUnavailable, match="IP address mismatch"):
            async with remoting(namesrv, tls_of(authority)):
                pass
        async with Producer("pg", namesrv=namesrv, vip_channel_enabled=True, **expected) as producer:
            await producer.send(Message("t", b"x"))
            assert broker.fast.connections == 1


async def test_a_server_whose_certificate_has_ended_is_refused(tmp_path: Path, authority: Authority) -> None:
    ended = authority.issue("ended", days=-1)
    async with running(tmp_path, **ended.server()) as broker:
        with pytest.raises(BrokerUnavailable, match="certificate has expired"):
            async with remoting(broker.address, tls_of(authority)):
                pass
        assert "certificate has expired; see tls_ca" in await refusal(broker.address, tls_ca=authority.pem)


async def test_where_client_certificates_are_required_nobody_comes_in_without_one_that_is_trusted(
    tmp_path: Path, authority: Authority, stranger: Authority, server: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = server.server(
        "enforcing", tls_server_need_client_auth="require", tls_server_trust_cert_path=authority.pem
    )
    known = {"tls_ca": authority.pem} | authority.issue("client").client()
    async with cluster(tmp_path, known, **settings) as (namesrv, _):
        async with Producer("pg", namesrv=namesrv, **known) as producer:
            await producer.send(Message("t", b"x"))
        without = await refusal(namesrv, tls_ca=authority.pem)
        foreign = await refusal(namesrv, tls_ca=authority.pem, **stranger.issue("client").client())
    assert "wants a certificate of this client" in without
    assert "wants a certificate of this client" in foreign
    assert any("tls_refused" in line and "peer did not return a certificate" in line for line in caplog.messages)
    assert any("tls_refused" in line and "unable to get local issuer certificate" in line for line in caplog.messages)


async def test_an_optional_client_certificate_is_checked_where_there_is_one(
    tmp_path: Path, authority: Authority, stranger: Authority, server: Pair
) -> None:
    settings = server.server(tls_server_need_client_auth="optional", tls_server_trust_cert_path=authority.pem)
    async with running(tmp_path, **settings) as broker:
        assert await state_of(broker.address, tls=tls_of(authority)) == "SERVING"
        assert await state_of(broker.address, tls=tls_of(authority, **authority.issue("c").client())) == "SERVING"
        foreign = stranger.issue("c")
        assert await state_of(broker.address, tls=tls_of(authority, **foreign.client())) == "UNAVAILABLE"


async def test_an_enforcing_server_refuses_plain_clients_and_both_sides_say_so(
    tmp_path: Path, authority: Authority, server: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, {"tls_ca": authority.pem}, **server.server("enforcing")) as (namesrv, broker):
        assert "set tls_ca (DEJAMQ_TLS_CA)" in await refusal(namesrv)
        async with remoting(broker.address) as client:
            with pytest.raises(BrokerUnavailable):
                await client.ask(r.SEND_MESSAGE_V2, b"x", **a_send())
        ran = await run_beside("topic", "list", "--namesrv", namesrv)
        assert ran.status == 3
        assert "takes TLS only" in ran.errors
    for door in ("grpc", "remoting"):
        refused = f"door={door} without TLS: tls_server_mode=enforcing takes TLS only"
        assert any("connection_refused" in line and refused in line for line in caplog.messages)


async def test_an_enforcing_server_cannot_be_called_behind_its_port(tmp_path: Path, server: Pair) -> None:
    async with running(tmp_path, **server.server("enforcing")) as broker:
        assert await state_of(broker.direct) == "PERMISSION_DENIED"


async def test_a_permissive_server_takes_plain_clients_and_those_with_tls(
    tmp_path: Path, authority: Authority, server: Pair
) -> None:
    async with cluster(tmp_path, {}, **server.server("permissive")) as (namesrv, _):
        ways: list[dict[str, Any]] = [{}, {"tls_ca": authority.pem}]
        for settings in ways:
            async with Producer("pg", namesrv=namesrv, **settings) as producer:
                await producer.send(Message("t", b"x"))


@pytest.mark.parametrize("mode", ["permissive without a certificate", "disabled"])
async def test_a_server_without_tls_refuses_it_with_a_line_that_says_what_to_set(
    tmp_path: Path, authority: Authority, server: Pair, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path, **(server.server("disabled") if mode == "disabled" else {})) as broker:
        assert await state_of(broker.address) == "SERVING"
        assert await state_of(broker.address, tls=tls_of(authority)) == "UNAVAILABLE"
    assert any("connection_refused" in line and "tls_server_cert_path" in line for line in caplog.messages)


async def test_the_environment_makes_commands_dial_with_tls(
    tmp_path: Path, authority: Authority, server: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, {"tls_ca": authority.pem}, **server.server("enforcing")) as (namesrv, _):
        monkeypatch.setenv("DEJAMQ_TLS_CA", authority.pem)
        for command in (
            ("topic", "list"), ("send", "t", "hello"), ("consume", "t", "--count", "1", "--from", "begin"),
            ("collect", "--out", str(tmp_path / "evidence"), "--once", "--rate", "500"),
        ):  # fmt: skip
            ran = await run_beside(*command, "--namesrv", namesrv)
            assert ran.status == 0, (command, ran.errors)


async def test_a_slave_copies_its_master_over_tls(tmp_path: Path, authority: Authority, server: Pair) -> None:
    dialled: dict[str, Any] = {"tls_ca": authority.pem}
    settings = server.server("enforcing")
    async with cluster(tmp_path, dialled, **settings) as (namesrv, master):
        slave = Broker(broker_config(
            tmp_path / "slave", namesrv=namesrv, broker_id=1, broker_role="SLAVE", ha_full_copy=True, **settings,
            **dialled,
        ))  # fmt: skip
        await slave.start()
        async with Producer("pg", namesrv=namesrv, **dialled) as producer:
            await producer.send(Message("t", b"x"))
        await until(lambda: slave.domain.store.log_max == master.domain.store.log_max > 0, 20)
        await slave.close()


async def test_a_broker_registers_over_tls_by_remoting_too(tmp_path: Path, authority: Authority, server: Pair) -> None:
    """As at a name server of RocketMQ's own."""
    async with cluster(tmp_path, {"tls_ca": authority.pem}, **server.server("enforcing")) as (namesrv, broker):
        tls, topics = tls_of(authority), broker.domain.tables.topics
        link = RocketMQRegistration(namesrv, broker.site, topics, 5000, None, tls=tls)
        await link.register()
        await link.close()
        assert not await refuses_grpc(namesrv, tls)
        plain = RocketMQRegistration(namesrv, broker.site, topics, 5000, None)
        with pytest.raises(BrokerUnavailable):
            await plain.register()
        await plain.close()


async def test_the_server_of_one_process_registers_at_itself_over_tls(
    tmp_path: Path, authority: Authority, server: Pair
) -> None:
    config = BrokerConfig(
        listen="127.0.0.1:0", namesrv="", store_directory=str(tmp_path), store=StoreConfig(disk_check_enable=False),
        tls_ca=authority.pem, **server.server("enforcing"),
    )  # fmt: skip
    broker = Broker(config, guest=NameServerDoors.in_memory())
    await broker.start()
    async with Producer("pg", namesrv=broker.address, tls_ca=authority.pem) as producer:
        await producer.send(Message("t", b"x"))
    await broker.close()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tls_ca": "nowhere.pem"}, "tls_ca: nowhere.pem cannot be read"),
        ({"tls_ca": __file__}, "has no certificate in PEM"),
        ({"tls_cert": "c.pem"}, "do nothing without TLS"),
        ({"tls_key": "k.pem"}, "tls_key needs tls_cert"),
    ],
)
async def test_a_client_says_which_of_its_files_cannot_be_used(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        async with Producer("pg", **settings):
            pass


async def test_the_commands_of_the_page_make_a_certificate_that_serves(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    block = page.split("## Certificates for a try")[1].split("```sh\n")[1].split("```")[0]
    commands = block.split("dejamq dev")[0]
    made = await asyncio.create_subprocess_exec("sh", "-ec", commands, cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL)
    assert await made.wait() == 0
    pair = Pair(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))
    async with running(tmp_path / "store", **pair.server("enforcing")) as broker:
        tls = ClientTls(TlsClientSettings(tls_ca=str(tmp_path / "ca.pem")))
        assert await state_of(broker.address, tls=tls) == "SERVING"


async def test_an_encrypted_key_needs_its_password(tmp_path: Path, authority: Authority) -> None:
    hidden = authority.issue("hidden", password="secret word")
    async with running(tmp_path, **hidden.server(tls_server_key_password="secret word")) as broker:
        assert await state_of(broker.address, tls=tls_of(authority)) == "SERVING"
    with pytest.raises(ConfigError, match="is encrypted"):
        async with running(tmp_path, **hidden.server()):
            pass
    with pytest.raises(ConfigError, match="is encrypted"):
        tls_of(authority, **hidden.client())
    with pytest.raises(DejamqError, match="tls_server_key_path"):
        async with running(tmp_path, **hidden.server(tls_server_key_password="wrong")):
            pass
