"""Messages for a time, from the SDK to a consumer: sends of all kinds, restarts, and a slave that takes over."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import SMALL, Wire, a_run, broker_config, records_of, running, until
from consumer_cluster import servers
from dejamq import DejamqError, Message, Producer, TransactionProducer, TransactionState
from dejamq_broker.app import Broker
from dejamq_proto.codes import Code
from dejamq_proto.records.record import Record
from test_broker_retry_delay import Clock

QUICK: dict[str, Any] = {"schedule_poll_interval_ms": 10, "timer_precision_ms": 100}
TIMER = "rmq_sys_wheel_timer"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def broker(tmp_path: Path, clock: Clock) -> AsyncIterator[Broker]:
    broker = Broker(broker_config(tmp_path / "store", **QUICK), clock_ms=clock)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    async with Wire(broker.address) as wire:
        yield wire


async def come(wire: Wire, topic: str, count: int) -> list[Record]:
    async def found() -> list[Record] | None:
        records = records_of(await wire.pull(topic))
        return records if len(records) >= count else None

    return await until(found)  # type: ignore[no-any-return]


async def test_a_run_may_hold_messages_for_a_time_and_others(broker: Broker, wire: Wire, clock: Clock) -> None:
    run = a_run("orders", [b"a", b"b"], properties={"TIMER_DELAY_MS": "950"}, rewrite=True)
    result = await wire.send(run)
    assert result.code == 0
    assert result.timer_out_ms.tolist() == [clock.now_ms + 900] * 2
    await wire.send(a_run("orders", [b"now"]))
    assert [record.body for record in await come(wire, "orders", 1)] == [b"now"]
    clock.now_ms += 1000
    assert [record.body for record in await come(wire, "orders", 3)] == [b"now", b"a", b"b"]


async def test_a_time_that_cannot_be_refuses_its_run_and_names_the_record(broker: Broker, wire: Wire) -> None:
    result = await wire.send(a_run("orders", [b"x"], properties={"TIMER_DELAY_MS": "soon"}, rewrite=True))
    assert (Code(result.code), result.bad_record) == (Code.MESSAGE_ILLEGAL, 0)
    late = {"TIMER_DELAY_SEC": "259201"}
    result = await wire.send(a_run("orders", [b"x"], properties=late, rewrite=True))
    assert (Code(result.code), result.bad_record) == (Code.MESSAGE_ILLEGAL, 0)
    assert "at most 259200 s" in result.remark


async def test_a_producer_takes_a_message_back_before_its_time(tmp_path: Path) -> None:
    async with (
        servers(tmp_path, **QUICK) as here,
        Producer("pg", namesrv=here.namesrv.address, namespace="shop") as producer,
        Wire(here.address) as wire,
    ):
        taken = await producer.send(Message("orders", b"taken back", delay_ms=2000))
        await producer.send(Message("orders", b"kept", delay_ms=2000))
        assert (await producer.send(Message("orders", b"now"))).recall_handle == ""
        assert await producer.recall("orders", taken.recall_handle) == taken.message_id
        broker = here.broker
        assert broker is not None
        await until(lambda: total(broker, "shop%orders") == 2, 20)
        pulls = [await wire.pull("shop%orders", queue_id=queue) for queue in range(4)]
        bodies = [record.body for pull in pulls for record in records_of(pull)]
        assert sorted(bodies) == [b"kept", b"now"]
        for handle in (taken.recall_handle, "junk"):
            with pytest.raises(DejamqError) as refused:
                await producer.recall("orders", handle)
            assert refused.value.code == Code.ILLEGAL_OPERATION


async def test_a_retry_of_a_timed_message_waits_by_its_level_alone(broker: Broker, wire: Wire, clock: Clock) -> None:
    await wire.heartbeat_stream("g")
    await wire.send(a_run("orders", [b"x"], properties={"TIMER_DELAY_MS": "100"}, rewrite=True))
    clock.now_ms += 1000
    (record,) = await come(wire, "orders", 1)
    await wire.send_back("g", record.log_offset)
    clock.now_ms += 10_000
    (again,) = await come(wire, "%RETRY%g", 1)
    assert (again.reconsume_times, "TIMER_DELAY_MS" in again.properties) == (1, False)


async def test_a_restart_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, **QUICK) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("orders", [b"soon"], properties={"TIMER_DELAY_MS": "1"}, rewrite=True))
        await wire.send(a_run("orders", [b"late"], properties={"TIMER_DELAY_MS": "1500"}, rewrite=True))
        await come(wire, "orders", 1)
    async with running(tmp_path, **QUICK) as broker, Wire(broker.address) as wire:
        assert [record.body for record in await come(wire, "orders", 2)] == [b"soon", b"late"]


async def test_without_timed_messages_no_file_of_the_timer_is_made(tmp_path: Path) -> None:
    async with running(tmp_path, **QUICK) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("orders", [b"x"]))
        await broker.domain.services.timer.step()
    assert not await asyncio.to_thread(lambda: list(tmp_path.rglob("timer*")))


async def test_a_timer_log_of_small_files_rolls_on(tmp_path: Path) -> None:
    store = dataclasses.replace(SMALL, mapped_file_size_timer_log=4096)
    async with running(tmp_path, store=store, **QUICK) as broker, Wire(broker.address) as wire:
        bodies = [b"%d" % number for number in range(200)]
        await wire.send(a_run("orders", bodies, properties={"TIMER_DELAY_MS": "100"}, rewrite=True))
        await until(lambda: broker.domain.store.max_offset("orders", 0) == 200)
        first = [record.body for record in await come(wire, "orders", 1)]
        assert first == bodies[: len(first)]
        assert len(list((tmp_path / "timerlog").iterdir())) == 3


@pytest.mark.timeout(60)
async def test_the_sdk_sends_for_a_time_alone_and_in_transactions_and_not_in_batches(tmp_path: Path) -> None:
    async with servers(tmp_path, timer_precision_ms=100) as here:
        async with here.producer() as producer:
            began_ms = time.time() * 1000
            await producer.send(Message("orders", b"delay", delay_ms=700))
            await producer.send(Message("orders", b"at", deliver_at_ms=round(began_ms) + 600))
            with pytest.raises(DejamqError, match="no delayed messages"):
                await producer.send_batch([Message("orders", b"x", delay_ms=5)])
            for bad in (
                Message("orders", b"x", delay_ms=5, delay_level=1), Message("orders", b"x", delay_ms=-1),
                Message("orders", b"x", delay_ms=5, deliver_at_ms=5), Message("orders", b"x", deliver_at_ms=1 << 60),
            ):  # fmt: skip
                with pytest.raises(DejamqError) as refused:
                    await producer.send(bad)
                assert refused.value.code is Code.INVALID_PARAMETER
            with pytest.raises(DejamqError) as refused:
                await producer.send(Message("orders", b"x", delay_ms=4 * 86_400_000))
            assert refused.value.code is Code.MESSAGE_ILLEGAL
        transactions = TransactionProducer("tx", checker=committed, namesrv=here.namesrv.address)
        async with transactions:
            await transactions.send_in_transaction(Message("orders", b"tx", delay_ms=500), committed)
        broker = here.broker
        assert broker is not None
        await until(lambda: total(broker, "orders") == 3, 20)
        assert time.time() * 1000 - began_ms >= 700


async def committed(_: object) -> TransactionState:
    return TransactionState.COMMIT


def total(broker: Broker, topic: str) -> int:
    store = broker.domain.store
    return sum(store.max_offset(name, queue_id) for name, queue_id in store.queues() if name == topic)
