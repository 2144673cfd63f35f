"""Who is told of an answer in the turn in which it comes."""

import asyncio

from dejamq import BrokerUnavailable, DejamqError
from dejamq.net.stream import AnswerCallback

LOST = BrokerUnavailable("lost", definite=False)


async def test_an_answer_is_told_at_once_and_once() -> None:
    heard: list[int | DejamqError] = []
    told = AnswerCallback[int](heard.append)
    assert not told.done()
    told.set_result(7)
    told.set_result(8)
    told.set_exception(LOST)
    assert (heard, told.done()) == ([7], True)
    await asyncio.sleep(0)
    assert heard == [7]


async def test_a_failure_is_told_in_the_next_turn() -> None:
    heard: list[int | DejamqError] = []
    told = AnswerCallback[int](heard.append)
    told.set_exception(LOST)
    assert heard == []
    await asyncio.sleep(0)
    assert heard == [LOST]


async def test_who_does_not_want_it_any_more_is_not_told() -> None:
    heard: list[int | DejamqError] = []
    told = AnswerCallback[int](heard.append)
    told.cancel()
    told.set_result(7)
    late = AnswerCallback[int](heard.append)
    late.set_exception(LOST)
    late.cancel()
    await asyncio.sleep(0)
    assert heard == []
