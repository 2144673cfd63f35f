"""Acknowledgements on their way to one broker."""

import asyncio
from collections.abc import Sequence

import pytest
from dejamq.simple.acks import MOST_TOGETHER, Acks, Outcomes
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError


class Broker:
    """Keeps the calls; each is answered when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], asyncio.Future[Outcomes]]] = []

    async def call(self, handles: Sequence[str]) -> Outcomes:
        answer: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        self.calls.append((list(handles), answer))
        return await answer


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_comes_while_a_call_is_under_way_leaves_together_and_each_gets_its_own_outcomes() -> None:
    broker = Broker()
    acks = Acks(broker.call)
    first = asyncio.ensure_future(acks.tell(["a"]))
    await turn()
    later = [asyncio.ensure_future(acks.tell(handles)) for handles in (["b", "c"], ["d"])]
    await turn()
    assert [handles for handles, _ in broker.calls] == [["a"]]
    broker.calls[0][1].set_result([None])
    assert await first == [None]
    await turn()
    refusal = DejamqError("no", code=Code.NO_MESSAGE)
    assert broker.calls[1][0] == ["b", "c", "d"]
    broker.calls[1][1].set_result([None, refusal, None])
    assert [await each for each in later] == [[None, refusal], [None]]


async def test_a_call_that_fails_fails_its_own_and_the_next_goes_on() -> None:
    broker = Broker()
    acks = Acks(broker.call)
    first = asyncio.ensure_future(acks.tell(["a"]))
    await turn()
    second = asyncio.ensure_future(acks.tell(["b"]))
    broker.calls[0][1].set_exception(BrokerUnavailable("gone"))
    with pytest.raises(BrokerUnavailable):
        await first
    await turn()
    broker.calls[1][1].set_result([None])
    assert await second == [None]


async def test_no_call_has_more_handles_than_a_broker_takes() -> None:
    sizes = []

    async def call(handles: Sequence[str]) -> Outcomes:
        sizes.append(len(handles))
        await asyncio.sleep(0)
        return [None] * len(handles)

    acks = Acks(call)
    many = [str(number) for number in range(MOST_TOGETHER - 1)]
    outcomes = await asyncio.gather(acks.tell(many), acks.tell(many), acks.tell([*many, *many]))
    assert list(map(len, outcomes)) == [len(many), len(many), 2 * len(many)]
    assert max(sizes) <= MOST_TOGETHER


async def test_closing_leaves_nobody_waiting() -> None:
    broker = Broker()
    acks = Acks(broker.call)
    waiting = [asyncio.ensure_future(acks.tell([handle])) for handle in "ab"]
    await turn()
    acks.close()
    done, _ = await asyncio.wait(waiting, timeout=5)
    assert all(one.cancelled() for one in done)
    assert len(done) == 2


async def test_a_caller_that_is_cancelled_takes_nobody_along() -> None:
    broker = Broker()
    acks = Acks(broker.call)
    one, other = (asyncio.ensure_future(acks.tell([handle])) for handle in "ab")
    await turn()
    one.cancel()
    broker.calls[0][1].set_result([None, None])
    assert await other == [None]
