"""Ways round access control by who somebody says that he is: names, client ids, groups of producers, settings."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
import pytest
from access_asking import MINE, OWN, REPLIES, a_beat, asked, half, owning, v2_call
from access_site import ACCOUNTS, GROUP, TOPIC, WRONG, Site, guarded, header_for, v2_headers
from broker_wire import a_run, until
from console_reader import get
from dejamq_proto import client_pb2
from dejamq_proto.access.model import Action, Rule
from dejamq_proto.account import Account
from dejamq_proto.codes import Code
from dejamq_proto.remoting import requests
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting_client import connect
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2 import methods
from dejamq_proto.wire.calling import dial
from dejamq_proto.wire.messages import SendRunResult


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with owning(tmp_path) as found:
        yield found


# Who asks.


async def said_to(site: Site, account: Account) -> list[str]:
    """Refusals of each protocol, without the name."""
    remoting = await asked(site, account, requests.GET_ALL_TOPICS.code)
    v2 = await v2_call(site, account, "QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name=MINE)))
    channel = dial(site.address, account=account)
    with pytest.raises(grpc.aio.AioRpcError) as v1:
        await channel.unary_unary("/dejamq.v1.Admin/ListGroups")(b"")  # type: ignore[call-arg]
    await channel.close(None)
    address = f"http://{site.broker.watched.metrics_address}"
    http = await get(address, "/metrics", Authorization=account.basic())
    told = [f"{remoting.code} {remoting.remark}", str(v2.status), str(v1.value.details()), f"{http.status} {http.text}"]
    return [text.replace(account.access_key, "NAME") for text in told]


async def test_a_stranger_does_not_learn_whether_a_user_has_that_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of the server does tell it."""
    async with guarded(tmp_path, metrics_listen="127.0.0.1:0") as site:
        assert await said_to(site, WRONG) == await said_to(site, Account("nobody-is-named-so", "any-secret-at-all"))
    for reason in ("there is no such user", "the signature is not the user's"):
        assert sum(reason in one.getMessage() for one in caplog.records) == 4, reason


# Client ids.


async def test_replies_do_not_go_to_another_user_who_takes_a_clients_id(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    told: dict[str, list[Command]] = {"root": [], "fitting": []}
    clients = {name: await connect(site.address, kept.append, account=ACCOUNTS[name]) for name, kept in told.items()}
    heard = [
        await client.send(Command(code=requests.HEART_BEAT.code, body=a_beat("asks", "askers")))
        for client in clients.values()
    ]
    assert [one.code for one in heard] == [Code.SUCCESS, Code.NO_PERMISSION]
    refused = [one.getMessage() for one in caplog.records if "another user" in one.getMessage()]
    assert "access_refused subject=fitting" in refused[0]
    channel = dial(site.address, account=ACCOUNTS["fitting"])
    stream: Any = channel.stream_stream(  # type: ignore[call-arg]
        "/dejamq.v1.Client/ClientChannel", client_pb2.Heartbeat.SerializeToString, client_pb2.BrokerCommand.FromString
    )()  # fmt: skip
    beat = client_pb2.Heartbeat(producer_groups=["askers"])
    beat.caller.client_id = "asks"
    await stream.write(beat)
    assert (await stream.read()).heartbeat_ack.code == Code.NO_PERMISSION
    reply = header_for(requests.SendMessage, site) | {
        "topic": REPLIES, "producerGroup": "askers", "batch": "false", "bornTimestamp": "1",
        "properties": "REPLY_TO_CLIENT\x01asks\x02CORRELATION_ID\x011\x02MSG_TYPE\x01reply\x02CLUSTER\x01c\x02",
    }  # fmt: skip
    await asked(site, ACCOUNTS["root"], requests.SEND_REPLY_MESSAGE.code, b"secret", **reply)
    await until(lambda: told["root"])
    assert (told["root"][0].body, told["fitting"]) == (b"secret", [])
    await clients["root"].close()
    await until(lambda: not site.broker.domain.members.clients.channel_of("askers", "asks"))
    again = await clients["fitting"].send(Command(code=requests.HEART_BEAT.code, body=a_beat("asks", "askers")))
    assert again.code == Code.SUCCESS
    await channel.close(None)
    await clients["fitting"].close()


# Producers of others.


async def joined(site: Site, name: str, group: str, told: Callable[[Command], None] = lambda _: None) -> Any:
    client = await connect(site.address, told, account=ACCOUNTS[name.partition("-")[0]])
    taken = await client.send(Command(code=requests.HEART_BEAT.code, body=a_beat(name, group)))
    assert taken.code == Code.SUCCESS, taken.remark
    return client


async def unregister_v1(site: Site, account: str, client_id: str, boot_id: str) -> str:
    channel = dial(site.address, account=ACCOUNTS[account])
    request = client_pb2.UnregisterRequest(producer_group="makers")
    request.caller.client_id, request.caller.boot_id = client_id, boot_id
    try:
        await channel.unary_unary("/dejamq.v1.Client/Unregister")(request.SerializeToString())  # type: ignore[call-arg]
    except grpc.aio.AioRpcError as error:
        return str(error.details())
    finally:
        await channel.close(None)
    return ""


async def test_a_producer_is_unregistered_by_itself_and_by_who_may_do_everything_alone(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    producers = site.broker.domain.members.clients.producers
    await site.allow(*OWN, Rule("fitting", "Cluster:*", (Action.LIST,)))  # so it may know the start of each client
    own = await joined(site, "stranger-makes", "makers")
    fields: dict[str, Any] = {"clientID": "stranger-makes", "producerGroup": "makers"}
    for account in ("fitting", "stranger"):  # by other connections
        await asked(site, ACCOUNTS[account], requests.UNREGISTER_CLIENT.code, **fields)
    (channel,) = producers.channels_of("makers")
    boot_id = dict(producers)[channel].boot_id
    assert "another user's" in await unregister_v1(site, "fitting", "stranger-makes", boot_id)
    assert producers.channels_of("makers") == [channel]
    lines = [one.getMessage() for one in caplog.records if "request=unregister" in one.getMessage()]
    assert lines[-1].startswith("access_refused subject=fitting ")
    assert await unregister_v1(site, "root", "stranger-makes", boot_id) == ""
    assert producers.channels_of("makers") == []
    await own.send(Command(code=requests.HEART_BEAT.code, body=a_beat("stranger-makes", "makers")))
    assert producers.channels_of("makers") == [channel]
    left = await own.send(Command(code=requests.UNREGISTER_CLIENT.code, ext=fields))
    assert (left.code, producers.channels_of("makers")) == (Code.SUCCESS, [])
    await own.close()


async def test_a_consumer_is_unregistered_by_its_own_connection_alone(site: Site) -> None:
    """Another one may name its client id, and has the right to the group: that is for its own member."""
    groups, fields = site.broker.domain.members.clients.groups, {"clientID": "c", "consumerGroup": "mine-group"}
    data = {"groupName": "mine-group", "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY"}
    beat = msgspec.json.encode({"clientID": "c", "consumerDataSet": [data]})
    own = await connect(site.address, lambda _: None, account=ACCOUNTS["fitting"])
    assert (await own.send(Command(code=requests.HEART_BEAT.code, body=beat))).code == Code.SUCCESS
    for account in ("fitting", "stranger"):
        other = await connect(site.address, lambda _: None, account=ACCOUNTS[account])
        await other.send(Command(code=requests.UNREGISTER_CLIENT.code, ext=fields))
        await other.close()
    assert groups.members("mine-group") == ["c"]
    await own.send(Command(code=requests.UNREGISTER_CLIENT.code, ext=fields))
    assert groups.members("mine-group") == []
    await own.close()


async def test_members_of_a_group_of_producers_who_may_not_see_its_messages_are_not_all_who_are_asked(
    tmp_path: Path,
) -> None:
    """Nobody needs a right to join one, and a transaction is given up after some checks."""
    quick = {"transaction_timeout_ms": 50, "transaction_check_interval_ms": 50, "transaction_check_max": 1}
    async with guarded(tmp_path, **quick) as site:
        asked_of: list[Command] = []
        crowd = [await joined(site, f"stranger-{number}", "makers") for number in range(12)]
        maker = await joined(site, "root-makes", "makers", asked_of.append)
        crowd += [await joined(site, f"fitting-{number}", "makers") for number in range(12)]
        await half(site, "makers", "C00002020B523FDD08A68B1995EE0012")
        await until(lambda: asked_of)
        assert asked_of[0].code == requests.CHECK_TRANSACTION_STATE.code
        for client in (*crowd, maker):
            await client.close()


async def test_a_reply_needs_the_right_to_replies_whatever_topic_it_names(site: Site) -> None:
    """It is handed to a client by the client's id, and its topic plays no part in that."""
    await site.allow(*OWN[:2])
    got: list[Command] = []
    victim = await joined(site, "root-asks", "askers", got.append)
    properties = "REPLY_TO_CLIENT\x01root-asks\x02CORRELATION_ID\x011\x02MSG_TYPE\x01reply\x02"
    fields = header_for(requests.SendMessage, site) | {
        "topic": MINE, "producerGroup": "p", "batch": "false", "bornTimestamp": "1", "properties": properties,
    }  # fmt: skip
    answer = await asked(site, ACCOUNTS["fitting"], requests.SEND_REPLY_MESSAGE.code, b"forged", **fields)
    assert (answer.code, REPLIES in (answer.remark or "")) == (Code.NO_PERMISSION, True)
    told = properties.replace("\x01", "=").split("\x02")
    run = a_run(MINE, [b"forged"], reply=True, properties=dict(one.split("=") for one in told if one))
    channel = dial(site.address, account=ACCOUNTS["fitting"])
    stream: Any = channel.stream_stream("/dejamq.v1.Send/SendStream")()  # type: ignore[call-arg]
    await stream.write(run.encode())
    assert SendRunResult.decode(await stream.read()).code == Code.NO_PERMISSION
    await channel.close(None)
    await victim.send(Command(code=requests.HEART_BEAT.code, body=a_beat("root-asks", "askers")))
    assert got == []
    await victim.close()


# Clients of RocketMQ 5, whose settings, heartbeats and calls name groups each by itself.


async def test_settings_of_ones_own_group_open_no_other_group_to_a_client_of_rocketmq_5(site: Site) -> None:
    channel, headers = dial(site.address), v2_headers(ACCOUNTS["fitting"])
    telling: Any = channel.stream_stream(f"/{methods.SERVICE}/Telemetry")(metadata=headers)  # type: ignore[call-arg]
    command = pb.TelemetryCommand()
    command.settings.subscription.group.name = "mine-group"
    command.settings.subscription.subscriptions.add().topic.name = MINE
    await telling.write(command.SerializeToString())
    assert pb.TelemetryCommand.FromString(await telling.read()).WhichOneof("command") == "settings"
    groups = site.broker.domain.members.clients.groups
    assert groups.members("mine-group")
    receive = pb.ReceiveMessageRequest(batch_size=1)
    for group, topic in ((GROUP, MINE), ("mine-group", TOPIC), (GROUP, TOPIC)):
        receive.group.name, receive.message_queue.topic.name = group, topic
        receive.long_polling_timeout.SetInParent()
        receiving: Any = channel.unary_stream(f"/{methods.SERVICE}/ReceiveMessage")(  # type: ignore[call-arg]
            receive.SerializeToString(), metadata=headers
        )
        told = pb.ReceiveMessageResponse.FromString(await receiving.read())
        assert told.status.code == pb.UNAUTHORIZED, (group, topic)
    foreign = pb.Resource(name=GROUP)
    for name, request in (
        ("Heartbeat", pb.HeartbeatRequest(group=foreign)),
        ("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=foreign)),
    ):
        assert (await v2_call(site, ACCOUNTS["fitting"], name, request)).status.code == pb.UNAUTHORIZED
    assert (groups.members(GROUP), len(groups.members("mine-group"))) == ([], 1)
    await channel.close(None)
