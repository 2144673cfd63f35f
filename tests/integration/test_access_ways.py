"""Ways round access control that somebody with a right to something else could try."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from access_asking import MINE, ROOT, asked, half, owning, v2_call
from access_site import ACCOUNTS, GROUP, TOPIC, Site, header_for
from broker_wire import a_run, until
from dejamq import Message, Producer
from dejamq_broker.deferred.transactions.unended import unended
from dejamq_broker.members.commands import TellRunning
from dejamq_broker.tables.offsets import Asker
from dejamq_proto import pop_pb2
from dejamq_proto.account import now_ms
from dejamq_proto.codes import Code
from dejamq_proto.names import HALF_TOPIC, PROPERTY_REAL_TOPIC
from dejamq_proto.pop_pb2_grpc import PopStub
from dejamq_proto.records.record import Record, encode, encode_properties
from dejamq_proto.remoting import requests
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.wire.calling import dial
from dejamq_proto.wire.messages import SendRunResult


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with owning(tmp_path) as found:
        yield found


def stored(site: Site, topic: str) -> int:
    store = site.broker.domain.store
    config = site.broker.domain.tables.topics.get(topic)
    return sum(store.max_offset(topic, n) for n in range(config.read_queue_nums)) if config else 0


# Transactions.


async def test_a_transaction_of_a_foreign_topic_is_not_ended_by_who_owns_a_topic_of_its_groups_name(
    site: Site,
) -> None:
    """RocketMQ 5's clients name the topic for the group. ``mine`` is a producer group of somebody else here."""
    key = "C00002020B523FDD08A68B1995EE0009"
    await half(site, MINE, key)
    end = pb.EndTransactionRequest(topic=pb.Resource(name=MINE), transaction_id=key, resolution=pb.COMMIT)
    answer = await v2_call(site, ACCOUNTS["fitting"], "EndTransaction", end)
    assert answer.status.code != pb.OK
    assert stored(site, TOPIC) == 1


async def test_a_transaction_is_not_touched_by_one_of_a_foreign_topic_that_took_its_id(tmp_path: Path) -> None:
    """An id is no secret: it counts on from that of the message before."""
    key = "C00002020B523FDD08A68B1995EE0011"
    async with owning(tmp_path, transaction_finish_once=True) as site:
        for account, topic in (("root", TOPIC), ("fitting", MINE)):
            await half(site, topic, key, account, topic)  # RocketMQ 5's clients name the topic for the group
        for account, topic in (("fitting", MINE), ("root", TOPIC)):
            end = pb.EndTransactionRequest(topic=pb.Resource(name=topic), transaction_id=key, resolution=pb.COMMIT)
            answer = await v2_call(site, ACCOUNTS[account], "EndTransaction", end)
            assert answer.status.code == pb.OK, answer
        assert (stored(site, TOPIC), stored(site, MINE)) == (2, 1)


BODY_AT = 88
"""Bytes of a record before its body."""


async def test_a_body_that_looks_like_a_half_message_ends_no_transaction(site: Site) -> None:
    """It names a topic of its sender's, and the place of somebody else's half message in the queue."""
    foreign = await half(site, "makers", "C00002020B523FDD08A68B1995EE0013")
    place, queue_offset = site.broker.domain.store.log_max + BODY_AT, int(foreign.ext["queueOffset"])
    properties = {"REAL_TOPIC": MINE, "REAL_QID": "0", "PGROUP": "p", "UNIQ_KEY": "K", "TRAN_MSG": "true"}
    body = encode(Record(
        HALF_TOPIC, 0, b"forged", encode_properties(properties), born_timestamp_ms=now_ms(), queue_offset=queue_offset,
        log_offset=place,
    ))  # fmt: skip
    fields = header_for(requests.SendMessage, site) | {"topic": MINE, "batch": "false", "bornTimestamp": "1"}
    sent = await asked(site, ACCOUNTS["fitting"], requests.SEND_MESSAGE.code, body, **fields)
    assert int(sent.ext["msgId"][-16:], 16) == place - BODY_AT
    assert site.broker.domain.store.record_at(place), "it looks like one"
    ended = await asked(
        site, ACCOUNTS["fitting"], requests.END_TRANSACTION.code, producerGroup="p", commitOrRollback=12,
        tranStateTableOffset=queue_offset, commitLogOffset=place,
    )  # fmt: skip
    assert ended.code != Code.SUCCESS
    assert (TOPIC, "C00002020B523FDD08A68B1995EE0013") in unended(site.broker.domain.paths.transactions.queues)


async def test_a_transaction_is_not_ended_by_the_place_of_ones_own(site: Site) -> None:
    foreign = await half(site, "makers", "C00002020B523FDD08A68B1995EE0010")
    place = int(foreign.ext["msgId"][-16:], 16)
    answer = await asked(
        site, ACCOUNTS["fitting"], requests.END_TRANSACTION.code, producerGroup="makers",
        tranStateTableOffset=foreign.ext["queueOffset"], commitLogOffset=place, commitOrRollback=8,
    )  # fmt: skip
    assert answer.code == Code.NO_PERMISSION
    assert stored(site, TOPIC) == 1


# Properties and records that name another topic than the request does.


async def test_a_property_that_names_another_topic_brings_no_message_there(site: Site) -> None:
    asks = ("DELAY\x011", f"TIMER_DELIVER_MS\x01{now_ms() + 2_000}", "TRAN_MSG\x01true", "", "TIMER_OUT_MS\x0110")
    for number, asked_for in enumerate(asks):
        await forged(site, asked_for, f"FORGED{number}")
    await until(lambda: stored(site, MINE) == len(asks))
    assert stored(site, TOPIC) == 1


async def forged(site: Site, asks: str, key: str) -> None:
    named = f"{PROPERTY_REAL_TOPIC}\x01{TOPIC}\x02REAL_QID\x010\x02RETRY_TOPIC\x01{TOPIC}\x02"
    fields = header_for(requests.SendMessage, site) | {
        "topic": MINE, "producerGroup": "p", "properties": f"{named}{asks}\x02UNIQ_KEY\x01{key}\x02PGROUP\x01p",
        "batch": "false", "bornTimestamp": str(now_ms()), "queueId": "0", "reconsumeTimes": "0",
        "sysFlag": "4" if "TRAN" in asks else "0",
    }  # fmt: skip
    sent = await asked(site, ACCOUNTS["fitting"], requests.SEND_MESSAGE.code, b"forged", **fields)
    assert sent.code == Code.SUCCESS, sent.remark
    if "TRAN" in asks:
        ended = await asked(
            site, ACCOUNTS["fitting"], requests.END_TRANSACTION.code, producerGroup="p", commitOrRollback=8,
            tranStateTableOffset=sent.ext["queueOffset"], commitLogOffset=int(sent.ext["msgId"][-16:], 16),
        )  # fmt: skip
        assert ended.code == Code.SUCCESS, ended.remark


async def test_records_of_a_run_are_of_the_topics_that_it_names(site: Site) -> None:
    run = a_run(TOPIC, [b"forged"])
    run.queues[:] = [(MINE, 0)]
    channel = dial(site.address, account=ACCOUNTS["fitting"])
    stream: Any = channel.stream_stream("/dejamq.v1.Send/SendStream")()  # type: ignore[call-arg]
    await stream.write(run.encode())
    assert SendRunResult.decode(await stream.read()).code == Code.MESSAGE_ILLEGAL
    await channel.close(None)
    assert stored(site, TOPIC) == 1


# Handles.


async def test_a_recall_handle_of_a_foreign_topic_recalls_nothing(site: Site) -> None:
    async with Producer("makers", namesrv=site.address, **ROOT) as producer:
        sent = await producer.send(Message(TOPIC, b"later", deliver_at_ms=now_ms() + 60_000))
    assert sent.recall_handle
    recall = pb.RecallMessageRequest(topic=pb.Resource(name=MINE), recall_handle=sent.recall_handle)
    answer = await v2_call(site, ACCOUNTS["fitting"], "RecallMessage", recall)
    assert answer.status.code != pb.OK
    told = await asked(
        site, ACCOUNTS["fitting"], requests.RECALL_MESSAGE.code, producerGroup="p", topic=MINE,
        recallHandle=sent.recall_handle,
    )  # fmt: skip
    assert told.code != Code.SUCCESS
    direct = await asked(
        site, ACCOUNTS["fitting"], requests.RECALL_MESSAGE.code, producerGroup="p", topic=TOPIC,
        recallHandle=sent.recall_handle,
    )  # fmt: skip
    assert direct.code == Code.NO_PERMISSION


async def test_a_receipt_handle_acknowledges_nothing_of_a_foreign_group(site: Site) -> None:
    asker = PopStub(dial(site.address, account=ACCOUNTS["root"]))
    wanted = pop_pb2.ReceiveRequest(group=GROUP, topic=TOPIC, max_messages=1, invisible_ms=60_000, from_min=True)
    batch = (await asker.Receive(wanted)).batches[0]
    handle = batch.handles[0]
    topic, group = pb.Resource(name=MINE), pb.Resource(name="mine-group")
    for name, request in (
        ("AckMessage", pb.AckMessageRequest(
            group=group, topic=topic, entries=[pb.AckMessageEntry(message_id="M", receipt_handle=handle)]
        )),
        ("ChangeInvisibleDuration", pb.ChangeInvisibleDurationRequest(
            group=group, topic=topic, receipt_handle=handle, message_id="M"
        )),
        ("ForwardMessageToDeadLetterQueue", pb.ForwardMessageToDeadLetterQueueRequest(
            group=group, topic=topic, receipt_handle=handle, message_id="M"
        )),
    ):  # fmt: skip
        answer = await v2_call(site, ACCOUNTS["fitting"], name, request)
        assert answer.status.code != pb.OK, name
        request.group.name = GROUP
        answer = await v2_call(site, ACCOUNTS["fitting"], name, request)
        assert answer.status.code == pb.UNAUTHORIZED, name
    acked = await asker.Ack(pop_pb2.AckRequest(group=GROUP, topic=TOPIC, handles=[handle]))
    assert not acked.outcomes, "nobody has touched it"
    assert stored(site, "%DLQ%mine-group") == 0


# Names that lead to other names.


NAMES = (
    f"%RETRY%{GROUP}", f"%DLQ%{GROUP}", f"%RETRY%mine%{GROUP}", f"ns%{TOPIC}", f"%RETRY%ns%{GROUP}", f" {TOPIC}",
    TOPIC.upper(), f"{TOPIC}\u200b", "rmq_sys_anything", "CID_RMQ_SYS_x", "SELF_TEST_TOPIC", "%RETRY%%DLQ%x", "%DLQ%",
)  # fmt: skip


async def test_no_way_of_writing_a_name_is_a_right_to_it(site: Site) -> None:
    """``Group:mine*`` covers groups that begin so, and retry topics of those alone."""
    for name in NAMES:
        await written(site, name, name.startswith("%RETRY%mine"))


async def written(site: Site, name: str, mine: bool) -> None:
    pull: dict[str, Any] = {
        "consumerGroup": "mine-group", "topic": name, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 0,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
    }  # fmt: skip
    answer = await asked(site, ACCOUNTS["fitting"], requests.PULL_MESSAGE.code, **pull)
    assert (answer.code == Code.NO_PERMISSION) != mine, answer.remark
    send = header_for(requests.SendMessage, site) | {"topic": name, "batch": "false", "bornTimestamp": "1"}
    answer = await asked(site, ACCOUNTS["fitting"], requests.SEND_MESSAGE.code, b"x", **send)
    assert (answer.code == Code.NO_PERMISSION) != mine, answer.remark


async def test_a_namespace_beside_the_topic_changes_no_name(site: Site) -> None:
    """A server that put both together after asking would serve another topic than it asked for."""
    message = pb.Message(topic=pb.Resource(name=MINE, resource_namespace="other"), body=b"x")
    message.system_properties.message_id = "M1"
    message.system_properties.message_type = pb.NORMAL
    answer = await v2_call(site, ACCOUNTS["fitting"], "SendMessage", pb.SendMessageRequest(messages=[message]))
    assert answer.status.code == pb.OK, answer
    assert (stored(site, MINE), stored(site, f"other%{MINE}")) == (1, 0)
    pull = header_for(requests.SendMessage, site) | {"topic": MINE, "ns": "other", "nsd": "true", "batch": "false"}
    await asked(site, ACCOUNTS["fitting"], requests.SEND_MESSAGE.code, b"x", **pull)
    assert (stored(site, MINE), stored(site, f"other%{MINE}")) == (2, 0)


async def test_a_heartbeat_that_subscribes_to_a_foreign_topic_joins_nothing(site: Site) -> None:
    data = {
        "groupName": "mine-group", "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY",
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1} for topic in (MINE, TOPIC)],
    }  # fmt: skip
    beat = msgspec.json.encode({"clientID": "c", "consumerDataSet": [data]})
    assert (await asked(site, ACCOUNTS["fitting"], requests.HEART_BEAT.code, beat)).code == Code.NO_PERMISSION
    assert not site.broker.domain.members.clients.groups.channels("mine-group")


# What names a message, or a question.


async def test_numbers_of_questions_cannot_be_guessed(site: Site) -> None:
    """Who knows one can answer it for the client."""
    numbers: list[int] = []

    def asks(command: Any) -> bool:
        numbers.append(command.number)
        return False

    clients = site.broker.domain.members.clients
    channel = clients.open(lambda _: None, command=asks)
    clients.heartbeat(channel, Asker("c", "b", 1), (), ["group"])
    for _ in range(8):
        with pytest.raises(Exception, match="has left"):
            await site.broker.domain.members.commands.ask("group", "c", lambda n: TellRunning(n, "group", False))
    assert max(numbers) > 1 << 40


async def test_what_a_foreign_log_offset_names_is_not_told(site: Site) -> None:
    for code, fields in (
        (requests.VIEW_MESSAGE.code, {"offset": site.offset}),
        (requests.CONSUME_DIRECTLY.code, {"consumerGroup": "mine-group", "clientId": "c", "msgId": site.message_id}),
        (requests.SEND_BACK.code, {"offset": site.offset, "group": "mine-group", "delayLevel": 0}),
    ):
        answer = await asked(site, ACCOUNTS["fitting"], code, **fields)
        assert answer.code == Code.NO_PERMISSION, code


async def test_a_refusal_does_not_tell_what_lies_at_a_place_of_the_log(site: Site) -> None:
    """The topic of a foreign message would be told, and that there is one."""
    told = [
        (await asked(site, ACCOUNTS["fitting"], requests.VIEW_MESSAGE.code, offset=place)).remark or ""
        for place in (site.offset, site.offset + 1)
    ]
    assert TOPIC not in told[0]
    assert told[0] == told[1]
