"""Queries of offsets and awaited commits; all of one iteration of the event loop leave as one call.

A consumer that opens or drops hundreds of queues asks or commits for each. With a call for each, these calls were half
of the cost of 800 queues at both ends, until all messages were consumed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dejamq_proto.client_pb2 import (
    OffsetAnswer,
    OffsetResponse,
    QueryOffsetRequest,
    UpdateOffsetRequest,
    UpdateOffsetResponse,
)
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, error_for

from dejamq.net.coalescing import OneCall

Joinable = TypeVar("Joinable", QueryOffsetRequest, UpdateOffsetRequest)


class OffsetCalls:
    """Owned by the event loop. Both calls go to one broker, and raise DejamqError."""

    def __init__(
        self, query: Callable[[QueryOffsetRequest], Awaitable[OffsetResponse]],
        update: Callable[[UpdateOffsetRequest], Awaitable[UpdateOffsetResponse]],
    ) -> None:  # fmt: skip
        self._query, self._update = query, update
        self._questions: OneCall[QueryOffsetRequest, int | None] = OneCall(self._query_all, self._query_alone)
        self._commits: OneCall[UpdateOffsetRequest, None] = OneCall(self._commit_all, self._commit_alone)

    async def query(self, request: QueryOffsetRequest) -> int | None:
        """The committed offset, None when the broker has none. Raises what the broker refuses this question with."""
        return await self._questions.ask(request)

    async def commit(self, request: UpdateOffsetRequest) -> None:
        """Done when the broker has it. Raises what it refuses this commit with."""
        await self._commits.ask(request)

    async def commit_each(self, requests: Sequence[UpdateOffsetRequest]) -> None:
        """Done when the broker decided all of them; raises what it refused the first one with."""
        for failure in await asyncio.gather(*map(self.commit, requests), return_exceptions=True):
            if failure is not None:
                raise failure

    async def _query_alone(self, request: QueryOffsetRequest) -> int | None:
        try:
            return (await self._query(request)).offset
        except DejamqError as error:
            if error.code == Code.QUERY_NOT_FOUND:
                return None
            raise

    async def _query_all(self, requests: Sequence[QueryOffsetRequest]) -> "list[int | DejamqError | None]":
        try:
            answers = (await self._query(_joined(requests))).answers
        except DejamqError as error:
            if error.code != Code.QUERY_NOT_FOUND:
                raise
            return []
        return list(map(_offset_in, answers)) if len(answers) == len(requests) else []

    async def _commit_alone(self, request: UpdateOffsetRequest) -> None:
        await self._update(request)

    async def _commit_all(self, requests: Sequence[UpdateOffsetRequest]) -> "list[DejamqError | None]":
        """An answered commit is never sent again: it could set back another member's offset."""
        joined = _joined(requests)
        joined.answer_each = True
        try:
            answers = (await self._update(joined)).answers
        except DejamqError as error:
            if isinstance(error, BrokerUnavailable) or not error.definite:
                raise
            return [error]
        return list(map(_refusal_in, answers)) if len(answers) == len(requests) else [None]


def _joined(requests: Sequence[Joinable]) -> Joinable:
    """One that has the others inside it; they stay as they are."""
    first = type(requests[0])()
    first.CopyFrom(requests[0])
    first.also.extend(requests[1:])
    return first


def _offset_in(answer: OffsetAnswer) -> "int | DejamqError | None":
    if answer.code == Code.SUCCESS:
        return answer.offset
    return None if answer.code == Code.QUERY_NOT_FOUND else error_for(answer.code, answer.remark)


def _refusal_in(answer: OffsetAnswer) -> DejamqError | None:
    return None if answer.code == Code.SUCCESS else error_for(answer.code, answer.remark)
