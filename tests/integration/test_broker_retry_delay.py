"""Delayed messages and messages given back: they return when due, with what a consumer and an audit need."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import SMALL, Wire, a_run, broker_config, records_of, running, until
from dejamq_broker.app import Broker
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import Record
from journalled import journalled

QUICK = {
    "store": dataclasses.replace(SMALL, message_delay_level=" ".join(["1s"] * 18)),
    "schedule_poll_interval_ms": 10,
}


class Clock:
    """Wall time that a test turns forward: a delay of seconds is due without waiting for it."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def broker(tmp_path: Path, clock: Clock) -> AsyncIterator[Broker]:
    settings = QUICK | {"journal_dir": str(tmp_path / "journal"), "journal_level": "forensic"}
    broker = Broker(broker_config(tmp_path / "store", **settings), clock_ms=clock)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    async with Wire(broker.address) as wire:
        yield wire


async def first_of(wire: Wire, topic: str, queue_offset: int = 0) -> Record:
    async def found() -> Record | None:
        records = records_of(await wire.pull(topic, queue_offset))
        return records[0] if records else None

    return await until(found)  # type: ignore[no-any-return]


async def first_if_any(wire: Wire, topic: str) -> list[Record]:
    return records_of(await wire.pull(topic))


def appends(tmp_path: Path) -> list[dict[str, Any]]:
    return journalled(tmp_path / "journal", "APPEND")


async def test_a_delayed_message_is_delivered_when_due_and_not_before(
    tmp_path: Path, wire: Wire, broker: Broker, clock: Clock
) -> None:
    run = a_run("orders", [b"later"], tags="x", properties={"DELAY": "2"}, rewrite=True)
    assert (await wire.send(run)).code == 0
    await until(lambda: broker.domain.store.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 1)
    clock.now_ms += 999
    await broker.domain.services.delay.step()
    assert broker.domain.store.max_offset("orders", 0) == 0
    clock.now_ms += 1
    record = await first_of(wire, "orders")
    assert (record.body, record.topic, record.queue_id) == (b"later", "orders", 0)
    assert record.properties.items() >= {"DELAY": "2", "REAL_TOPIC": "orders", "REAL_QID": "0", "TAGS": "x"}.items()
    client, schedule = appends(tmp_path)
    assert (client["origin"], client["topics"]) == ("client", ["SCHEDULE_TOPIC_XXXX"])
    assert (schedule["origin"], schedule["topics"], schedule["origin_refs"]) == ("schedule", ["orders"], ["2:0"])
    assert client["unique_keys"] == schedule["unique_keys"]


async def test_a_message_given_back_returns_through_the_retry_topic(tmp_path: Path, wire: Wire, clock: Clock) -> None:
    await wire.heartbeat_stream("g")
    await wire.send(a_run("orders", [b"x"], tags="A"))
    original = await first_of(wire, "orders")
    await wire.send_back("g", original.log_offset, delivery_ref="boot:7")
    assert await first_if_any(wire, "%RETRY%g") == []
    clock.now_ms += 1000
    again = await first_of(wire, "%RETRY%g")
    assert (again.body, again.reconsume_times, again.born_timestamp_ms) == (b"x", 1, original.born_timestamp_ms)
    properties = again.properties
    assert (properties["RETRY_TOPIC"], properties["TAGS"], properties["DELAY"]) == ("orders", "A", "3")
    assert properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id
    assert properties["UNIQ_KEY"] == original.properties["UNIQ_KEY"]
    sendback = appends(tmp_path)[1]
    assert (sendback["origin"], sendback["origin_refs"], sendback["reconsume_times"]) == ("sendback", ["boot:7"], [1])


async def test_each_try_waits_longer_and_the_last_becomes_a_dead_letter(wire: Wire, clock: Clock) -> None:
    await wire.heartbeat_stream("g")
    await wire.send(a_run("orders", [b"x"]))
    record = await first_of(wire, "orders")
    for times in range(2):
        await wire.send_back("g", record.log_offset, max_reconsume_times=2)
        clock.now_ms += 1000
        record = await first_of(wire, "%RETRY%g", times)
        assert (record.reconsume_times, record.properties["DELAY"]) == (times + 1, str(3 + times))
    await wire.send_back("g", record.log_offset, max_reconsume_times=2)
    dead = await first_of(wire, "%DLQ%g")
    assert (dead.body, dead.properties["RETRY_TOPIC"], dead.properties["DELAY"]) == (b"x", "orders", "0")


async def test_a_negative_level_is_a_dead_letter_at_once(wire: Wire) -> None:
    await wire.heartbeat_stream("g")
    await wire.send(a_run("orders", [b"x"]))
    record = await first_of(wire, "orders")
    await wire.send_back("g", record.log_offset, delay_level=-1)
    assert (await first_of(wire, "%DLQ%g")).body == b"x"


async def test_a_message_that_is_not_there_cannot_be_given_back(wire: Wire) -> None:
    with pytest.raises(DejamqError) as caught:
        await wire.send_back("unknown", 0)
    assert caught.value.code is Code.SUBSCRIPTION_GROUP_NOT_EXIST
    await wire.heartbeat_stream("g")
    for log_offset in (0, 5, 1 << 40, -1):
        with pytest.raises(DejamqError) as caught:
            await wire.send_back("g", log_offset)
        assert caught.value.code is Code.SYSTEM_ERROR


async def test_a_consumers_own_send_to_the_retry_topic_ends_as_a_dead_letter_beyond_the_limit(wire: Wire) -> None:
    await wire.heartbeat_stream("g")
    for times in (16, 17):
        run = a_run("%RETRY%g", [b"%d" % times], reconsume_times=times, properties={"RETRY_TOPIC": "orders"})
        assert (await wire.send(run)).code == 0
    assert (await first_of(wire, "%RETRY%g")).body == b"16"
    assert (await first_of(wire, "%DLQ%g")).body == b"17"


async def test_delays_shrink_with_time(tmp_path: Path) -> None:
    async with (
        running(tmp_path, store=dataclasses.replace(SMALL, delay_second_ms=1)) as broker,
        Wire(broker.address) as w,
    ):
        assert (await w.send(a_run("orders", [b"x"], properties={"DELAY": "5"}, rewrite=True))).code == 0
        assert (await first_of(w, "orders")).body == b"x"  # a minute at full size, 60 ms here


async def test_progress_survives_a_clean_stop_so_nothing_is_delivered_twice(tmp_path: Path) -> None:
    settings = QUICK | {"flush_delay_offset_interval_ms": 3_600_000}
    async with running(tmp_path, **settings) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("orders", [b"x"], properties={"DELAY": "1"}, rewrite=True))
        await first_of(wire, "orders")
    async with running(tmp_path, **settings) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("orders", [b"y"], properties={"DELAY": "1"}, rewrite=True))
        assert (await first_of(wire, "orders", 1)).body == b"y"


async def test_lost_progress_delivers_again(tmp_path: Path) -> None:
    async with running(tmp_path, **QUICK) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("orders", [b"x"], properties={"DELAY": "1"}, rewrite=True))
        await first_of(wire, "orders")
    (tmp_path / "config" / "delayOffset.json").unlink()
    async with running(tmp_path, **QUICK) as broker, Wire(broker.address) as wire:
        again = await first_of(wire, "orders", 1)
        assert (again.body, again.queue_offset) == (b"x", 1)
