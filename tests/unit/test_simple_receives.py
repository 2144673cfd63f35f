"""Receives that come while a call is under way leave together, and each gets its own part."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from dejamq.simple.receives import Receives
from dejamq_proto.codes import BrokerUnavailable

LONG_MS = 60_000


class Broker:
    """Answers when the test says so. Messages are numbers here."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self._answers: list[asyncio.Future[list[Any]]] = []
        self.spare: list[Any] = []
        self.receives = Receives(self.call, self.spare.extend)

    async def call(self, most: int, wait_ms: int) -> list[Any]:
        self.asked.append((most, wait_ms))
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return await answer

    async def answers(self, number: int, found: "list[Any] | Exception") -> None:
        await until(lambda: len(self._answers) > number)
        if isinstance(found, Exception):
            self._answers[number].set_exception(found)
        else:
            self._answers[number].set_result(found)

    def given_up(self, number: int) -> bool:
        return self._answers[number].cancelled()

    def ask(self, most: int, wait_ms: int = LONG_MS) -> "asyncio.Task[list[Any]]":
        return asyncio.create_task(soon(self.receives.ask(most, wait_ms)))

    async def begun(self, most: int) -> "asyncio.Task[list[Any]]":
        """The first receive of all, whose call is under way."""
        first = self.ask(most)
        await until(lambda: len(self.asked) == 1)
        return first


async def soon(what: Awaitable[list[Any]]) -> list[Any]:
    async with asyncio.timeout(20):
        return await what


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0)


@pytest.fixture
def never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine makes no call one that the broker holds."""
    monkeypatch.setattr("dejamq.simple.receives.GATHER_S", 1_000)


@pytest.mark.usefixtures("never_held")
async def test_those_that_come_meanwhile_leave_in_one_call_and_share_what_it_brings_in_their_order() -> None:
    broker = Broker()
    first = await broker.begun(2)
    second, third, fourth = broker.ask(2), broker.ask(3), broker.ask(1, 0)
    await broker.answers(0, [1, 2])
    await broker.answers(1, [3, 4, 5])
    assert (await first, await second, await third, await fourth) == ([1, 2], [3, 4], [5], [])
    assert broker.asked[0][0] == 2
    assert broker.asked[1:] == [(6, 0)]


@pytest.mark.usefixtures("never_held")
async def test_who_gets_nothing_of_a_call_and_has_time_left_asks_again() -> None:
    broker = Broker()
    await broker.begun(1)
    second, third = broker.ask(1), broker.ask(1)
    await broker.answers(0, [1])
    await broker.answers(1, [2])
    await broker.answers(2, [3])
    assert (await second, await third) == ([2], [3])
    assert [most for most, _ in broker.asked] == [1, 2, 1]


async def test_nobody_waits_behind_a_call_that_the_broker_holds() -> None:
    broker = Broker()
    held, later = broker.ask(1), broker.ask(1)
    await broker.answers(1, [2])
    assert await later == [2]
    await broker.answers(0, [1])
    assert await held == [1]


@pytest.mark.usefixtures("never_held")
async def test_what_a_call_brings_for_a_receive_that_was_cancelled_is_spare() -> None:
    broker = Broker()
    await broker.begun(1)
    second, third = broker.ask(1), broker.ask(1)
    await broker.answers(0, [1])
    await until(lambda: len(broker.asked) == 2)
    second.cancel()
    await asyncio.wait([second])
    await broker.answers(1, [2, 3])
    assert await third == [2]
    assert broker.spare == [3]


@pytest.mark.usefixtures("never_held")
async def test_a_call_that_nobody_waits_for_any_more_is_given_up() -> None:
    broker = Broker()
    first = await broker.begun(1)
    first.cancel()
    await until(lambda: broker.given_up(0))
    again = broker.ask(1)
    await broker.answers(1, [1])
    assert await again == [1]


@pytest.mark.usefixtures("never_held")
async def test_all_receives_of_a_call_that_failed_fail_and_the_next_one_does_not() -> None:
    broker = Broker()
    first = await broker.begun(1)
    second, third = broker.ask(1), broker.ask(1)
    await broker.answers(0, BrokerUnavailable("gone"))
    await broker.answers(1, BrokerUnavailable("gone"))
    for one in (first, second, third):
        with pytest.raises(BrokerUnavailable):
            await one
    last = broker.ask(1)
    await broker.answers(2, [1])
    assert await last == [1]


@pytest.mark.usefixtures("never_held")
async def test_a_call_asks_for_no_more_than_the_broker_gives() -> None:
    broker = Broker()
    await broker.begun(1)
    waiting = [broker.ask(512) for _ in range(3)]
    await broker.answers(0, [1])
    await broker.answers(1, [2])
    await until(lambda: len(broker.asked) == 3)
    assert [most for most, _ in broker.asked] == [1, 1024, 1024]
    broker.receives.close()
    await asyncio.wait(waiting)
    assert [one.cancelled() for one in waiting] == [False, True, True]
