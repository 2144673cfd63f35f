"""Questions of one turn that share a call: what becomes of them when it goes wrong."""

import asyncio
from collections.abc import Sequence

import pytest
from dejamq.net.coalescing import OneCall
from dejamq_proto.codes import DejamqError


async def alone(number: int) -> int:
    return number


async def test_whoever_asked_is_told_of_a_fault_and_does_not_wait_for_ever() -> None:
    async def broken(numbers: Sequence[int]) -> list[int | DejamqError]:
        raise RuntimeError("a fault")

    questions: OneCall[int, int] = OneCall(broken, alone)
    told = await asyncio.wait_for(asyncio.gather(questions.ask(1), questions.ask(2), return_exceptions=True), 5)
    assert [str(each) for each in told] == ["a fault", "a fault"]


async def test_closing_ends_those_that_have_left_and_those_that_have_not() -> None:
    asked = asyncio.Event()

    async def endless(numbers: Sequence[int]) -> list[int | DejamqError]:
        asked.set()
        await asyncio.Event().wait()
        return []

    questions: OneCall[int, int] = OneCall(endless, alone)
    left = [asyncio.create_task(questions.ask(number)) for number in (1, 2)]
    await asyncio.wait_for(asked.wait(), 20)
    waits = asyncio.create_task(questions.ask(3))
    await asyncio.sleep(0)
    await questions.close()
    await questions.close()
    for task in (*left, waits):
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 20)
