"""RocketMQ's Java client and its mqadmin with access control: their signatures are taken, and others are refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_namesrv.doors.services import NameServerDoors
from dejamq_proto.access.book import Contents, read_contents, write_contents
from dejamq_proto.access.model import Action, Rule, User, UserType
from java_clients import compiled, java, output_of

pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(300)]
ROOT, SHOP = User("root", "root-keeps-this", UserType.SUPER), User("shop", "shop-keeps-this")
RULES = Rule("shop", "Topic:orders", (Action.PUB, Action.SUB)), Rule("shop", "Group:billing", (Action.SUB,))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    file = tmp_path / "access.json"
    write_contents(file, Contents((ROOT, SHOP), RULES))
    config = BrokerConfig(
        listen="127.0.0.1:0", namesrv="", store_directory=str(tmp_path / "store"), acl_enable=True,
        access_file=str(file),
    )  # fmt: skip
    broker = Broker(config, guest=NameServerDoors.in_memory())
    await broker.start()
    yield broker
    await broker.close()


async def lines_of(version: str, broker: Broker, home: Path, *arguments: str) -> list[str]:
    command = java(compiled(version, "Acl"), home, "Acl", broker.address, *arguments)
    return [line for line in (await output_of(command)).splitlines() if line.startswith(("sent", "refused", "got"))]


async def test_a_java_client_with_keys_does_what_its_rules_allow(broker: Broker, tmp_path: Path) -> None:
    sent, refused, got = await lines_of("5.3.3", broker, tmp_path, SHOP.username, SHOP.secret, "wait")
    assert sent == "sent orders SEND_OK"
    assert refused.startswith("refused foreign")
    assert got == "got 1"


@pytest.mark.parametrize("keys", [(), (SHOP.username, "another-secret")])
async def test_a_java_client_without_keys_or_with_wrong_ones_does_nothing(
    broker: Broker, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    lines = await lines_of("5.3.3", broker, tmp_path, *keys)
    assert not any(line.startswith("sent") for line in lines)
    assert "got 1" not in lines


async def test_mqadmin_makes_users_and_rules(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text(f"accessKey: {ROOT.username}\nsecretKey: {ROOT.secret}\n")
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"

    async def mqadmin(text: str) -> str:
        command = java(compiled("5.3.3"), tmp_path, main, *text.split(), "-n", broker.address)
        command.insert(1, f"-Drocketmq.home.dir={tmp_path}")
        return await output_of(command)

    made = await mqadmin(f"createUser -b {broker.address} -u carol -p carol-keeps-this -t Normal")
    ruled = await mqadmin(f"createAcl -b {broker.address} -s User:carol -r Topic:orders -a Pub,Sub -d Allow")
    contents = read_contents(tmp_path / "access.json")
    assert User("carol", "carol-keeps-this") in contents.users, made
    assert Rule("carol", "Topic:orders", (Action.PUB, Action.SUB)) in contents.rules, ruled
    users = await mqadmin(f"listUser -b {broker.address}")
    assert "carol" in users
    assert "carol-keeps-this" not in users
    rules = await mqadmin(f"listAcl -b {broker.address}")
    assert "Topic:orders" in rules
    await mqadmin(f"deleteUser -b {broker.address} -u carol")
    assert "carol" not in str(read_contents(tmp_path / "access.json"))
