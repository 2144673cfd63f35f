"""Questions for offsets and awaited commits of one turn: one call, and each is told its own."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from dejamq.net.offset_calls import OffsetCalls
from dejamq_proto.client_pb2 import (
    OffsetAnswer,
    OffsetResponse,
    QueryOffsetRequest,
    UpdateOffsetRequest,
    UpdateOffsetResponse,
)
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, SendTimeout
from dejamq_proto.common_pb2 import QueueKey


class Broker:
    """Knows offsets of queues 0 to 9, refuses commits of queue 7; ``failure`` is raised instead of any answer."""

    def __init__(self, *, reads_also: bool = True, failure: DejamqError | None = None) -> None:
        self.reads_also, self.failure = reads_also, failure
        self.asked: list[list[int]] = []
        self.committed: list[int] = []
        self.offsets = OffsetCalls(self.query, self.update)

    async def query(self, request: QueryOffsetRequest) -> OffsetResponse:
        self.came(request)
        queue_ids = [each.queue.queue_id for each in (request, *request.also)]
        if len(queue_ids) > 1 and self.reads_also:
            return OffsetResponse(answers=map(self.answer, queue_ids))
        if (found := self.answer(queue_ids[0])).code:
            raise DejamqError(found.remark, code=Code(found.code))
        return OffsetResponse(offset=found.offset)

    def answer(self, queue_id: int) -> OffsetAnswer:
        if queue_id >= 20:
            return OffsetAnswer(code=Code.SYSTEM_ERROR, remark="broken")
        known = queue_id < 10
        return OffsetAnswer(offset=100 + queue_id) if known else OffsetAnswer(code=Code.QUERY_NOT_FOUND)

    async def update(self, request: UpdateOffsetRequest) -> UpdateOffsetResponse:
        self.came(request)
        queue_ids = [each.queue.queue_id for each in (request, *(request.also if self.reads_also else ()))]
        self.committed += [queue_id for queue_id in queue_ids if queue_id != 7]
        if request.answer_each and self.reads_also:
            return UpdateOffsetResponse(answers=map(self.told, queue_ids))
        if 7 in queue_ids:
            raise DejamqError("no such queue", code=Code.INVALID_PARAMETER)
        return UpdateOffsetResponse()

    def told(self, queue_id: int) -> OffsetAnswer:
        return OffsetAnswer(code=Code.INVALID_PARAMETER, remark="no such queue") if queue_id == 7 else OffsetAnswer()

    def came(self, request: QueryOffsetRequest | UpdateOffsetRequest) -> None:
        self.asked.append([each.queue.queue_id for each in (request, *request.also)])
        if self.failure is not None:
            raise self.failure

    def ask(self, queue_id: int) -> Awaitable[int | None]:
        return self.offsets.query(QueryOffsetRequest(group="g", queue=QueueKey(topic="t", queue_id=queue_id)))

    def commit(self, queue_id: int) -> Awaitable[None]:
        return self.offsets.commit(UpdateOffsetRequest(group="g", queue=QueueKey(topic="t", queue_id=queue_id)))


async def all_of(*waited: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*waited, return_exceptions=True)


async def test_questions_of_one_turn_are_one_call_and_each_has_its_own_answer() -> None:
    broker = Broker()
    *found, failed = await all_of(*map(broker.ask, (3, 12, 0, 21)))
    assert found == [103, None, 100]
    assert (type(failed), failed.code) == (DejamqError, Code.SYSTEM_ERROR)
    assert await broker.ask(4) == 104
    assert await broker.ask(13) is None
    assert broker.asked == [[3, 12, 0, 21], [4], [13]]


@pytest.mark.parametrize("first", [3, 12])
async def test_a_broker_that_reads_only_the_first_question_is_asked_one_by_one(first: int) -> None:
    broker = Broker(reads_also=False)
    assert await all_of(*map(broker.ask, (first, 5, 14))) == [103 if first == 3 else None, 105, None]
    assert broker.asked == [[first, 5, 14], [first], [5], [14]]


async def test_commits_of_one_turn_are_one_call() -> None:
    broker = Broker()
    assert await all_of(*map(broker.commit, (1, 2, 3))) == [None, None, None]
    assert (broker.asked, broker.committed) == ([[1, 2, 3]], [1, 2, 3])


async def test_a_commit_that_is_refused_in_one_call_with_others_makes_none_of_them_come_twice() -> None:
    broker = Broker()
    first, refused, last = await all_of(*map(broker.commit, (1, 7, 3)))
    assert (first, last, refused.code, str(refused)) == (None, None, Code.INVALID_PARAMETER, "no such queue")
    assert (broker.asked, broker.committed) == ([[1, 7, 3]], [1, 3])


@pytest.mark.parametrize("first", [1, 7])
async def test_a_broker_that_takes_only_the_first_commit_gets_each_of_the_others_alone(first: int) -> None:
    broker = Broker(reads_also=False)
    told, *others = await all_of(*map(broker.commit, (first, 2, 3)))
    assert (getattr(told, "code", None), others) == (Code.INVALID_PARAMETER if first == 7 else None, [None, None])
    assert broker.asked == [[first, 2, 3], [2], [3]]
    assert broker.committed == ([] if first == 7 else [first]) + [2, 3]


@pytest.mark.parametrize("failure", [SendTimeout("late"), BrokerUnavailable("gone", definite=False), DejamqError("?")])
async def test_a_call_without_an_answer_is_a_failure_of_all_that_it_held_and_is_not_made_again(
    failure: DejamqError,
) -> None:
    broker = Broker(failure=failure)
    assert await all_of(*map(broker.commit, (1, 2))) == [failure, failure]
    assert await all_of(*map(broker.ask, (1, 2))) == [failure, failure]
    assert broker.asked == [[1, 2], [1, 2]]


async def test_who_stops_waiting_in_the_same_turn_is_not_asked_for_and_keeps_nobody_else_waiting() -> None:
    broker = Broker()
    waiting = [asyncio.ensure_future(broker.ask(queue_id)) for queue_id in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    found = await all_of(*waiting)
    assert (found[0], found[2], type(found[1])) == (100, 102, asyncio.CancelledError)
    assert broker.asked in ([[0, 2]], [[0, 1, 2]])
