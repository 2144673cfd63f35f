"""RocketMQ 5's official clients with access control and TLS: with keys they do what they may, and hear of the rest."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import v2_clients
from certificates import Authority
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import StoreConfig
from dejamq_namesrv.doors.services import NameServerDoors
from dejamq_proto.access.book import Contents, write_contents
from dejamq_proto.access.model import Action, Rule, User, UserType

pytestmark = [pytest.mark.openssl, pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(600)]
ROOT, SHOP = User("root", "root-keeps-this", UserType.SUPER), User("shop", "shop-keeps-this")
BOTH, SUB = (Action.PUB, Action.SUB), (Action.SUB,)
PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "python": v2_clients.python_program, "node": v2_clients.node_program, "go": v2_clients.go_program,
    "java": v2_clients.java_program,
}  # fmt: skip
UNAUTHORIZED = "40100"
SAID = {
    "python": {"wrong secret": "no route", "no such user": "no route"},
    "node": {"wrong secret": "no route", "no such user": "no route"},
    "go": {"foreign group": "not started"},
    "java": {"foreign group": "not started"},
}
"""Where a client does not say the code that it got, as with RocketMQ's proxy: of a route, or of telemetry."""
TRIES = "wrong secret", "no such user", "topic to read", "foreign group"


def rules(name: str) -> list[Rule]:
    topic = f"{name}-keys"
    return [
        Rule("shop", f"Topic:{topic}", BOTH),
        Rule("shop", f"Topic:{topic}-read", SUB),
        Rule("shop", f"Group:{topic}", SUB),
    ]


def logged(name: str) -> set[tuple[str, str, str]]:
    """Subject, resource and reason."""
    return {
        ("shop", "none", "the signature is not the user's"), ("nobody", "none", "there is no such user"),
        ("shop", f"Topic:{name}-keys-read", "no rule allows it"), ("shop", "Group:foreign", "no rule allows it"),
    }  # fmt: skip


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ours")


@pytest.fixture
async def broker(tmp_path: Path, authority: Authority) -> AsyncIterator[Broker]:
    file = tmp_path / "access.json"
    write_contents(file, Contents((ROOT, SHOP), tuple(rule for name in SAID for rule in rules(name))))
    config = BrokerConfig(
        listen="127.0.0.1:0", namesrv="", store_directory=str(tmp_path / "store"), acl_enable=True,
        access_file=str(file), broker_fast_failure_enable=False, tls_ca=authority.pem,
        store=StoreConfig(mapped_file_size_commit_log=64 << 20, disk_check_enable=False),
        **authority.issue("server").server("enforcing"),
    )  # fmt: skip
    broker = Broker(config, guest=NameServerDoors.in_memory())
    await broker.start()
    yield broker
    await broker.close()


async def never() -> None:
    raise AssertionError("no scenario here restarts the broker")


async def told(broker: Broker, authority: Authority, home: Path, name: str) -> list[str]:
    keys = {"ACCESS_KEY": SHOP.username, "SECRET_KEY": SHOP.secret}
    tls = {"WITH_TLS": "1", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": authority.pem}
    command = await asyncio.to_thread(PROGRAMS[name])
    return (await v2_clients.played(command, broker.address, name, ["keys"], home, never, **keys, **tls))["keys"]


def in_the_log(caplog: pytest.LogCaptureFixture) -> set[tuple[str, str, str]]:
    """Who was refused what, and why."""
    lines = [one.getMessage() for one in caplog.records if one.getMessage().startswith("access_refused")]
    found = (dict(word.split("=", 1) for word in line.split(" reason=")[0].split()[1:]) for line in lines)
    reasons = (line.partition(" reason=")[2] for line in lines)
    return {(each["subject"], each["resource"], reason) for each, reason in zip(found, reasons, strict=True)}


@pytest.mark.parametrize("names", [
    ["python"], pytest.param(["node"], marks=pytest.mark.node),
    pytest.param(["go", "java"], marks=[pytest.mark.go, pytest.mark.mvn]),
])  # fmt: skip
async def test_a_client_with_keys_does_what_its_rules_allow_over_tls_and_each_refusal_is_a_line(
    names: list[str], broker: Broker, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong keys, and a right that is missing, are UNAUTHORIZED, as RocketMQ's proxy 5.3.3 has it."""
    caplog.set_level(logging.WARNING)
    broker.domain.tables.topics.ensure_each({f"{name}-keys-read": 1 for name in names})
    saying = (told(broker, authority, tmp_path, name) for name in names)
    for name, lines in zip(names, await asyncio.gather(*saying), strict=True):
        expected = dict.fromkeys(TRIES, UNAUTHORIZED) | SAID[name]
        assert lines == ["got allowed", *(f"{what} {said}" for what, said in expected.items())]
    assert in_the_log(caplog) == {line for name in names for line in logged(name)}
