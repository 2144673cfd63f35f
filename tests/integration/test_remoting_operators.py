"""What RocketMQ's tools ask of a broker and change at it by the remoting protocol."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_wire import running
from dejamq_broker.app import Broker
from dejamq_proto.codes import Code
from dejamq_proto.loose_json import pairs_of_field
from dejamq_proto.remoting import requests as r
from dejamq_proto.remoting.header import Command
from remoting_wire import RemotingClient, a_heartbeat, a_pull, a_send, remoting

ORDERS = {
    "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
}  # fmt: skip


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RemotingClient]:
    async with remoting(broker.address) as client:
        yield client


async def done(client: RemotingClient, request: Any, body: Any = b"", **ext: Any) -> Command:
    answer = await client.ask(request, body, **ext)
    assert answer.code == 0, answer.remark
    return answer


async def told(client: RemotingClient, request: Any, **ext: Any) -> Any:
    return msgspec.json.decode((await done(client, request, **ext)).body)


def table(answer: Command) -> dict[int, Any]:
    """An offset table by queue id; its keys are whole queues of orders at this broker."""
    found = pairs_of_field(answer.body.decode(), "offsetTable")
    assert all((key["topic"], key["brokerName"]) == ("orders", "broker-a") for key, _ in found)
    return {key["queueId"]: value for key, value in found}


async def test_a_topic_is_made_changed_and_deleted(broker: Broker, client: RemotingClient) -> None:
    await done(client, r.UPDATE_TOPIC, **ORDERS, attributes="+message.type=FIFO")
    config = await told(client, r.GET_TOPIC_CONFIG, topic="orders")
    assert config == {
        "topicName": "orders", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "order": False,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {"message.type": "FIFO"},
    }  # fmt: skip
    await done(client, r.UPDATE_TOPIC, **(ORDERS | {"perm": 4}), attributes="-message.type,+a=b")
    everything = await told(client, r.GET_ALL_TOPIC_CONFIG)
    changed = everything["topicConfigTable"]["orders"]
    assert (changed["perm"], changed["attributes"]) == (4, {"a": "b"})
    await done(client, r.DELETE_TOPIC, topic="orders")
    gone = await client.ask(r.GET_TOPIC_CONFIG, topic="orders")
    assert (gone.code, gone.remark) == (17, "No topic in this broker. topic: orders")


@pytest.mark.parametrize(
    "change", [{"topic": "TBW102"}, {"topic": "a b"}, {"readQueueNums": 0}, {"attributes": "message.type=FIFO"}]
)
async def test_a_topic_that_cannot_be_is_refused(client: RemotingClient, change: dict[str, Any]) -> None:
    assert (await client.ask(r.UPDATE_TOPIC, **(ORDERS | change))).code == Code.INVALID_PARAMETER


async def test_the_state_of_queues_and_groups_is_told_by_queue(client: RemotingClient) -> None:
    await done(client, r.UPDATE_TOPIC, **ORDERS)
    for _ in range(3):
        await done(client, r.SEND_MESSAGE_V2, b"x", **a_send("orders"))
    queues = table(await done(client, r.GET_TOPIC_STATS, topic="orders"))
    assert (queues[0]["minOffset"], queues[0]["maxOffset"], queues[0]["lastUpdateTimestamp"] > 0) == (0, 3, True)
    assert queues[1] == {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0}
    await done(client, r.HEART_BEAT, a_heartbeat(topic="orders"))
    await done(client, r.PULL_MESSAGE, **a_pull("orders"))
    await done(client, r.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="orders", queueId=0, commitOffset=2)
    (progress,) = table(await done(client, r.GET_CONSUME_STATS, consumerGroup="cg")).values()
    assert progress.pop("lastTimestamp") > 0
    assert progress == {"brokerOffset": 3, "consumerOffset": 2, "pullOffset": 3}
    assert table(await done(client, r.GET_CONSUME_STATS, consumerGroup="nobody")) == {}
    assert await told(client, r.WHO_CONSUMES, topic="orders") == {"groupList": ["cg"]}
    assert await told(client, r.TOPICS_OF_GROUP, group="cg") == {"topicList": ["orders"]}


async def test_all_committed_offsets_and_the_progress_of_delays_are_told_as_their_files_have_them(
    client: RemotingClient,
) -> None:
    await done(client, r.UPDATE_TOPIC, **ORDERS)
    await done(client, r.HEART_BEAT, a_heartbeat(topic="orders"))
    await done(client, r.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="orders", queueId=1, commitOffset=2)
    offsets = await told(client, r.GET_ALL_CONSUMER_OFFSET)
    assert offsets["offsetTable"] == {"orders@cg": {"1": 2}}
    assert set(offsets["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
    assert set(await told(client, r.GET_ALL_DELAY_OFFSET)) == {"dataVersion", "offsetTable"}


async def test_connected_clients_are_told_with_version_and_language(client: RemotingClient) -> None:
    offline = await client.ask(r.GET_CONSUMER_CONNECTIONS, consumerGroup="cg")
    assert (offline.code, offline.remark) == (206, "the consumer group[cg] not online")
    assert (await client.ask(r.GET_PRODUCER_CONNECTIONS, producerGroup="pg")).code == 1
    await done(client, r.HEART_BEAT, a_heartbeat("c1"))
    host, port = client.writer.get_extra_info("sockname")
    line = {"clientAddr": f"{host}:{port}", "clientId": "c1", "language": "JAVA", "version": 479}
    consumers = await told(client, r.GET_CONSUMER_CONNECTIONS, consumerGroup="cg")
    assert consumers["connectionSet"] == [line]
    assert consumers["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    assert consumers["consumeType"] == "CONSUME_PASSIVELY"
    assert consumers["subscriptionTable"]["t"]["subString"] == "*"
    producers = await told(client, r.GET_PRODUCER_CONNECTIONS, producerGroup="pg")
    assert producers == {"connectionSet": [line]}
    (producer,) = (await told(client, r.GET_ALL_PRODUCERS))["data"]["pg"]
    assert (producer["clientId"], producer["remoteIP"]) == ("c1", f"/{host}:{port}")


@pytest.mark.parametrize("kind", ["CONSUME_ACTIVELY", 0, "CONSUME_POP"])
async def test_a_tool_is_told_how_a_consumer_gets_its_messages(client: RemotingClient, kind: Any) -> None:
    beat = a_heartbeat()
    beat["consumerDataSet"][0]["consumeType"] = kind
    await done(client, r.HEART_BEAT, beat)
    consumers = await told(client, r.GET_CONSUMER_CONNECTIONS, consumerGroup="cg")
    assert consumers["consumeType"] == (kind or "CONSUME_ACTIVELY")


async def test_a_group_is_made_changed_and_deleted(client: RemotingClient) -> None:
    await done(client, r.UPDATE_GROUP, {"groupName": "cg", "retryMaxTimes": 3, "unknown": 1})
    await done(client, r.UPDATE_GROUP, {"groupName": "cg", "consumeEnable": False})
    group = await told(client, r.GET_GROUP, group="cg")
    assert (group["retryMaxTimes"], group["consumeEnable"], group["retryQueueNums"]) == (3, False, 1)
    assert "cg" in (await told(client, r.GET_ALL_GROUPS))["subscriptionGroupTable"]
    await done(client, r.DELETE_GROUP, groupName="cg", cleanOffset="true")
    assert (await client.ask(r.GET_GROUP, group="cg")).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST


async def with_progress(client: RemotingClient) -> None:
    await done(client, r.UPDATE_TOPIC, **ORDERS)
    for _ in range(3):
        await done(client, r.SEND_MESSAGE_V2, b"x", **a_send("orders"))
    await done(client, r.HEART_BEAT, a_heartbeat(topic="orders"))
    await done(client, r.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="orders", queueId=0, commitOffset=3)


async def test_a_group_is_sent_back_by_time_and_to_an_offset(client: RemotingClient) -> None:
    await with_progress(client)
    reset = {"group": "cg", "topic": "orders", "isForce": "true"}
    assert table(await done(client, r.RESET_OFFSETS, **reset, timestamp=0)) == {0: 0, 1: 0}
    at = {"consumerGroup": "cg", "topic": "orders", "queueId": 0}
    assert (await done(client, r.QUERY_CONSUMER_OFFSET, **at)).ext["offset"] == "0"
    assert table(await done(client, r.RESET_OFFSETS, **reset, timestamp=-1, queueId=0, offset=2)) == {0: 2}
    assert (await client.ask(r.RESET_OFFSETS, **(reset | {"topic": "none"}), timestamp=0)).code == 17


async def test_a_group_goes_on_where_another_one_is(client: RemotingClient) -> None:
    await with_progress(client)
    await done(client, r.UPDATE_GROUP, {"groupName": "other"})
    await done(client, r.CLONE_OFFSETS, srcGroup="cg", destGroup="other", offline="true")
    at = {"consumerGroup": "other", "topic": "orders", "queueId": 0}
    assert (await done(client, r.QUERY_CONSUMER_OFFSET, **at)).ext["offset"] == "3"


async def test_several_topics_are_made_and_changed_at_once(client: RemotingClient) -> None:
    shape = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG", "order": False}
    topics = [shape | {"topicName": name, "attributes": {"+message.type": "FIFO"}} for name in ("one", "two")]
    await done(client, r.UPDATE_TOPICS, {"topicConfigList": topics})
    assert (await told(client, r.GET_TOPIC_CONFIG, topic="two"))["attributes"] == {"message.type": "FIFO"}
    less = [each | {"attributes": {"-message.type": ""}, "perm": 4} for each in topics]
    bad = shape | {"topicName": "no good name"}
    assert (await client.ask(r.UPDATE_TOPICS, {"topicConfigList": [less[0], bad, less[1]]})).code == 29
    found = [await told(client, r.GET_TOPIC_CONFIG, topic=name) for name in ("one", "two")]
    assert [(each["perm"], each["attributes"]) for each in found] == [(4, {}), (6, {"message.type": "FIFO"})]


async def test_several_groups_are_made_at_once_but_not_any_number(client: RemotingClient) -> None:
    groups = [{"groupName": f"g{number}", "retryMaxTimes": 3} for number in range(3)]
    await done(client, r.UPDATE_GROUPS, {"groupConfigList": groups})
    assert (await told(client, r.GET_GROUP, group="g2"))["retryMaxTimes"] == 3
    many = await client.ask(r.UPDATE_GROUPS, {"groupConfigList": groups * 400})
    assert (many.code, many.remark) == (29, "1200 changes came at once, at most 1000 are made")


async def test_a_topic_is_taken_from_a_group_and_given_back(client: RemotingClient) -> None:
    await done(client, r.UPDATE_GROUP, {"groupName": "cg"})

    async def forbidden(**change: Any) -> Any:
        return msgspec.json.decode((await done(client, r.FORBID, group="cg", topic="orders", **change)).body)

    assert await forbidden() == {"group": "cg", "readable": True, "topic": "orders"}
    assert (await forbidden(readable="false"))["readable"] is False
    assert (await forbidden())["readable"] is False
    assert (await forbidden(readable="true"))["readable"] is True


async def test_how_far_a_group_is_behind_is_told_in_time(client: RemotingClient) -> None:
    await with_progress(client)
    await done(client, r.SEND_MESSAGE_V2, b"x", **a_send("orders"))
    spans = (await told(client, r.GET_TIME_SPAN, topic="orders", group="cg"))["consumeTimeSpanSet"]
    first, empty = sorted(spans, key=lambda each: each["messageQueue"]["queueId"])
    assert 0 < first["minTimeStamp"] <= first["consumeTimeStamp"] <= first["maxTimeStamp"]
    assert first["delayTime"] >= 0
    queue = {"brokerName": "broker-a", "queueId": 1, "topic": "orders"}
    assert empty == {"messageQueue": queue, "minTimeStamp": 0, "maxTimeStamp": 0, "consumeTimeStamp": 0, "delayTime": 0}
    assert (await client.ask(r.GET_TIME_SPAN, topic="none", group="cg")).code == Code.TOPIC_NOT_EXIST


async def test_all_groups_are_told_with_what_they_have_before_them(broker: Broker, client: RemotingClient) -> None:
    await with_progress(client)
    await done(client, r.SEND_MESSAGE_V2, b"x", **a_send("orders"))
    raw = (await done(client, r.GET_CONSUMPTION, isOrder="false")).body.decode()
    assert f'"brokerAddr":"{broker.address}"' in raw
    assert '{"cg":[{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:' in raw
    assert '"totalDiff":1' in raw
    ordered = msgspec.json.decode((await done(client, r.GET_CONSUMPTION, isOrder="true")).body)
    assert (ordered["consumeStatsList"], ordered["totalDiff"]) == ([], 0)


async def test_a_groups_subscription_and_the_brokers_own_topics_are_told(client: RemotingClient) -> None:
    await done(client, r.HEART_BEAT, a_heartbeat(topic="orders", subString="a"))
    found = await told(client, r.SUBSCRIPTION_OF_GROUP, group="cg", topic="orders")
    assert (found["group"], found["topic"], found["subscriptionData"]["subString"]) == ("cg", "orders", "a")
    assert await told(client, r.SUBSCRIPTION_OF_GROUP, group="cg", topic="t") == {"group": "cg", "topic": "t"}
    topics = (await told(client, r.GET_SYSTEM_TOPICS))["topicList"]
    assert {"SELF_TEST_TOPIC", "TBW102", "DefaultCluster", "broker-a"} <= set(topics)
    assert "%RETRY%cg" not in topics


async def test_settings_are_told_by_rocketmqs_names_and_some_can_be_changed(client: RemotingClient) -> None:
    async def line(name: str) -> str:
        lines = (await done(client, r.GET_BROKER_CONFIG)).body.decode().splitlines()
        return dict(each.split("=", 1) for each in lines)[name]

    assert (await line("brokerName"), await line("autoCreateTopicEnable")) == ("broker-a", "true")
    await done(client, r.UPDATE_BROKER_CONFIG, b"# a comment\nautoCreateTopicEnable=false\n")
    assert await line("autoCreateTopicEnable") == "false"
    assert (await client.ask(r.UPDATE_BROKER_CONFIG, b"brokerName=x\n")).code == Code.INVALID_PARAMETER


async def test_numbers_of_the_broker_and_of_topics_are_told(client: RemotingClient) -> None:
    await done(client, r.SEND_MESSAGE_V2, b"x", **a_send("orders"))
    assert (await told(client, r.GET_RUNTIME_INFO))["table"]["brokerName"] == "broker-a"
    counted = await told(client, r.VIEW_STATS, statsName="TOPIC_PUT_NUMS", statsKey="orders")
    assert counted["statsDay"]["sum"] == 1
    missing = await client.ask(r.VIEW_STATS, statsName="TOPIC_PUT_NUMS", statsKey="none")
    assert (missing.code, missing.remark) == (1, "The stats <TOPIC_PUT_NUMS> <none> not exist")


@pytest.mark.parametrize("request_", [r.GET_RUNNING_INFO, r.CONSUME_DIRECTLY], ids=lambda one: one.name)
async def test_a_tools_question_to_a_client_is_relayed_with_its_answer(
    broker: Broker, client: RemotingClient, request_: Any
) -> None:
    sent = await done(client, r.SEND_MESSAGE_V2, b"x", **a_send("orders"))
    question = {"consumerGroup": "cg", "clientId": "c1", "msgId": sent.ext["msgId"]}
    assert (await client.ask(request_, **question)).code == Code.CONSUMER_NOT_ONLINE
    async with remoting(broker.address) as member:
        await done(member, r.HEART_BEAT, a_heartbeat("c1"))
        assert (await member.push()).code == r.NOTIFY_CONSUMER_IDS_CHANGED.code
        asking = asyncio.create_task(client.ask(request_, **question))
        asked = await member.push()
        assert (asked.code, asked.oneway, asked.ext["consumerGroup"]) == (request_.code, False, "cg")
        assert bool(asked.body) == (request_ is r.CONSUME_DIRECTLY)
        member.reply(asked, b'{"as":"it is"}')
        assert (await asking).body == b'{"as":"it is"}'
        asking = asyncio.create_task(client.ask(request_, **question))
        member.reply(await member.push(), code=1, remark="not now")
        refused = await asking
        assert (refused.code, refused.remark) == (1, "not now")


@pytest.mark.parametrize(
    ("request_", "most"),
    [(r.HEART_BEAT, 1 << 20), (r.UPDATE_GROUP, 1 << 20), (r.LOCK_BATCH, 1 << 20), (r.UPDATE_BROKER_CONFIG, 64 << 10)],
    ids=lambda one: getattr(one, "name", ""),
)
async def test_a_body_that_is_larger_than_any_use_of_it_is_not_read(
    client: RemotingClient, request_: Any, most: int
) -> None:
    refused = await client.ask(request_, b" " * (most + 1))
    text = f"{request_.name}: a body of {most + 1} bytes came, at most {most} are read"
    assert (refused.code, refused.remark) == (Code.SYSTEM_ERROR, text)


async def test_a_broken_escape_among_settings_is_refused_and_the_connection_goes_on(client: RemotingClient) -> None:
    refused = await client.ask(r.UPDATE_BROKER_CONFIG, rb"autoCreateTopicEnable=\u12")
    assert (refused.code, "four hexadecimal digits" in (refused.remark or "")) == (Code.SYSTEM_ERROR, True)
    half = await client.ask(r.UPDATE_BROKER_CONFIG, rb"\ud800=\ud800")
    assert half.code == Code.INVALID_PARAMETER
    await done(client, r.GET_BROKER_CONFIG)
