"""Questions of one iteration of the loop that leave as one call, and are told each its own answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from dejamq_proto.codes import DejamqError

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class OneCall(Generic[Request, Answer]):
    """Owned by the event loop."""

    def __init__(
        self, all_at_once: Callable[[Sequence[Request]], "Awaitable[list[Answer | DejamqError]]"],
        alone: Callable[[Request], Awaitable[Answer]],
    ) -> None:  # fmt: skip
        """Whom ``all_at_once`` leaves without an answer is asked ``alone``: servers of before read but the first."""
        self._all_at_once, self._alone = all_at_once, alone
        self._asked: list[tuple[Request, asyncio.Future[Answer]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, request: Request) -> Answer:
        """The answer. Raises what the server refuses this question with, and what all of them failed with."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Answer] = loop.create_future()
        self._asked.append((request, told))
        if len(self._asked) == 1:
            loop.call_soon(self._leave)
        return await told

    async def close(self) -> None:
        """Questions under way are cancelled. May be called twice."""
        asked, self._asked = self._asked, []
        for _, told in asked:
            told.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def _leave(self) -> None:
        asked, self._asked = [each for each in self._asked if not each[1].done()], []
        if asked:
            task = asyncio.get_running_loop().create_task(self._tell(asked))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, asked: "list[tuple[Request, asyncio.Future[Answer]]]") -> None:
        """Whatever happens, nobody waits for ever."""
        answers: Sequence[Answer | Exception]
        try:
            answers = await self._answers([request for request, _ in asked])
        except asyncio.CancelledError:
            for _, told in asked:
                told.cancel()
            raise
        except Exception as error:  # a fault of ours: the caller is told of it
            answers = [error] * len(asked)
        for (_, told), answer in zip(asked, answers, strict=True):
            if told.done():
                continue
            if isinstance(answer, Exception):
                told.set_exception(answer)
            else:
                told.set_result(answer)

    async def _answers(self, requests: list[Request]) -> "list[Answer | DejamqError]":
        try:
            answers = await self._all_at_once(requests) if len(requests) > 1 else []
        except DejamqError as error:
            return [error] * len(requests)
        return answers + await asyncio.gather(*map(self._alone_or_why, requests[len(answers) :]))

    async def _alone_or_why(self, request: Request) -> "Answer | DejamqError":
        try:
            return await self._alone(request)
        except DejamqError as error:
            return error
