"""Calls of ``apache.rocketmq.v2`` one by one, and what came back without what differs each time: for a comparison.

The server has a topic WORD-wire that takes all types of messages, and a group WORD-fifo in order.
"""

import asyncio
import time
from typing import Any

from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.queues import endpoints_of
from google.protobuf.json_format import MessageToDict
from v2_wire import V2Client, bodies, consumer_settings, message, producer_settings, v2

WAIT_S = 30
INVISIBLE_S = 10
"""RocketMQ takes nothing shorter."""
VOLATILE = ("receiptHandle", "bornTimestamp", "storeTimestamp", "storeHost", "queueId", "queueOffset", "messageId")


async def probed(address: str, word: str) -> dict[str, Any]:
    """By what was asked: the answer."""
    found: dict[str, Any] = {}
    topic = f"{word}-wire"
    async with v2(address, f"{word}-probe") as client, v2(address, f"{word}-producer") as sending:
        settings = (await sending.settle(producer_settings(topic))).settings
        found["settings of a producer"] = fields(settings, "metric", "userAgent")
        settings = (await client.settle(consumer_settings(f"{word}-wire", topic))).settings
        found["settings of a consumer"] = fields(settings, "metric", "userAgent")
        async with asyncio.timeout(WAIT_S):
            while not (
                route := await client.route(topic)
            ).message_queues:  # a broker that just started is not known yet
                await asyncio.sleep(0.1)
        found["route"] = [fields(queue, "broker.endpoints") for queue in route.message_queues]
        found["endpoints"] = len({str(queue.broker.endpoints) for queue in route.message_queues})
        found |= await assigned(client, topic, word)
        found |= await one_message(client, sending, topic, f"{word}-wire")
        found |= await refused(sending, client, topic, f"{word}-wire")
        found |= await in_order(client, sending, topic, f"{word}-fifo")
    return found


async def assigned(client: V2Client, topic: str, word: str) -> dict[str, Any]:
    """One entry a broker, or all queues for a group in order."""
    found = {}
    for group in (f"{word}-wire", f"{word}-fifo"):
        asked = pb.QueryAssignmentRequest(
            topic=pb.Resource(name=topic), group=pb.Resource(name=group), endpoints=endpoints_of(client.address)
        )
        answer = await client.call("QueryAssignment", asked)
        found[f"assignment of {group}"] = [
            fields(each.message_queue, "broker.endpoints", "acceptMessageTypes") for each in answer.assignments
        ]
    return found


async def one_message(client: V2Client, sending: V2Client, topic: str, group: str) -> dict[str, Any]:
    """From the send to the end of a delivery that nobody acknowledged."""
    await emptied(client, topic, group)
    sent = message(
        b"body", topic, properties={"p": "v", "name with space": "ü"}, tag="tea", keys=["k1", "k2"],
        trace_context="00-abc-def-01",
    )  # fmt: skip
    answer = await sending.send(sent)
    (entry,) = answer.entries
    found: dict[str, Any] = {
        "send": (code(answer.status), code(entry.status), entry.message_id == sent.system_properties.message_id)
    }
    (given,), began_s = await received(client, topic, group)
    found["message"] = fields(given, *(f"systemProperties.{name}" for name in VOLATILE))
    found["same id"] = given.system_properties.message_id == sent.system_properties.message_id
    found["born when"] = given.system_properties.born_timestamp == sent.system_properties.born_timestamp
    (again,), ended_s = await received(client, topic, group)
    found["attempt"] = again.system_properties.delivery_attempt
    found["came again within"] = INVISIBLE_S - 0.5 <= ended_s - began_s <= INVISIBLE_S + 8
    found["fields after a retry"] = fields(again, *(f"systemProperties.{name}" for name in VOLATILE))
    found["acknowledged too late"] = code((await client.ack(given, group=group)).entries[0].status)
    changed = await client.change(again, 30, group)
    found["time changed"] = code(changed.status)
    found["handle is another"] = changed.receipt_handle != again.system_properties.receipt_handle
    again.system_properties.receipt_handle = changed.receipt_handle
    acknowledged = await client.ack(again, group=group)
    found["acknowledged"] = (code(acknowledged.status), code(acknowledged.entries[0].status))
    again.system_properties.receipt_handle = "no handle"
    found["a handle that is none"] = [code(each.status) for each in (await client.ack(again, group=group)).entries]
    return found


async def refused(sending: V2Client, client: V2Client, topic: str, group: str) -> dict[str, Any]:
    """Codes of what servers do not take."""
    wrong = {
        "a tag with a bar": message(b"x", topic, tag="a|b"),
        "a blank key": message(b"x", topic, keys=[" "]),
        "a blank message group": message(b"x", topic, kind=pb.FIFO, message_group=" "),
        "a property of the system": message(b"x", topic, properties={"TRAN_MSG": "true"}),
        "a body of 5 MiB": message(bytes(5 << 20), topic),
        "an unknown topic": message(b"x", "nobody-has-it"),
        "a topic that is no name": message(b"x", "a b"),
        "too many properties": message(b"x", topic, properties={f"p{number}": "v" for number in range(200)}),
        "long properties": message(b"x", topic, properties={"p": "v" * (17 << 10)}),
    }
    found: dict[str, Any] = {}
    for name, one in wrong.items():
        found[name] = code((await sending.send(one)).status)
    found["no messages"] = code((await sending.call("SendMessage", pb.SendMessageRequest())).status)
    found["route of an unknown topic"] = code((await client.route("nobody-has-it")).status)
    found["route of no name"] = code((await client.route("a b")).status)
    status, _ = await client.receive("nobody-has-it", group, invisible_s=INVISIBLE_S)
    found["receive of an unknown topic"] = code(status)
    status, _ = await client.receive(topic, group, invisible_s=24 * 3600)
    found["a day invisible"] = code(status)
    status, _ = await client.receive(topic, group, invisible_s=INVISIBLE_S, expression="a = 'b", kind=pb.SQL)
    found["no SQL"] = code(status)
    status, messages = await client.receive(topic, group, invisible_s=INVISIBLE_S)
    found["nothing there"] = (code(status), len(messages))
    heart = pb.HeartbeatRequest(group=pb.Resource(name=group), client_type=pb.PUSH_CONSUMER)
    found["heartbeat"] = code((await client.call("Heartbeat", heart)).status)
    return found


async def in_order(client: V2Client, sending: V2Client, topic: str, group: str) -> dict[str, Any]:
    """A group in order gets nothing of a queue before it is done with what it has."""
    await client.settle(consumer_settings(group, topic))
    await emptied(client, topic, group)
    for number in range(3):
        await sending.send(message(b"%d" % number, topic, kind=pb.FIFO, message_group="one"))
    given, _ = await received(client, topic, group, batch=1)
    _, blocked = await client.receive(topic, group, invisible_s=INVISIBLE_S, wait_s=5)
    acknowledged = await client.ack(*given, group=group)
    rest, _ = await received(client, topic, group)
    await client.ack(*rest, group=group)
    found = {"in order": (bodies(given), bodies(blocked), code(acknowledged.entries[0].status), bodies(rest))}
    return found | {"fields in order": fields(given[0], *(f"systemProperties.{name}" for name in VOLATILE))}


async def emptied(client: V2Client, topic: str, group: str) -> None:
    """A group begins where it is first seen."""
    while True:
        _, messages = await client.receive(topic, group, invisible_s=INVISIBLE_S, wait_s=5)
        if not messages:
            return
        await client.ack(*messages, group=group)


async def received(client: V2Client, topic: str, group: str, batch: int = 32) -> tuple[list[pb.Message], float]:
    """The first that come, and when."""
    async with asyncio.timeout(WAIT_S):
        while True:
            _, messages = await client.receive(topic, group, invisible_s=INVISIBLE_S, batch=batch)
            if messages:
                return messages, time.monotonic()


def code(status: pb.Status) -> str:
    return pb.Code.Name(status.code)


def fields(message: Any, *without: str) -> dict[str, Any]:
    """As JSON has it."""
    found = MessageToDict(message)
    for path in without:
        *above, last = path.split(".")
        place = found
        for name in above:
            place = place.get(name, {})
        place.pop(last, None)
    return found
