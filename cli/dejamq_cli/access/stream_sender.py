"""Sends a stream of messages, tells of each one that is stored, and knows exactly how far it came."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from dejamq import BacklogFull, Message, Producer, SendResult
from dejamq_proto.codes import DejamqError

from dejamq_cli.terminal.output import OutputClosed

MOST_IN_FLIGHT = 10_000
Report = Callable[[list[SendResult]], None]


@dataclass
class StreamTally:
    """``submitted`` messages of the stream are ``stored``, surely ``not_stored``, or it is unknown."""

    submitted: int = 0
    stored: int = 0
    not_stored: int = 0
    error: DejamqError | None = None
    """The first failure: of message number ``failed`` (from 1)."""
    failed: int = 0
    unheard: bool = False
    """Nobody reads the reports any more."""

    @property
    def unknown(self) -> int:
        """May be stored or not: a connection broke, a time-out passed, or nobody waited for the answer."""
        return self.submitted - self.stored - self.not_stored


class StreamFeeder:
    """``feed`` reads, ``answers`` reports; either may be ended alone. Memory is bounded by what is in flight."""

    def __init__(self, producer: Producer, report: Report, rate: float) -> None:
        """``report`` gets results in the order of the messages, several at a time when they come fast."""
        self.tally = StreamTally()
        self.ended = asyncio.Event()
        """No further message is wanted: one failed, or the reports cannot be told."""
        self._producer, self._report, self._rate = producer, report, rate
        self._room = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._under_way: asyncio.Queue[asyncio.Future[SendResult] | None] = asyncio.Queue()

    async def feed(self, messages: AsyncIterator[Message]) -> None:
        """Submit until the stream ends. Raises what reading it, or a message that cannot be sent, fails with."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async for message in messages:
            if self._rate and (wait := start + self.tally.submitted / self._rate - loop.time()) > 0:
                await asyncio.sleep(wait)
            await self._room.acquire()
            self._under_way.put_nowait(await self._submit(message))
            self.tally.submitted += 1

    def finish(self) -> None:
        """No further message comes: ``answers`` ends with the last one under way."""
        self._under_way.put_nowait(None)

    async def answers(self) -> None:
        """Report what is stored until ``finish``; a failure is counted, and ends the feeding."""
        gathered: list[SendResult] = []
        answered = 0
        while (future := await self._next(gathered)) is not None:
            answered += 1
            try:
                gathered.append(await future)
            except DejamqError as error:
                self._fail(error, answered)
            self._room.release()

    async def _next(self, gathered: list[SendResult]) -> "asyncio.Future[SendResult] | None":
        """The next submitted send. The gathered results are reported before anything waits for it."""
        if self._under_way.empty() or len(gathered) >= MOST_IN_FLIGHT:
            self._tell(gathered)
        future = await self._under_way.get()
        if future is None or not future.done():
            self._tell(gathered)
        return future

    def _tell(self, gathered: list[SendResult]) -> None:
        results = gathered.copy()
        gathered.clear()
        self.tally.stored += len(results)
        if not results or self.tally.unheard:
            return
        try:
            self._report(results)
        except OutputClosed:
            self.tally.unheard = True
            self.ended.set()

    def _fail(self, error: DejamqError, number: int) -> None:
        self.tally.not_stored += error.definite
        if self.tally.error is None:
            self.tally.error, self.tally.failed = error, number
        self.ended.set()

    async def _submit(self, message: Message) -> "asyncio.Future[SendResult]":
        while True:
            try:
                return self._producer.submit(message)
            except BacklogFull:
                await self._producer.drain()
