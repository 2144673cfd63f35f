"""Filters over real connections: what heartbeats register, what a check answers, and what wakes a held pull."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, a_run, records_of, running, until
from dejamq_broker.app import Broker
from dejamq_proto import client_pb2, pull_pb2
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.pull_pb2_grpc import PullStub
from dejamq_proto.wire.messages import PullAnswer

RICH = {"expression": "amount > 5", "expression_type": "SQL92"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, enable_property_filter=True) as broker:
        yield broker


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    async with Wire(broker.address) as wire:
        yield wire


async def send(wire: Wire, *amounts: int, tags: str = "") -> None:
    for amount in amounts:
        run = a_run("orders", [b"%d" % amount], tags=tags, properties={"amount": str(amount)})
        assert (await wire.send(run)).code == 0


def bodies(answer: PullAnswer) -> list[bytes]:
    return [record.body for record in records_of(answer)]


async def check(wire: Wire, **more: str) -> None:
    stub: Any = PullStub(wire.channel)
    request = pull_pb2.CheckFilterRequest(caller=wire.caller(), group="g", topic="orders", **more)
    await wire.call(stub.CheckFilter, request)


async def subscribe(wire: Wire, group: str, expression: str, kind: str, version: int) -> tuple[Any, str]:
    """An open channel with one heartbeat, and what it was told."""
    stream: Any = wire.client.ClientChannel(timeout=20)
    subscription = client_pb2.Subscription(topic="orders", expression=expression, expression_type=kind, version=version)
    consumer = client_pb2.ConsumerData(group=group, subscriptions=[subscription])
    await stream.write(client_pb2.Heartbeat(caller=wire.caller(), consumers=[consumer]))
    while not (command := await stream.read()).HasField("heartbeat_ack"):
        pass
    assert command.heartbeat_ack.code == 0
    return stream, command.heartbeat_ack.remark


async def test_an_expression_can_be_checked_before_anything_is_pulled(wire: Wire, tmp_path: Path) -> None:
    await check(wire, **RICH)
    await check(wire, expression="a || b")
    with pytest.raises(DejamqError, match="does not fit at position 8") as caught:
        await check(wire, expression="amount >", expression_type="SQL92")
    assert caught.value.code == Code.SUBSCRIPTION_PARSE_FAILED
    async with running(tmp_path / "other") as strict, Wire(strict.address) as other:
        with pytest.raises(DejamqError, match="enable_property_filter") as caught:
            await check(other, **RICH)
        assert caught.value.code == Code.SYSTEM_ERROR


async def test_an_expression_of_the_heartbeat_filters_pulls_that_bring_none(wire: Wire) -> None:
    await send(wire, 3, 7, 5, 9)
    assert (await wire.pull("orders", group="g", registered=True)).code == Code.SUBSCRIPTION_NOT_EXIST
    stream, told = await subscribe(wire, "g", RICH["expression"], "SQL92", version=5)
    assert told == ""
    answer = await wire.pull("orders", group="g", registered=True, subscription_version=5)
    assert (bodies(answer), answer.next_offset) == ([b"7", b"9"], 4)
    late = await wire.pull("orders", group="g", registered=True, subscription_version=6)
    assert (late.code, bool(late.remark)) == (Code.SUBSCRIPTION_NOT_LATEST, True)
    stream.cancel()


async def test_a_heartbeat_with_an_impossible_expression_is_told_so(wire: Wire) -> None:
    await send(wire, 7)
    stream, told = await subscribe(wire, "g", "amount >", "SQL92", version=1)
    assert "does not fit at position 8" in told
    assert (await wire.pull("orders", group="g", registered=True)).code == Code.FILTER_DATA_NOT_EXIST
    stream.cancel()


async def test_a_held_pull_sleeps_through_arrivals_that_it_does_not_want(wire: Wire, broker: Broker) -> None:
    await send(wire, 1)
    stream = wire.pull_stream()
    by_sql = wire.pull_request("orders", 1, suspend_ms=60_000, **RICH)
    by_tag = wire.pull_request("orders", 1, suspend_ms=60_000, expression="paid")
    await stream.write(by_sql)
    await stream.write(by_tag)
    await until(lambda: broker.domain.long_poll.waiting == 2)
    await send(wire, 2, 3, tags="open")
    await send(wire, 4, tags="paid")
    answer = PullAnswer.decode(await stream.read())
    assert (answer.seq, bodies(answer), answer.next_offset) == (by_tag.caller.seq, [b"4"], 4)
    await send(wire, 9)
    answer = PullAnswer.decode(await stream.read())
    assert (answer.seq, bodies(answer), answer.next_offset) == (by_sql.caller.seq, [b"9"], 5)


async def test_without_a_match_a_held_pull_ends_with_where_to_go_on(wire: Wire, broker: Broker) -> None:
    await send(wire, 1)
    stream = wire.pull_stream()
    await stream.write(wire.pull_request("orders", 1, suspend_ms=1000, **RICH))
    await until(lambda: broker.domain.long_poll.waiting == 1)
    await send(wire, 2)
    answer = PullAnswer.decode(await stream.read())
    assert (answer.code, answer.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 2)
