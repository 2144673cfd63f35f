"""RocketMQ's Go client 2.1.2 with keys. It has no TLS, so it comes in beside TLS, where a server takes both."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import v2_clients
from broker_wire import broker_config
from certificates import Authority
from dejamq_broker.app import Broker
from dejamq_namesrv.doors.services import NameServerDoors
from dejamq_proto.access.book import Contents, write_contents
from dejamq_proto.access.model import Action, Rule, User, UserType
from test_go_client import built

pytestmark = [pytest.mark.go, pytest.mark.openssl, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT, SHOP = User("root", "root-keeps-this", UserType.SUPER), User("shop", "shop-keeps-this")
BOTH = (Action.PUB, Action.SUB)
RULES = (
    Rule("shop", "Topic:go_keys", BOTH), Rule("shop", "Topic:go_warm", BOTH), Rule("shop", "Group:go_keys*", BOTH),
    Rule("shop", "Topic:go_keys_read", (Action.SUB,)),
)  # fmt: skip


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    file, server = tmp_path / "access.json", Authority(tmp_path, "ours").issue("server")
    write_contents(file, Contents((ROOT, SHOP), RULES))
    broker = Broker(
        broker_config(tmp_path / "store", acl_enable=True, access_file=str(file), **server.server("permissive")),
        guest=NameServerDoors.in_memory(),
    )
    await broker.start()
    yield broker
    await broker.close()


async def never() -> None:
    raise AssertionError("no scenario here restarts the broker")


async def test_a_go_client_with_keys_does_what_its_rules_allow_and_each_refusal_is_a_line(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes a refusal of a route for a topic that is not there."""
    caplog.set_level(logging.WARNING)
    broker.domain.tables.topics.ensure("go_keys_read", 1)
    program = await asyncio.to_thread(built)
    keys = {"ACCESS_KEY": SHOP.username, "SECRET_KEY": SHOP.secret}
    told = await v2_clients.played([program], broker.address, "go", ["keys"], tmp_path, never, **keys)
    assert told["keys"] == [
        "got 1",
        "wrong secret the topic=go_keys route info not found",
        "no such user the topic=go_keys route info not found",
        "topic to read CODE: 16, DESC: shop has no permission: Pub on Topic:go_keys_read (no rule allows it)",
    ]
    lines = {one.getMessage().partition(" source=")[0] for one in caplog.records if "_refused" in one.getMessage()}
    assert lines == {
        "access_refused subject=shop action=none resource=none",
        "access_refused subject=nobody action=none resource=none",
        "access_refused subject=shop action=Pub resource=Topic:go_keys_read",
    }
