"""A task in hand is settled once, whatever is cancelled meanwhile; its consumer is one that can be slow or refuse."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from dejamq import DejamqError
from dejamq.integrations.task_deliveries import TaskDeliveries, TaskDelivery
from dejamq_proto.codes import Code


class Consumer:
    """Tells what it was told; answers when ``answering`` is set, with ``refusal`` if there is one."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.asked = 0
        self.answering = asyncio.Event()
        self.refusal: DejamqError | None = None
        self.answering.set()

    async def ack(self, message: object) -> None:
        await self._answer("ack")

    async def change_invisible(self, message: object, ms: int) -> None:
        await self._answer(f"again in {ms}")

    async def _answer(self, what: str) -> None:
        self.asked += 1
        await self.answering.wait()
        self.told.append(what)
        if self.refusal is not None:
            raise self.refusal


def taken(consumer: Consumer, *, invisible_ms: int = 30_000) -> tuple[TaskDeliveries, TaskDelivery]:
    deliveries = TaskDeliveries()
    message: Any = SimpleNamespace(delivery_number=7, message_id="A1", reconsume_times=0)
    some: Any = consumer
    return deliveries, deliveries.take(some, message, invisible_ms)


async def test_what_is_being_settled_is_settled_although_whoever_waits_for_it_is_cancelled() -> None:
    consumer = Consumer()
    deliveries, delivery = taken(consumer)
    consumer.answering.clear()
    waiting = asyncio.create_task(delivery.give_back(50))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    consumer.answering.set()
    await deliveries.give_all_back()
    assert consumer.told == ["again in 50"]


async def test_a_task_whose_acknowledgement_is_under_way_is_not_given_back() -> None:
    consumer = Consumer()
    deliveries, delivery = taken(consumer)
    consumer.answering.clear()
    acknowledging = asyncio.create_task(delivery.settle())
    await asyncio.sleep(0)
    giving = asyncio.create_task(deliveries.give_all_back())
    await asyncio.sleep(0)
    consumer.answering.set()
    await asyncio.gather(acknowledging, giving)
    assert consumer.told == ["ack"]
    assert deliveries.get(7) is None


async def test_a_renewal_under_way_ends_before_the_task_is_given_back() -> None:
    consumer = Consumer()
    consumer.answering.clear()
    _, delivery = taken(consumer, invisible_ms=20)
    while not consumer.asked:
        await asyncio.sleep(0.001)
    giving = asyncio.create_task(delivery.give_back(0))
    await asyncio.sleep(0)
    consumer.answering.set()
    await giving
    assert consumer.told == ["again in 20", "again in 0"]


@pytest.mark.parametrize(("code", "renewals"), [(Code.NO_MESSAGE, 1), (Code.SYSTEM_BUSY, 3)])
async def test_a_refused_renewal_is_tried_again_unless_the_task_is_somebody_elses(code: Code, renewals: int) -> None:
    consumer = Consumer()
    consumer.refusal = DejamqError("no", code=code)
    _, delivery = taken(consumer, invisible_ms=20)
    async with asyncio.timeout(20):
        while len(consumer.told) < renewals:
            await asyncio.sleep(0.001)
    await delivery.give_back(0)
    assert consumer.told.count("again in 20") >= renewals
    assert code != Code.NO_MESSAGE or consumer.told.count("again in 20") == 1
