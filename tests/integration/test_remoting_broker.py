"""The broker's remoting door, as RocketMQ's clients use it."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_wire import running, until
from dejamq_broker.app import Broker
from dejamq_broker.doors.remoting import pull as pull_door
from dejamq_proto.codes import Code
from dejamq_proto.names import HALF_TOPIC
from dejamq_proto.records.hosts import parse_offset_message_id
from dejamq_proto.records.recall_handle import RecallHandle
from dejamq_proto.records.record import decode
from dejamq_proto.remoting import requests as r
from dejamq_proto.remoting.batches import HEAD, PROPERTIES_SIZE
from dejamq_proto.remoting.frames import MAX_FRAME_BYTES, answer, encode
from dejamq_proto.remoting.header import ROCKETMQ, Command
from dejamq_proto.serving import remoting as door
from remoting_wire import RemotingClient, a_heartbeat, a_pull, a_send, remoting

TRACED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
"""Properties that RocketMQ adds to each message."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, transaction_check_interval_ms=100, transaction_timeout_ms=100) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RemotingClient]:
    async with remoting(broker.address) as client:
        yield client


def records(answer: Command) -> list[Any]:
    found, at = [], 0
    while at < len(answer.body):
        found.append(decode(answer.body, at))
        at += int.from_bytes(answer.body[at : at + 4])
    return found


async def sent(client: RemotingClient, body: bytes = b"x", **more: Any) -> Command:
    answer = await client.ask(r.SEND_MESSAGE_V2, body, **a_send(**more))
    assert answer.code == 0, answer.remark
    return answer


async def test_a_sent_message_is_pulled_as_it_was_sent(broker: Broker, client: RemotingClient) -> None:
    answer = await sent(client, b"body", h=7)
    assert (answer.ext["queueId"], answer.ext["queueOffset"], answer.ext["transactionId"]) == ("0", "0", "K1")
    assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"], answer.version) == ("DefaultRegion", "true", 479)
    pulled = await client.ask(r.PULL_MESSAGE, **a_pull())
    assert (pulled.code, pulled.remark, pulled.ext["nextBeginOffset"]) == (0, "FOUND", "1")
    (record,) = records(pulled)
    assert (record.topic, record.body, record.flag, record.queue_offset) == ("t", b"body", 7, 0)
    assert record.properties == {"UNIQ_KEY": "K1", "TAGS": "a", "CLUSTER": broker.site.cluster} | TRACED
    assert record.born_host == client.writer.get_extra_info("sockname")


async def test_an_offset_message_id_names_the_public_address(broker: Broker, client: RemotingClient) -> None:
    answer = await sent(client)
    host, at = parse_offset_message_id(answer.ext["msgId"])
    assert f"{host[0]}:{host[1]}" == broker.address
    (record,) = records(await client.ask(r.VIEW_MESSAGE, offset=at))
    assert record.body == b"x"
    missing = await client.ask(r.VIEW_MESSAGE, offset=at + 1)
    assert (missing.code, missing.remark) == (1, f"can not find message by the offset, {at + 1}")


async def test_long_names_and_binary_headers_are_read_as_well(client: RemotingClient) -> None:
    long = {"producerGroup": "pg", "topic": "t", "queueId": 1, "bornTimestamp": 5, "defaultTopicQueueNums": 4}
    assert (await client.ask(r.SEND_MESSAGE, b"x", **long)).code == 0
    client.form = ROCKETMQ
    assert (await client.ask(r.SEND_MESSAGE_V2, b"y", **a_send(queue_id=1))).ext["queueOffset"] == "1"


async def test_the_broker_chooses_a_queue_for_who_does_not(client: RemotingClient) -> None:
    assert (await sent(client, e=-1)).ext["queueId"] in "0123"


def element(body: bytes, properties: bytes = b"") -> bytes:
    size = HEAD.size + len(body) + PROPERTIES_SIZE.size + len(properties)
    return HEAD.pack(size, 0, 0, 0, len(body)) + body + PROPERTIES_SIZE.pack(len(properties)) + properties


@pytest.mark.parametrize("request_", [r.SEND_BATCH_MESSAGE, r.SEND_MESSAGE_V2], ids=["java", "c++"])
async def test_a_batch_is_stored_as_its_messages_with_an_id_for_each(client: RemotingClient, request_: Any) -> None:
    body = element(b"one", b"TAGS\x01a\x02") + element(b"two", b"TAGS\x01b") + element(b"three")
    answer = await client.ask(request_, body, **a_send(m="true", i="WAIT\x01true"))
    ids = answer.ext["msgId"].split(",")
    assert (answer.code, answer.ext["queueOffset"], len(set(ids))) == (0, "0", 3)
    found = records(await client.ask(r.PULL_MESSAGE, **a_pull()))
    assert [record.body for record in found] == [b"one", b"two", b"three"]
    assert [record.offset_message_id for record in found] == ids
    tagged = await client.ask(r.PULL_MESSAGE, **a_pull(subscription="b"))
    assert [record.body for record in records(tagged)] == [b"two"]


async def test_a_batch_without_messages_is_refused(client: RemotingClient) -> None:
    answer = await client.ask(r.SEND_BATCH_MESSAGE, b"", **a_send(m="true"))
    assert (answer.code, answer.remark) == (Code.MESSAGE_ILLEGAL, "the batch holds no message")


async def test_a_batch_that_cannot_be_read_stores_nothing(client: RemotingClient) -> None:
    answer = await client.ask(r.SEND_BATCH_MESSAGE, element(b"one") + b"junk", **a_send(m="true"))
    assert answer.code == Code.MESSAGE_ILLEGAL
    assert (await client.ask(r.PULL_MESSAGE, **a_pull())).code == Code.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"b": "no good name"}, Code.INVALID_PARAMETER),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, Code.NO_PERMISSION),
        ({"e": "99"}, Code.INVALID_PARAMETER),
        ({"e": "many"}, Code.SYSTEM_ERROR),
        ({"b": ""}, Code.SYSTEM_ERROR),
        ({"i": "TIMER_DELAY_MS\x01soon\x02"}, Code.MESSAGE_ILLEGAL),
        ({"i": "TIMER_DELAY_SEC\x01259201\x02DELAY\x010\x02"}, Code.MESSAGE_ILLEGAL),
        ({"i": "DELAY\x01x\x02TIMER_DELIVER_MS\x019999999999999\x02"}, Code.MESSAGE_ILLEGAL),
        ({"i": "X\x01" + "y" * 40_000}, Code.MESSAGE_ILLEGAL),
    ],
)  # fmt: skip
async def test_what_the_domain_refuses_is_answered_with_rocketmqs_code(
    client: RemotingClient, change: dict[str, Any], code: Code
) -> None:
    answer = await client.ask(r.SEND_MESSAGE_V2, b"x", **(a_send() | change))
    assert (answer.code, bool(answer.remark)) == (code, True)


async def test_a_delay_level_wins_over_a_timer(client: RemotingClient) -> None:
    await sent(client, b"later", i="DELAY\x0103\x02TIMER_DELAY_MS\x011000\x02")
    assert (await client.ask(r.PULL_MESSAGE, **a_pull())).code == Code.PULL_NOT_FOUND
    (waiting,) = records(await client.ask(r.PULL_MESSAGE, **a_pull("SCHEDULE_TOPIC_XXXX", 2)))
    assert (waiting.body, waiting.properties["REAL_TOPIC"]) == (b"later", "t")
    assert "TIMER_DELAY_MS" not in waiting.properties


async def test_a_message_for_a_time_waits_and_its_answer_has_a_handle_to_recall_it(
    broker: Broker, client: RemotingClient
) -> None:
    answer = await sent(client, b"soon", i="UNIQ_KEY\x01K1\x02TIMER_DELAY_MS\x0160000\x02")
    known = RecallHandle.decode(answer.ext["recallHandle"])
    assert (known.topic, known.broker_name, known.message_id) == ("t", broker.site.broker_name, "K1")
    assert "recallHandle" not in (await sent(client, b"now")).ext
    (waiting,) = records(await client.ask(r.PULL_MESSAGE, **a_pull("rmq_sys_wheel_timer", 0)))
    assert known.timestamp_ms == int(waiting.properties["TIMER_OUT_MS"]) + 1
    fields = {"topic": "t", "recallHandle": answer.ext["recallHandle"], "producerGroup": "pg"}
    assert (await client.ask(r.RECALL_MESSAGE, **fields)).ext["msgId"] == "K1"
    _, mark = records(await client.ask(r.PULL_MESSAGE, **a_pull("rmq_sys_wheel_timer", 0)))
    assert mark.properties["TIMER_DEL_UNIQKEY"] == "t+K1"
    assert mark.properties["TIMER_OUT_MS"] == waiting.properties["TIMER_OUT_MS"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"recallHandle": "junk"}, Code.ILLEGAL_OPERATION), ({"topic": "none"}, Code.TOPIC_NOT_EXIST),
        ({"recallHandle": ""}, Code.SYSTEM_ERROR),
    ],
)  # fmt: skip
async def test_a_recall_that_cannot_be_is_refused_with_rocketmqs_code(
    client: RemotingClient, change: dict[str, str], code: Code
) -> None:
    answer = await sent(client, b"soon", i="UNIQ_KEY\x01K1\x02TIMER_DELAY_MS\x0160000\x02")
    fields = {"topic": "t", "recallHandle": answer.ext["recallHandle"], "producerGroup": "pg"} | change
    assert (await client.ask(r.RECALL_MESSAGE, **fields)).code == code


async def test_a_request_that_is_not_built_is_answered_and_the_connection_goes_on(client: RemotingClient) -> None:
    answer = await client.ask(4711)
    assert (answer.code, answer.remark) == (3, " request type 4711 not supported")
    await sent(client)


async def test_a_oneway_send_is_stored_and_never_answered(client: RemotingClient) -> None:
    client.tell(r.SEND_MESSAGE_V2, b"one", **a_send())
    client.tell(r.SEND_MESSAGE_V2, b"two", **a_send(b="no good name"))
    assert (await sent(client, b"three")).ext["queueOffset"] == "1"


async def test_a_pull_waits_for_a_message_and_others_overtake_it(client: RemotingClient) -> None:
    await sent(client)
    wait = a_pull(queueOffset=1, sysFlag=r.HAS_SUBSCRIPTION | r.MAY_SUSPEND, suspendTimeoutMillis=9_000)
    pulling = asyncio.create_task(client.ask(r.PULL_MESSAGE, **wait))
    await sent(client, b"other", queue_id=1)
    assert not pulling.done()
    await sent(client, b"new")
    answer = await pulling
    assert (answer.code, [record.body for record in records(answer)]) == (0, [b"new"])


async def test_a_woken_pull_that_fails_is_answered_and_takes_no_other_with_it(
    broker: Broker, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sent(client)
    puller = broker.domain.paths.puller
    look = puller.look

    def look_or_fail(pull: Any, *, first: bool, last: bool) -> Any:
        if pull.group == "bad" and not first:
            raise ValueError("a fault of ours")
        return look(pull, first=first, last=last)

    monkeypatch.setattr(puller, "look", look_or_fail)
    wait = a_pull(queueOffset=1, sysFlag=r.HAS_SUBSCRIPTION | r.MAY_SUSPEND, suspendTimeoutMillis=60_000)
    pulls = [
        asyncio.create_task(client.ask(r.PULL_MESSAGE, **(wait | {"consumerGroup": group})))
        for group in ("good", "bad", "also-good")
    ]
    await until(lambda: broker.domain.long_poll.waiting == 3)
    await sent(client, b"new")
    good, bad, also_good = await asyncio.gather(*pulls)
    assert (bad.code, bad.remark) == (Code.SYSTEM_ERROR, "ValueError: a fault of ours")
    assert [record.body for each in (good, also_good) for record in records(each)] == [b"new", b"new"]


async def test_pulls_of_one_connection_over_the_bound_are_put_off_and_those_of_others_are_held(
    broker: Broker, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_door, "MOST_HELD", 2)
    await sent(client)
    wait = a_pull(queueOffset=1, sysFlag=r.HAS_SUBSCRIPTION | r.MAY_SUSPEND, suspendTimeoutMillis=60_000)
    held = [asyncio.create_task(client.ask(r.PULL_MESSAGE, **wait)) for _ in range(2)]
    await until(lambda: broker.domain.long_poll.waiting == 2)
    assert (await client.ask(r.PULL_MESSAGE, **wait)).code == Code.POLLING_FULL
    async with remoting(broker.address) as other:
        held.append(asyncio.create_task(other.ask(r.PULL_MESSAGE, **wait)))
        await until(lambda: broker.domain.long_poll.waiting == 3)
        await sent(client, b"new")
        assert [each.code for each in await asyncio.gather(*held)] == [0, 0, 0]
    held_again = asyncio.create_task(client.ask(r.PULL_MESSAGE, **(wait | {"queueOffset": 2})))
    await until(lambda: broker.domain.long_poll.waiting == 1)
    await sent(client, b"newer")
    assert (await held_again).code == 0


async def test_a_pull_that_waited_in_vain_says_where_to_go_on(client: RemotingClient) -> None:
    await sent(client)
    wait = a_pull(queueOffset=1, sysFlag=r.HAS_SUBSCRIPTION | r.MAY_SUSPEND, suspendTimeoutMillis=50)
    answer = await client.ask(r.PULL_MESSAGE, **wait)
    assert (answer.code, answer.ext["nextBeginOffset"], answer.ext["maxOffset"]) == (Code.PULL_NOT_FOUND, "1", "1")
    beyond = await client.ask(r.PULL_MESSAGE, **a_pull(queueOffset=9))
    assert (beyond.code, beyond.ext["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "1")


async def test_a_pull_without_a_filter_takes_the_one_of_the_groups_heartbeat(client: RemotingClient) -> None:
    await sent(client)
    bare = a_pull(sysFlag=0, subVersion=1)
    del bare["subscription"], bare["expressionType"]
    assert (await client.ask(r.PULL_MESSAGE, **bare)).code == Code.SUBSCRIPTION_NOT_EXIST
    assert (await client.ask(r.HEART_BEAT, a_heartbeat(subString="a"))).code == 0
    assert len(records(await client.ask(r.PULL_MESSAGE, **bare))) == 1
    newer = bare | {"subVersion": 2}
    assert (await client.ask(r.PULL_MESSAGE, **newer)).code == Code.SUBSCRIPTION_NOT_LATEST


async def test_members_are_told_who_comes_and_goes(broker: Broker, client: RemotingClient) -> None:
    nobody = await client.ask(r.GET_CONSUMER_LIST, consumerGroup="cg")
    assert (nobody.code, nobody.remark) == (1, "no consumer for this group, cg")
    beat = await client.ask(r.HEART_BEAT, a_heartbeat("c1"))
    assert (beat.ext["IS_SUPPORT_HEART_BEAT_V2"], beat.ext["IS_SUB_CHANGE"]) == ("false", "true")
    assert (await client.push()).ext == {"consumerGroup": "cg"}
    async with remoting(broker.address) as other:
        await other.ask(r.HEART_BEAT, a_heartbeat("c2"))
        assert (await client.push()).code == r.NOTIFY_CONSUMER_IDS_CHANGED.code
        listed = await client.ask(r.GET_CONSUMER_LIST, consumerGroup="cg")
        assert msgspec.json.decode(listed.body) == {"consumerIdList": ["c1", "c2"]}
    assert (await client.push()).oneway
    (consumer,) = [each for each in broker.domain.members.clients.connections("cg") if each.role == "consumer"]
    assert (consumer.client_id, consumer.version, consumer.language) == ("c1", "479", "JAVA")
    await client.ask(r.UNREGISTER_CLIENT, clientID="c1", consumerGroup="cg", producerGroup="pg")
    assert broker.domain.members.clients.connections() == []


def consumers_of(*groups: str) -> dict[str, Any]:
    beat = a_heartbeat()
    (consumer,) = beat["consumerDataSet"]
    return beat | {"consumerDataSet": [consumer | {"groupName": group} for group in groups]}


async def test_a_group_that_cannot_be_used_takes_no_other_of_its_heartbeat_with_it(
    broker: Broker, client: RemotingClient
) -> None:
    answer = await client.ask(r.HEART_BEAT, consumers_of("a", "no good name", "b", "x" * 100_000))
    assert (answer.code, answer.ext["IS_SUB_CHANGE"]) == (0, "true")
    assert "'no good name'" in (answer.remark or "")
    assert broker.domain.members.clients.groups.names() == ["a", "b"]
    await client.ask(r.PULL_MESSAGE, **a_pull("%RETRY%b"))


async def test_many_new_groups_of_one_heartbeat_are_made_with_one_write_and_no_more_than_256(
    broker: Broker, client: RemotingClient
) -> None:
    names = [f"g{number}" for number in range(300)]
    groups, topics = broker.domain.tables.groups, broker.domain.tables.topics
    before = groups.version.counter, topics.version.counter
    answer = await client.ask(r.HEART_BEAT, consumers_of(*names))
    assert (groups.version.counter, topics.version.counter) == (before[0] + 1, before[1] + 1)
    assert broker.domain.members.clients.groups.names() == names[:256]
    assert (answer.code, "'g256' is not made yet" in (answer.remark or "")) == (0, True)
    assert topics.get("%RETRY%g255") is not None
    again = await client.ask(r.HEART_BEAT, consumers_of(*names))
    assert (again.remark, broker.domain.members.clients.groups.names()) == (None, names)


async def test_a_heartbeat_of_more_groups_than_any_client_has_is_refused(
    broker: Broker, client: RemotingClient
) -> None:
    producers = [{"groupName": f"p{number}"} for number in range(1_025)]
    assert (await client.ask(r.HEART_BEAT, {"clientID": "c1", "producerDataSet": producers})).code == 1
    assert broker.domain.members.clients.connections() == []


async def test_offsets_are_stored_and_found(client: RemotingClient) -> None:
    await sent(client)
    at = {"consumerGroup": "cg", "topic": "t", "queueId": 0}
    await client.ask(r.HEART_BEAT, a_heartbeat())
    young = await client.ask(r.QUERY_CONSUMER_OFFSET, **at)
    unknown = await client.ask(r.QUERY_CONSUMER_OFFSET, **at, setZeroIfNotFound="false")
    assert (young.ext["offset"], unknown.code) == ("0", Code.QUERY_NOT_FOUND)
    client.tell(r.UPDATE_CONSUMER_OFFSET, **at, commitOffset=1)
    assert (await client.ask(r.QUERY_CONSUMER_OFFSET, **at)).ext["offset"] == "1"
    strange = await client.ask(r.UPDATE_CONSUMER_OFFSET, **(at | {"topic": "nowhere"}), commitOffset=1)
    assert strange.code == Code.TOPIC_NOT_EXIST
    pull = a_pull(sysFlag=r.HAS_SUBSCRIPTION | r.HAS_COMMIT, commitOffset=0, queueOffset=0)
    await client.ask(r.PULL_MESSAGE, **pull)
    assert (await client.ask(r.QUERY_CONSUMER_OFFSET, **at)).ext["offset"] == "0"


async def test_the_ends_of_a_queue_and_times_in_it_are_told(client: RemotingClient) -> None:
    await sent(client)
    queue = {"topic": "t", "queueId": 0}
    ends = [await client.ask(each, **queue) for each in (r.GET_MIN_OFFSET, r.GET_MAX_OFFSET)]
    assert [each.ext["offset"] for each in ends] == ["0", "1"]
    first = await client.ask(r.GET_EARLIEST_STORE_TIME, **queue)
    empty = await client.ask(r.GET_EARLIEST_STORE_TIME, topic="t", queueId=1)
    assert int(first.ext["timestamp"]) > 0
    assert empty.ext["timestamp"] == "-1"
    found = await client.ask(r.SEARCH_OFFSET, **queue, timestamp=0, boundaryType="lower")
    assert found.ext["offset"] == "0"


@pytest.mark.parametrize("queue", [{"topic": "nowhere", "queueId": 0}, {"topic": "t", "queueId": 99}])
async def test_a_queue_that_is_not_there_is_empty_to_tools_and_is_not_made(
    broker: Broker, client: RemotingClient, queue: dict[str, Any]
) -> None:
    await sent(client)
    asked = (r.GET_MIN_OFFSET, r.GET_MAX_OFFSET, r.SEARCH_OFFSET)
    ends = [await client.ask(each, **queue, timestamp=0) for each in asked]
    assert [(each.code, each.ext) for each in ends] == [(0, {"offset": "0"})] * 3
    assert (await client.ask(r.GET_EARLIEST_STORE_TIME, **queue)).ext == {"timestamp": "-1"}
    assert broker.domain.tables.topics.get("nowhere") is None


async def test_a_queue_is_locked_for_one_client_at_a_time(broker: Broker, client: RemotingClient) -> None:
    name = broker.site.broker_name
    queues = [{"topic": "t", "brokerName": name, "queueId": 0}, {"topic": "t", "brokerName": "else", "queueId": 1}]

    async def locked(client_id: str) -> list[Any]:
        body = {"consumerGroup": "og", "clientId": client_id, "mqSet": queues}
        answer = await client.ask(r.LOCK_BATCH, body)
        return list(msgspec.json.decode(answer.body)["lockOKMQSet"])

    assert await locked("c1") == queues[:1]
    assert await locked("c2") == []
    await client.ask(r.UNLOCK_BATCH, {"consumerGroup": "og", "clientId": "c1", "mqSet": queues})
    assert await locked("c2") == queues[:1]


async def test_a_client_that_locks_before_its_heartbeat_is_known_by_its_id(
    broker: Broker, client: RemotingClient
) -> None:
    """A consumer in order that lost its connection does."""
    await client.ask(r.LOCK_BATCH, {"consumerGroup": "og", "clientId": "c1", "mqSet": []})
    (connection,) = broker.remoting.connections
    assert connection.session.client_id == "c1"


async def test_a_heartbeat_without_a_client_id_is_refused(broker: Broker, client: RemotingClient) -> None:
    assert (await client.ask(r.HEART_BEAT, a_heartbeat(""))).code == Code.SYSTEM_ERROR
    assert broker.domain.members.clients.connections() == []


async def test_a_message_is_sent_to_the_topic_that_is_called_as_its_broker(
    broker: Broker, client: RemotingClient
) -> None:
    assert (await sent(client, topic=broker.site.broker_name)).ext["queueId"] == "0"


async def test_a_message_given_back_comes_again_by_the_retry_topic(client: RemotingClient) -> None:
    answer = await sent(client)
    await client.ask(r.HEART_BEAT, a_heartbeat())
    _, at = parse_offset_message_id(answer.ext["msgId"])
    assert (await client.ask(r.SEND_BACK, offset=at, group="nobody", delayLevel=-1)).code == 26
    assert (await client.ask(r.SEND_BACK, offset=at, group="cg", delayLevel=-1)).code == 0
    (dead,) = records(await client.ask(r.PULL_MESSAGE, **a_pull("%DLQ%cg")))
    assert (dead.body, dead.reconsume_times) == (b"x", 1)


async def test_a_retry_that_a_consumer_sends_itself_is_dead_after_its_last_try(client: RemotingClient) -> None:
    await client.ask(r.HEART_BEAT, a_heartbeat())
    await sent(client, b"again", topic="%RETRY%cg", j=1, l=1)
    await sent(client, b"enough", topic="%RETRY%cg", j=2, l=1)
    (retry,) = records(await client.ask(r.PULL_MESSAGE, **a_pull("%RETRY%cg")))
    (dead,) = records(await client.ask(r.PULL_MESSAGE, **a_pull("%DLQ%cg")))
    assert (retry.body, retry.properties["MAX_RECONSUME_TIMES"], dead.body) == (b"again", "1", b"enough")


async def test_a_transaction_is_ended_by_its_producer(client: RemotingClient) -> None:
    properties = "UNIQ_KEY\x01K1\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02"
    answer = await sent(client, b"half", i=properties, f=4)
    _, at = parse_offset_message_id(answer.ext["msgId"])
    end = {"producerGroup": "pg", "tranStateTableOffset": answer.ext["queueOffset"], "commitLogOffset": at}
    client.tell(r.END_TRANSACTION, **end, commitOrRollback=8, fromTransactionCheck="false", msgId="K1")
    (record,) = records(await client.ask(r.PULL_MESSAGE, **a_pull()))
    assert (record.topic, record.body) == ("t", b"half")


async def test_a_producer_is_asked_about_a_transaction_that_it_has_not_ended(client: RemotingClient) -> None:
    await client.ask(r.HEART_BEAT, {"clientID": "p", "producerDataSet": [{"groupName": "pg"}]})
    properties = "UNIQ_KEY\x01K1\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02"
    await sent(client, b"half", i=properties, g=time.time_ns() // 1_000_000)
    asked = await client.push()
    assert (asked.code, asked.oneway, asked.ext["msgId"], asked.ext["topic"]) == (39, True, "K1", "t")
    (half,) = records(asked)
    assert (half.topic, half.body, half.properties["PGROUP"]) == ("t", b"half", "pg")
    assert HALF_TOPIC not in asked.ext.values()


async def test_a_reply_is_pushed_to_the_client_that_asked(broker: Broker, client: RemotingClient) -> None:
    await client.ask(r.HEART_BEAT, {"clientID": "asker", "producerDataSet": [{"groupName": "pg"}]})
    properties = "CORRELATION_ID\x017\x02REPLY_TO_CLIENT\x01asker\x02MSG_TYPE\x01reply\x02"
    topic = f"{broker.site.cluster}_REPLY_TOPIC"
    async with remoting(broker.address) as replier:
        answer = await replier.ask(r.SEND_REPLY_MESSAGE_V2, b"reply", **a_send(topic, i=properties, a="repliers"))
        assert answer.code == 0, answer.remark
        lost = properties.replace("asker", "gone")
        assert (await replier.ask(r.SEND_REPLY_MESSAGE_V2, b"reply", **a_send(topic, i=lost))).code == 1
    pushed = await client.push()
    assert (pushed.code, pushed.body, pushed.oneway) == (326, b"reply", False)
    assert "CORRELATION_ID\x017\x02" in pushed.ext["properties"]
    assert pushed.ext["producerGroup"] == "repliers"


async def test_a_filter_is_checked_before_a_consumer_starts(client: RemotingClient) -> None:
    sql = {"topic": "t", "subString": "a > 1", "expressionType": "SQL92", "subVersion": 1}
    body = {"clientId": "c1", "group": "cg", "namespace": "", "subscriptionData": sql}
    refused = await client.ask(r.CHECK_CLIENT_CONFIG, body)
    assert refused.code == Code.SYSTEM_ERROR
    assert (await client.ask(r.CHECK_CLIENT_CONFIG, body | {"subscriptionData": None})).code == 0


async def test_messages_are_found_by_key(client: RemotingClient) -> None:
    await sent(client, i="UNIQ_KEY\x01K1\x02KEYS\x01order7\x02")
    question = {"topic": "t", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
    (record,) = records(await client.ask(r.QUERY_MESSAGE, key="order7", **question))
    assert record.body == b"x"
    unique = await client.ask(r.QUERY_MESSAGE, key="K1", _UNIQUE_KEY_QUERY="true", **question)
    assert len(records(unique)) == 1
    assert (await client.ask(r.QUERY_MESSAGE, key="none", **question)).code == Code.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\x00\x00\x05\x00\x00\x00\x01x",
        (MAX_FRAME_BYTES + 1).to_bytes(4) + b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x05\x00\xff\xff\xffx",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\x05",
    ],
    ids=["no header", "too large", "a header that does not fit", "http", "tls"],
)
async def test_bytes_that_are_no_request_end_their_connection_and_no_other(
    broker: Broker, client: RemotingClient, junk: bytes
) -> None:
    async with remoting(broker.address) as stranger:
        stranger.writer.write(junk)
        async with asyncio.timeout(10):
            await stranger.closed.wait()
    await sent(client)


async def test_a_client_that_does_not_read_is_not_read_from(broker: Broker, client: RemotingClient) -> None:
    for _ in range(4):
        await sent(client, bytes(900_000), i="")
    _, writer = await asyncio.open_connection(*broker.address.split(":"))
    pull = Command(code=11, ext={key: str(value) for key, value in a_pull(maxMsgBytes=4 << 20).items()})
    frame = encode(pull)
    writer.write(frame * 2_000)
    (connection,) = await until(lambda: [each for each in broker.remoting.connections if each.full])
    assert connection.address
    await sent(client)
    writer.transport.abort()
    await until(lambda: len(broker.remoting.connections) == 1)


async def test_a_closed_broker_answers_held_pulls_and_ends_its_connections(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, remoting(broker.address) as client:
        await sent(client)
        wait = a_pull(queueOffset=1, sysFlag=r.HAS_SUBSCRIPTION | r.MAY_SUSPEND, suspendTimeoutMillis=60_000)
        pulling = asyncio.create_task(client.ask(r.PULL_MESSAGE, **wait))
        await until(lambda: broker.domain.long_poll.waiting)
        await broker.close()
        assert (await pulling).code == Code.PULL_NOT_FOUND
        await client.closed.wait()


async def test_a_connection_that_is_idle_is_ended_and_its_member_leaves(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "IDLE_S", 0.3)
    async with remoting(broker.address) as idle:
        await idle.ask(r.HEART_BEAT, a_heartbeat())
        assert broker.domain.members.clients.groups.members("cg") == ["c1"]
        async with asyncio.timeout(10):
            await idle.closed.wait()
        await until(lambda: not broker.domain.members.clients.groups.members("cg"))


async def test_a_handler_that_fails_is_answered_as_rocketmq_answers_and_the_next_request_is_served(
    broker: Broker, client: RemotingClient
) -> None:
    def fails(*_: object) -> Command:
        raise RuntimeError("a fault of ours")

    broker.remoting.handlers = {**broker.remoting.handlers, r.GET_MAX_OFFSET.code: fails}
    answer = await client.ask(r.GET_MAX_OFFSET, topic="t", queueId=0)
    assert (answer.code, answer.remark) == (1, "RuntimeError: a fault of ours")
    await sent(client)


@pytest.mark.parametrize(
    ("body", "remark"),
    [(bytes(MAX_FRAME_BYTES), "ask for less at a time"), ("\ud800", "TypeError")],
    ids=["too large", "no bytes"],
)
async def test_an_answer_that_no_frame_can_hold_is_an_error_and_the_connection_goes_on(
    broker: Broker, client: RemotingClient, body: Any, remark: str
) -> None:
    def answers(_: object, command: Command) -> Command:
        return answer(command, body=body)

    broker.remoting.handlers = {**broker.remoting.handlers, r.GET_MAX_OFFSET.code: answers}
    told = await client.ask(r.GET_MAX_OFFSET, topic="t", queueId=0)
    assert (told.code, remark in (told.remark or "")) == (Code.SYSTEM_ERROR, True)
    await sent(client)


@pytest.mark.parametrize(("each_s", "count", "turn"), [(0, 1_000, 200), (0.03, 5, 1)], ids=["many", "slow"])
async def test_many_requests_at_once_leave_others_their_turn(
    broker: Broker, client: RemotingClient, monkeypatch: pytest.MonkeyPatch, each_s: float, count: int, turn: int
) -> None:
    monkeypatch.setattr(door, "MOST_TURN_S", 0.02 if each_s else 60)
    await sent(client)
    handled, turns = 0, list[int]()

    def counts(_: object, command: Command) -> None:
        nonlocal handled
        handled += 1
        time.sleep(each_s)
        if handled == 1:
            asyncio.get_running_loop().call_soon(lambda: turns.append(handled))

    broker.remoting.handlers = {**broker.remoting.handlers, r.GET_MAX_OFFSET.code: counts}
    (connection,) = broker.remoting.connections
    connection.data_received(encode(Command(code=r.GET_MAX_OFFSET.code)) * count)
    await until(lambda: handled == count)
    assert turns == [turn]
    await sent(client)
