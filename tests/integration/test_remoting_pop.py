"""Pops at the broker's remoting door, as RocketMQ's consumers in POP mode and its proxies ask."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import running, until
from dejamq_broker.app import Broker
from dejamq_proto.codes import Code
from dejamq_proto.remoting import pop_requests as p
from dejamq_proto.remoting.header import Command
from remoting_wire import RemotingClient, remoting
from test_remoting_broker import records, sent


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, pop_polling_size=1) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RemotingClient]:
    async with remoting(broker.address) as client:
        yield client


def a_pop(**more: Any) -> dict[str, Any]:
    return {
        "consumerGroup": "g", "topic": "t", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000,
        "pollTime": 0, "bornTime": 0, "initMode": 0, "expType": "TAG", "exp": "*", "order": "false",
    } | more  # fmt: skip


def handle(answer: Command, offset: int) -> str:
    """As RocketMQ's client makes it of an answer with messages of one queue."""
    kind, queue_id, start = answer.ext["startOffsetInfo"].split(" ")
    ext = answer.ext
    return f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} {kind} broker-a {queue_id} {offset}"


def an_ack(handle: str, offset: int, **more: Any) -> dict[str, Any]:
    named = {"consumerGroup": "g", "topic": "t", "queueId": 0, "offset": offset, "extraInfo": handle}
    return named | more


async def test_popped_messages_are_acknowledged_by_handles_that_the_client_makes(client: RemotingClient) -> None:
    for body in (b"a", b"b"):
        await sent(client, body)
    popped = await client.ask(p.POP_MESSAGE, **a_pop())
    assert (popped.code, popped.remark, [each.body for each in records(popped)]) == (0, "FOUND", [b"a", b"b"])
    assert (popped.ext["startOffsetInfo"], popped.ext["msgOffsetInfo"]) == ("0 0 0", "0 0 0,1")
    assert (popped.ext["reviveQid"], popped.ext["restNum"]) == ("0", "0")
    for _ in range(2):
        assert (await client.ask(p.ACK_MESSAGE, **an_ack(handle(popped, 0), 0))).code == 0
    assert (await client.ask(p.ACK_MESSAGE, **an_ack(handle(popped, 7), 7))).code == Code.NO_MESSAGE
    assert (await client.ask(p.ACK_MESSAGE, **an_ack("1 2 3", 0))).code == Code.MESSAGE_ILLEGAL
    nothing = await client.ask(p.POP_MESSAGE, **a_pop())
    assert (nothing.code, nothing.ext["restNum"]) == (Code.POLLING_TIMEOUT, "0")


async def test_a_message_given_back_comes_under_its_topic_with_the_handle_of_its_retry(client: RemotingClient) -> None:
    await sent(client, b"x")
    popped = await client.ask(p.POP_MESSAGE, **a_pop())
    changed = await client.ask(p.CHANGE_INVISIBLE, **an_ack(handle(popped, 0), 0, invisibleTime=0))
    assert (changed.code, set(changed.ext)) == (0, {"popTime", "invisibleTime", "reviveQid"})
    again = await client.ask(p.POP_MESSAGE, **a_pop(pollTime=9_000))
    (record,) = records(again)
    assert (record.topic, record.body, record.reconsume_times) == ("t", b"x", 1)
    own = record.properties["POP_CK"]
    assert own.split(" ")[4:] == ["1", "broker-a", "0", "0"]
    ack = an_ack(own, 0, topic="%RETRY%g_t")
    assert (await client.ask(p.ACK_MESSAGE, **ack)).code == 0


async def test_a_popped_message_that_is_sent_on_loses_the_handle_of_its_first_pop(client: RemotingClient) -> None:
    await sent(client, b"x", i="TAGS\x01a\x02POP_CK\x010 1 3000 0 0 broker-b 7 0\x02UNIQ_KEY\x01k\x02")
    (record,) = records(await client.ask(p.POP_MESSAGE, **a_pop()))
    assert "POP_CK" not in record.properties
    assert (record.properties["TAGS"], record.properties["UNIQ_KEY"]) == ("a", "k")


async def test_a_pop_that_waits_is_answered_when_something_comes_and_one_too_many_at_once(
    client: RemotingClient, broker: Broker
) -> None:
    await sent(client, b"first")
    await client.ask(p.POP_MESSAGE, **a_pop())
    waiting = asyncio.create_task(client.ask(p.POP_MESSAGE, **a_pop(pollTime=9_000)))
    await until(lambda: len(broker.domain.popping.held) == 1)
    async with remoting(broker.address) as other:
        full = await other.ask(p.POP_MESSAGE, **a_pop(pollTime=9_000))
        assert (full.code, full.ext["restNum"]) == (Code.POLLING_FULL, "0")
        await sent(other, b"second")
    assert [record.body for record in records(await waiting)] == [b"second"]


async def test_what_a_lost_connection_waited_for_goes_to_another(client: RemotingClient, broker: Broker) -> None:
    await sent(client, b"first")
    await client.ask(p.POP_MESSAGE, **a_pop())
    async with remoting(broker.address) as gone:
        gone.tell(p.POP_MESSAGE, **a_pop(pollTime=60_000))
        await until(lambda: len(broker.domain.popping.held) == 1)
    await until(lambda: len(broker.domain.popping.held) == 0)
    await sent(client, b"second")
    assert [record.body for record in records(await client.ask(p.POP_MESSAGE, **a_pop()))] == [b"second"]


async def test_many_messages_are_acknowledged_by_one_request(client: RemotingClient) -> None:
    for number in range(4):
        await sent(client, b"%d" % number)
    popped = await client.ask(p.POP_MESSAGE, **a_pop())
    start, pop_time, invisible, revive, *_ = handle(popped, 0).split(" ")
    one = {
        "b": base64.b64encode(bytes([0b1011])).decode(), "c": "g", "it": int(invisible), "pt": int(pop_time), "q": 0,
        "r": "0", "rq": int(revive), "so": int(start), "t": "t",
    }  # fmt: skip
    body = json.dumps({"acks": [one], "brokerName": "broker-a"}).encode()
    assert (await client.ask(p.BATCH_ACK_MESSAGE, body)).code == 0
    assert (await client.ask(p.BATCH_ACK_MESSAGE, b'{"acks":[]}')).code == Code.NO_MESSAGE
    await client.ask(p.CHANGE_INVISIBLE, **an_ack(handle(popped, 2), 2, invisibleTime=0))
    again = await client.ask(p.POP_MESSAGE, **a_pop(pollTime=9_000))
    assert [record.body for record in records(again)] == [b"2"]


async def test_in_order_a_queue_waits_for_its_messages_and_tells_how_often_they_came(client: RemotingClient) -> None:
    for body in (b"a", b"b"):
        await sent(client, body)
    popped = await client.ask(p.POP_MESSAGE, **a_pop(order="true", maxMsgNums=1))
    assert (popped.ext["reviveQid"], popped.ext["orderCountInfo"]) == ("999", "0 0 0;0 qo0%0 0")
    blocked = await client.ask(p.POP_MESSAGE, **a_pop(order="true"))
    assert blocked.code == Code.POLLING_TIMEOUT
    assert (await client.ask(p.ACK_MESSAGE, **an_ack(handle(popped, 0), 0))).code == 0
    after = await client.ask(p.POP_MESSAGE, **a_pop(order="true"))
    assert [record.body for record in records(after)] == [b"b"]


async def test_a_notification_says_whether_there_are_messages_and_takes_none(client: RemotingClient) -> None:
    asked: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": -1, "bornTime": 0}
    await sent(client, b"x")
    for _ in range(2):
        told = await client.ask(p.NOTIFICATION, **asked, pollTime=0)
        assert (told.code, told.ext["hasMsg"]) == (0, "true")
    await client.ask(p.POP_MESSAGE, **a_pop())
    assert (await client.ask(p.NOTIFICATION, **asked, pollTime=50)).ext["hasMsg"] == "false"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"maxMsgNums": 33}, Code.INVALID_PARAMETER),
        ({"invisibleTime": -1}, Code.INVALID_PARAMETER),
        ({"queueId": 99}, Code.INVALID_PARAMETER),
        ({"queueId": -2}, Code.INVALID_PARAMETER),
        ({"topic": "nowhere"}, Code.TOPIC_NOT_EXIST),
        ({"expType": "NONE"}, Code.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_a_pop_that_cannot_be_is_refused(change: dict[str, Any], code: Code, client: RemotingClient) -> None:
    await sent(client)
    refused = await client.ask(p.POP_MESSAGE, **a_pop(**change))
    assert refused.code == code, refused.remark
