"""Whole clusters with access control: servers know one another by an inner user; the command line has keys too."""

import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from access_site import ACCOUNTS, SECRETS, USERS
from broker_wire import broker_config, until
from certificates import Authority
from cli_runner import run_beside, run_here
from dejamq import Admin, Message, Producer, PushConsumer, ReceivedMessage
from dejamq.admin.access import AccessRule
from dejamq_broker.app import Broker
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.access.book import Contents, read_contents, write_contents
from dejamq_proto.codes import ConfigError, PermissionDenied


class Cluster:
    """A name server, a master and its slave, each with a file of users of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.servers: list[NameServer | Broker] = []
        self.namesrv = ""

    def file(self, name: str, users: Contents | None = None) -> str:
        file = self.directory / f"{name}.json"
        write_contents(file, users or Contents(USERS))
        return str(file)

    async def name_server(self, **settings: Any) -> None:
        config = NamesrvConfig(listen="127.0.0.1:0", acl_enable=True, access_file=self.file("namesrv"), **settings)
        server = NameServer(config)
        self.namesrv = await server.start()
        self.servers.append(server)

    async def broker(self, number: int, users: Contents | None = None, **settings: Any) -> Broker:
        config = broker_config(
            self.directory / f"store-{number}", namesrv=self.namesrv, acl_enable=True, broker_id=number,
            access_file=self.file(f"broker-{number}", users), broker_role="SLAVE" if number else "ASYNC_MASTER",
            slave_sync_interval_ms=200, register_name_server_period_ms=500, namesrv_reconnect_ms=200, **settings,
        )  # fmt: skip
        broker = Broker(config)
        await broker.start()
        self.servers.append(broker)
        return broker


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    for server in reversed(made.servers):
        await server.close()


def keys(name: str) -> dict[str, Any]:
    return {"access_key": name, "secret_key": ACCOUNTS[name].secret_key}


async def test_brokers_register_and_slaves_copy_by_an_inner_user(cluster: Cluster) -> None:
    await cluster.name_server()
    master = await cluster.broker(0)
    slave = await cluster.broker(1)
    async with Producer("makers", namesrv=cluster.namesrv, **keys("root")) as producer:
        await producer.send(Message("orders", b"body"))
    await until(lambda: slave.domain.store.log_max == master.domain.store.log_max > 0)


@pytest.mark.openssl
async def test_users_come_in_over_tls_too_by_grpc_and_frames(
    cluster: Cluster, tmp_path: Path, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, "ours")
    ca: dict[str, Any] = {"tls_ca": authority.pem}
    server: dict[str, Any] = authority.issue("server").server("enforcing")
    await cluster.name_server(**server)
    master = await cluster.broker(0, **server, **ca)
    slave = await cluster.broker(1, **server, **ca)
    async with Producer("makers", namesrv=cluster.namesrv, **keys("root"), **ca) as producer:
        await producer.send(Message("orders", b"body"))
    await until(lambda: slave.domain.store.log_max == master.domain.store.log_max > 0)
    async with Producer("makers", namesrv=cluster.namesrv, **ca) as producer:
        with pytest.raises(PermissionDenied):
            await producer.send(Message("orders", b"body"))
    assert any("access_refused" in line and "source=127.0.0.1" in line for line in caplog.messages)


async def test_a_slave_without_the_inner_user_copies_nothing_and_a_broker_without_it_does_not_register(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.name_server()
    master = await cluster.broker(0)
    async with Producer("makers", namesrv=cluster.namesrv, **keys("root")) as producer:
        await producer.send(Message("orders", b"body"))
    slave = await cluster.broker(1, Contents(tuple(user for user in USERS if user.username != "inner")))
    await until(lambda: "/dejamq.v1.NameServer/RegisterBroker" in caplog.text)
    assert slave.domain.store.log_max < master.domain.store.log_max
    async with Admin(cluster.namesrv, **keys("root")) as admin:
        assert [list(one.addresses) for one in await admin.brokers()] == [[0]]


async def test_a_user_whom_an_operator_makes_sends_and_consumes(cluster: Cluster) -> None:
    await cluster.name_server()
    await cluster.broker(0)
    async with Admin(cluster.namesrv, **keys("root")) as admin:
        await admin.create_user("shop", "shop-keeps-this")
        await admin.put_rules([
            AccessRule("shop", "Topic:orders", ["Pub", "Sub"]), AccessRule("shop", "Group:billing", ["Sub"]),
        ])  # fmt: skip
        told = await admin.users("shop")
        assert [len(users) for users in told.values()] == [1, 1]
    shop: dict[str, Any] = {"access_key": "shop", "secret_key": "shop-keeps-this"}
    got: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)

    consumer = PushConsumer("billing", namesrv=cluster.namesrv, vip_channel_enabled=True, **shop)
    consumer.subscribe("orders", handle)
    async with Producer("makers", namesrv=cluster.namesrv, **shop) as producer:
        await producer.send(Message("orders", b"first"))
        async with consumer:
            await until(lambda: consumer.assignment)
            await producer.send(Message("orders", b"body"))
            await until(lambda: b"body" in got)
    with pytest.raises(PermissionDenied):
        async with Admin(cluster.namesrv, **shop) as admin:
            await admin.delete_user("root")


async def test_one_key_alone_is_refused_before_anything_is_begun() -> None:
    with pytest.raises(ConfigError, match="secret_key is missing"):
        Producer("makers", access_key="shop")


async def test_the_command_line_makes_users_in_files_and_at_servers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.name_server()
    await cluster.broker(0)
    file = cluster.directory / "first.json"
    made = await run_beside("user", "create", "first", "--type", "Super", "--file", str(file), stdin=b"first-secret\n")
    assert (made.status, made.errors) == (0, "")
    assert read_contents(file).users[0].trusted
    for name, value in (("ACCESS_KEY", "root"), ("SECRET_KEY", SECRETS["root"]), ("NAMESRV", cluster.namesrv)):
        monkeypatch.setenv(f"DEJAMQ_{name}", value)
    assert (await run_beside("user", "create", "shop", stdin=b"shop-secret\n")).status == 0
    assert (await run_beside("acl", "set", "shop", "Topic:orders", "Pub")).status == 0
    rules = (await run_beside("acl", "list", "shop", "-o", "json")).json()
    assert {(one["resource"], one["actions"]) for one in rules} == {("Topic:orders", "Pub")}
    assert "Topic:NAME" in (await run_beside("acl", "set", "shop", "orders", "Pub")).one_line()
    users = await run_beside("user", "list", "-o", "json")
    assert {one["user"] for one in users.json()} == {*SECRETS, "shop"}
    assert not any(secret in users.output for secret in ("shop-secret", *SECRETS.values()))
    monkeypatch.setenv("DEJAMQ_ACCESS_KEY", "stranger")
    assert "signature" in (await run_beside("user", "list")).one_line()
    monkeypatch.setenv("DEJAMQ_SECRET_KEY", SECRETS["stranger"])
    assert (await run_beside("user", "list")).status == 1


PAGE = (Path(__file__).parents[2] / "docs" / "access.md").read_text()


def commands_of(page: str, noun: str) -> list[list[str]]:
    """The lines of the page's examples that make users, or rules, without what stands before the command."""
    lines = re.findall(rf"^(?:\w+=\S.*? )?dejamq ({noun} .*)$", page, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def test_the_examples_of_the_page_make_the_users_and_rules_that_they_say(tmp_path: Path) -> None:
    file = str(tmp_path / "access.json")
    users, rules = commands_of(PAGE, "user create"), commands_of(PAGE, "acl set")
    for words in (*users, *rules):
        at = words.index("--file") if "--file" in words else len(words)
        ran = run_here(*words[:at], "--file", file, stdin=b"a-new-secret\n")
        assert ran.status == 0, ran.errors
    contents = read_contents(Path(file))
    assert [(user.username, str(user.user_type)) for user in contents.users] == [
        ("root", "Super"), ("servers", "Inner"), ("shop", "Normal"),
    ]  # fmt: skip
    assert [rule.resource for rule in contents.rules] == ["Topic:orders", "Topic:stock*", "Group:shop"]
