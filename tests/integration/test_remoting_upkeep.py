"""The upkeep of a broker by RocketMQ's tools: clean-ups, queue entries, members' offsets, replication, transactions."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_wire import running, until
from consumer_cluster import servers
from dejamq import ReceivedMessage
from dejamq_broker.app import Broker
from dejamq_broker.store import StoreConfig
from dejamq_proto.names import GIVEN_UP_TOPIC, HALF_TOPIC
from dejamq_proto.records.record import decode, java_hash
from dejamq_proto.remoting import requests as r
from dejamq_proto.remoting.header import Command
from ha_pair import a_pair
from remoting_wire import RemotingClient, a_heartbeat, a_pull, a_send, remoting

HALF = "UNIQ_KEY\x01K1\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02"


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


# Clean-ups.


@asynccontextmanager
async def expiring(directory: Path) -> AsyncIterator[tuple[Broker, RemotingClient]]:
    """Messages expire at once, and are deleted at another time of the day than now."""
    store = StoreConfig(
        mapped_file_size_commit_log=64 << 10, mapped_file_size_consume_queue=1000, max_hash_slot_num=997,
        max_index_num=4000, disk_check_enable=False, file_reserved_time_hours=1, file_reserved_hour_ms=1,
        delete_when=f"{(time.localtime().tm_hour + 12) % 24:02}", clean_resource_interval_ms=10,
        clean_resource_delay_ms=1, disk_check_delay_ms=1, delete_commit_log_files_interval_ms=1,
    )  # fmt: skip
    async with running(directory, store=store) as broker, remoting(broker.address) as client:
        for _ in range(150):
            await done(client, r.SEND_MESSAGE_V2, b"." * 1000, **a_send())
        yield broker, client


async def test_expired_files_of_the_log_go_on_demand_and_queues_follow(tmp_path: Path) -> None:
    async with expiring(tmp_path) as (broker, client):
        first = tmp_path / "consumequeue" / "t" / "0" / f"{0:020}"
        await until(first.exists)
        await done(client, r.DELETE_EXPIRED_LOG)
        await until(lambda: not first.exists())
        assert broker.domain.store.log_min > 0
        low = (await done(client, r.GET_MIN_OFFSET, topic="t", queueId=0)).ext["offset"]
        assert int(low) >= 50


async def test_files_of_a_queue_whose_messages_have_expired_go_on_demand(tmp_path: Path) -> None:
    async with expiring(tmp_path) as (_, client):
        first = tmp_path / "consumequeue" / "t" / "0" / f"{0:020}"
        await until(first.exists)
        entries = first.read_bytes()
        await done(client, r.DELETE_EXPIRED_LOG)
        await until(lambda: not first.exists())
        first.write_bytes(entries)
        await done(client, r.CLEAN_EXPIRED_QUEUES)
        await until(lambda: not first.exists())


async def test_queues_of_topics_that_are_not_in_the_table_go_on_demand(broker: Broker, client: RemotingClient) -> None:
    for topic in ("lost", "kept"):
        await done(client, r.SEND_MESSAGE_V2, b"x", **a_send(topic))
    await done(client, r.SEND_MESSAGE_V2, b"x", **a_send("%RETRY%cg"))
    await done(client, r.SEND_MESSAGE_V2, b"half", **a_send("kept", i=HALF, f=4))
    topics = broker.domain.tables.topics
    without = {each.topic_name: each for each in topics if each.topic_name not in ("lost", HALF_TOPIC)}
    topics.replace(without, topics.version)
    await done(client, r.CLEAN_UNUSED_TOPICS)
    assert {topic for topic, _ in broker.domain.store.queues()} == {"kept", "%RETRY%cg", HALF_TOPIC}


async def test_a_slave_keeps_queues_of_topics_that_it_has_not_heard_of_yet(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave):
        async with remoting(master.address) as client:
            await done(client, r.SEND_MESSAGE_V2, b"x", **a_send())
        await until(lambda: slave.domain.store.queues())
        topics = slave.domain.tables.topics
        topics.replace({each.topic_name: each for each in topics if each.topic_name != "t"}, topics.version)
        async with remoting(slave.address) as client:
            await done(client, r.CLEAN_UNUSED_TOPICS)
        assert slave.domain.store.queues() == [("t", 0)]


# Queues, entry by entry.


async def entries(client: RemotingClient, **ext: Any) -> Any:
    return await told(client, r.QUERY_QUEUE_ENTRIES, **({"topic": "t", "queueId": 0, "index": 0, "count": 9} | ext))


async def test_entries_of_a_queue_are_told_with_place_size_and_tags(client: RemotingClient) -> None:
    for _ in range(3):
        await done(client, r.SEND_MESSAGE_V2, b"x", **a_send())
    found = await entries(client, index=1)
    assert (found["minQueueIndex"], found["maxQueueIndex"], set(found)) == (
        0, 3, {"minQueueIndex", "maxQueueIndex", "queueData"},
    )  # fmt: skip
    first, second = found["queueData"]
    size = first["physicSize"]
    assert first == {"eval": False, "physicOffset": size, "physicSize": size, "tagsCode": java_hash("a")}
    assert second["physicOffset"] == 2 * size
    assert len((await entries(client, count=1))["queueData"]) == 1
    assert (await entries(client, count=-1))["queueData"] == []


async def test_entries_are_told_with_the_subscription_of_a_group(client: RemotingClient) -> None:
    await done(client, r.SEND_MESSAGE_V2, b"x", **a_send())
    assert (await entries(client, consumerGroup="cg"))["filterData"] == "cg@t is not online!"
    await done(client, r.HEART_BEAT, a_heartbeat(subString="a || b"))
    found = await entries(client, consumerGroup="cg")
    assert found["filterData"] == "null"
    subscription = found["subscriptionData"]
    assert (subscription["tagsSet"], subscription["codeSet"]) == (["a", "b"], [java_hash("a"), java_hash("b")])


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"index": 1}, 0, "Index 1 of 0@t is not exist!"),
        ({"index": -1}, 0, "Index -1 of 0@t is not exist!"),
        ({"index": (1 << 63) - 1}, 0, "is not exist!"),
        ({"topic": "none"}, 1, "0@none is not exist!"),
        ({"queueId": -1}, 1, "-1@t is not exist!"),
        ({"queueId": "x"}, 1, "QUERY_CONSUME_QUEUE: a field of the request is wrong or missing"),
        ({"count": 1 << 31}, 1, "QUERY_CONSUME_QUEUE: a field of the request is wrong or missing"),
        ({"index": ""}, 1, "QUERY_CONSUME_QUEUE: a field of the request is wrong or missing"),
    ],
)
async def test_entries_that_are_not_there_are_answered_as_by_rocketmq(
    client: RemotingClient, change: dict[str, Any], code: int, remark: str
) -> None:
    await done(client, r.SEND_MESSAGE_V2, b"x", **a_send())
    asked = {"topic": "t", "queueId": 0, "index": 0, "count": 1} | change
    answer = await client.ask(r.QUERY_QUEUE_ENTRIES, **asked)
    assert (answer.code, remark in (answer.remark or ""), answer.body) == (code, True, b""), answer.remark


async def test_one_answer_has_a_thousand_entries_at_most(client: RemotingClient) -> None:
    await asyncio.gather(*(client.ask(r.SEND_MESSAGE_V2, b"x", **a_send()) for _ in range(1010)))
    assert len((await entries(client, count=(1 << 31) - 1))["queueData"]) == 1000


# Offsets of members.

PLACE = {"topic": "t", "group": "cg"}
OFFSETS = b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":1,"topic":"t"}:5}}'


@asynccontextmanager
async def a_member(broker: Broker, client_id: str) -> AsyncIterator[RemotingClient]:
    async with remoting(broker.address) as member:
        await done(member, r.HEART_BEAT, a_heartbeat(client_id))
        yield member


async def asked(member: RemotingClient) -> Command:
    """The question that reached a member."""
    while (command := await member.push()).code != r.GET_OFFSETS_OF_CLIENT.code:
        assert command.code == r.NOTIFY_CONSUMER_IDS_CHANGED.code
    assert (command.oneway, command.ext) == (False, PLACE)
    return command


async def test_members_are_asked_for_their_offsets_and_those_that_answer_are_told(
    broker: Broker, client: RemotingClient
) -> None:
    async with a_member(broker, "c1") as one, a_member(broker, "c2") as other, a_member(broker, "c3") as junk:
        asking = asyncio.create_task(client.ask(r.GET_OFFSETS_OF_MEMBERS, **PLACE))
        one.reply(await asked(one), OFFSETS)
        other.reply(await asked(other), code=1, remark="not now")
        junk.reply(await asked(junk), b'{"messageQueueTable":{{"queueId":[[')
        told = await asking
    table = b'{"c1":{{"brokerName":"broker-a","queueId":1,"topic":"t"}:5}}'
    assert (told.code, told.body) == (0, b'{"consumerTable":' + table + b',"messageQueueTable":{}}')


async def test_one_member_alone_is_asked_by_its_client_id(broker: Broker, client: RemotingClient) -> None:
    async with a_member(broker, "c1"), a_member(broker, "c2") as other:
        asking = asyncio.create_task(client.ask(r.GET_OFFSETS_OF_MEMBERS, **PLACE, clientAddr="c2"))
        other.reply(await asked(other), OFFSETS)
        assert (await asking).body.startswith(b'{"consumerTable":{"c2":')
        nobody = await done(client, r.GET_OFFSETS_OF_MEMBERS, **PLACE, clientAddr="c9")
        assert nobody.body == b'{"consumerTable":{},"messageQueueTable":{}}'


@pytest.mark.parametrize(
    "answer",
    [b"", b"junk", b"\xff\xfe", b"[" * 100_000, b'{"messageQueueTable":{"a":1}}', b'{"messageQueueTable":{{}:1}}',
     b'{"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"t"}:"x"}}',
     b'{"messageQueueTable":' + b'{"a":' * 100_000],
    ids=["nothing", "junk", "no text", "deep", "no queue", "empty queue", "no offset", "deep table"],
)  # fmt: skip
async def test_a_member_that_answers_something_else_is_left_out(
    broker: Broker, client: RemotingClient, answer: bytes
) -> None:
    async with a_member(broker, "c1") as member:
        asking = asyncio.create_task(client.ask(r.GET_OFFSETS_OF_MEMBERS, **PLACE))
        member.reply(await asked(member), answer)
        told = await asking
    assert (told.code, told.body) == (0, b'{"consumerTable":{},"messageQueueTable":{}}')


async def test_a_member_of_our_own_sdk_answers_no_tool_and_is_left_out_beside_others(tmp_path: Path) -> None:
    async def handle(_: ReceivedMessage) -> None:
        pass

    async with servers(tmp_path) as here, remoting(here.address) as client:
        await here.send("0")
        consumer = here.consumer()
        consumer.subscribe("orders", handle)
        async with consumer:
            await until(lambda: consumer.assignment)
            question = {"topic": "orders", "group": "g"}
            refused = await client.ask(r.GET_OFFSETS_OF_MEMBERS, **question)
            assert (refused.code, "one of dejamq's" in (refused.remark or "")) == (1, True), refused.remark
            async with remoting(here.address) as member:
                await done(member, r.HEART_BEAT, a_heartbeat("zz", "g", "orders"))
                asking = asyncio.create_task(client.ask(r.GET_OFFSETS_OF_MEMBERS, **question))
                while (pushed := await member.push()).code != r.GET_OFFSETS_OF_CLIENT.code:
                    pass
                member.reply(pushed, OFFSETS)
                told = await asking
            assert (told.code, told.body.startswith(b'{"consumerTable":{"zz":{{"brokerName"')) == (0, True), told


async def test_a_group_without_members_is_refused(client: RemotingClient) -> None:
    refused = await client.ask(r.GET_OFFSETS_OF_MEMBERS, **PLACE)
    assert (refused.code, refused.remark) == (1, "No Any Consumer online in the consumer group: [cg]")
    assert (await client.ask(r.GET_OFFSETS_OF_MEMBERS, topic="t")).code == 1


# Replication.


async def test_a_master_alone_has_no_slaves_and_tells_its_end(broker: Broker, client: RemotingClient) -> None:
    await done(client, r.SEND_MESSAGE_V2, b"x", **a_send())
    status = await told(client, r.GET_HA_STATUS)
    assert (status["master"], status["inSyncSlaveNums"], status["haConnectionInfo"]) == (True, 0, [])
    assert status["masterCommitLogMaxOffset"] == broker.domain.store.log_max


async def test_master_and_slave_tell_how_far_the_copy_is(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave), remoting(master.address) as client:
        await done(client, r.SEND_MESSAGE_V2, b"x", **a_send())
        end = master.domain.store.log_max
        await until(lambda: slave.domain.store.log_max == end)

        async def acknowledged() -> Any:
            (found,) = (await told(client, r.GET_HA_STATUS))["haConnectionInfo"]
            return found if found["diff"] == 0 else None

        assert await until(acknowledged) == {
            "addr": slave.address, "diff": 0, "inSync": True, "slaveAckOffset": end, "transferFromWhere": end,
            "transferredByteInSecond": 0,
        }  # fmt: skip
        assert (await told(client, r.GET_HA_STATUS))["inSyncSlaveNums"] == 1
        async with remoting(slave.address) as other:
            status = await told(other, r.GET_HA_STATUS)
        copy = status["haClientRuntimeInfo"]
        assert (status["master"], copy["masterAddr"], copy["maxOffset"]) == (False, master.address, end)
        assert copy["lastReadTimestamp"] > 0


# Transactions that were given up.


async def test_a_transaction_that_was_given_up_is_asked_about_again(tmp_path: Path) -> None:
    settings = {"transaction_timeout_ms": 50, "transaction_check_interval_ms": 50, "transaction_check_max": 1}
    async with running(tmp_path, **settings) as broker, remoting(broker.address) as client:
        await done(client, r.HEART_BEAT, {"clientID": "p", "producerDataSet": [{"groupName": "pg"}]})
        await done(client, r.SEND_MESSAGE_V2, b"half", **a_send(i=HALF, g=time.time_ns() // 1_000_000))
        assert (await client.push()).code == r.CHECK_TRANSACTION_STATE.code

        async def given_up() -> Any:
            answer = await client.ask(r.PULL_MESSAGE, **a_pull(GIVEN_UP_TOPIC, consumerGroup="TOOLS_CONSUMER"))
            return decode(answer.body) if answer.body else None

        record = await until(given_up)
        assert client.pushed.empty()
        await done(client, r.RESUME_HALF_MESSAGE, msgId=record.offset_message_id, topic=GIVEN_UP_TOPIC)
        check = await client.push()
        assert (check.code, check.ext["msgId"], decode(check.body).body) == (39, "K1", b"half")
        end = {"tranStateTableOffset": check.ext["tranStateTableOffset"]}
        end |= {"commitLogOffset": check.ext["commitLogOffset"], "producerGroup": "pg"}
        client.tell(r.END_TRANSACTION, **end, commitOrRollback=8, fromTransactionCheck="true", msgId="K1")
        committed = await client.ask(r.PULL_MESSAGE, **a_pull())
        assert decode(committed.body).body == b"half"


async def test_a_message_that_was_not_given_up_is_not_made_a_half_message(client: RemotingClient) -> None:
    sent = await done(client, r.SEND_MESSAGE_V2, b"x", **a_send())
    half = await done(client, r.SEND_MESSAGE_V2, b"x", **a_send(i=HALF, f=4))
    ids = [sent.ext["msgId"], half.ext["msgId"], sent.ext["msgId"][:16] + "7" * 16, "zz", "é" * 16, ""]
    codes = [(await client.ask(r.RESUME_HALF_MESSAGE, msgId=one)).code for one in ids]
    assert codes == [1] * len(ids)
    assert (await client.ask(r.RESUME_HALF_MESSAGE)).code == 1


# Numbers of the broker.


async def test_numbers_have_the_forms_that_rocketmqs_exporter_reads(client: RemotingClient) -> None:
    """It takes whole numbers of ms, and stops at the first key that it does not find."""
    await done(client, r.SEND_MESSAGE_V2, b"x", **a_send())
    await done(client, r.PULL_MESSAGE, **a_pull())
    values = (await told(client, r.GET_RUNTIME_INFO))["table"]
    whole = [
        "bootTimestamp", "brokerVersion", "commitLogMaxOffset", "commitLogMinOffset", "dispatchBehindBytes",
        "dispatchMaxBuffer", "earliestMessageTimeStamp", "getMessageEntireTimeMax", "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow", "msgGetTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow",
        "msgPutTotalYesterdayMorning", "pageCacheLockTimeMills", "pullThreadPoolQueueCapacity",
        "pullThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize", "putMessageEntireTimeMax",
        "putMessageSizeTotal", "putMessageTimesTotal", "queryThreadPoolQueueCapacity",
        "queryThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize", "remainTransientStoreBufferNumbs",
        "sendThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills", "sendThreadPoolQueueSize",
        "startAcceptSendRequestTimeStamp",
    ]  # fmt: skip
    assert {name for name in whole if not values.get(name, "").lstrip("-").isdigit()} == set()
    for name in ("putTps", "getMissTps", "getTransferedTps", "getTotalTps", "getFoundTps"):
        assert len([float(rate) for rate in values[name].split()]) == 3
    for name in ("commitLogDiskRatio", "consumeQueueDiskRatio", "putMessageAverageSize", "putLatency99"):
        assert float(values[name]) >= 0
    size, unit = values["remainHowManyDataToFlush"].split(" ")
    assert (size.isdigit(), unit) == (True, "B")
    assert all(one.partition(":")[2].isdigit() for one in values["putMessageDistributeTime"].split(" "))
