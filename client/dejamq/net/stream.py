"""One bidirectional stream to a broker on which numbered questions get numbered answers.

Sends, pulls and heartbeats each have one. It opens on first use. When it breaks, every question without an answer fails
with BrokerUnavailable, ``definite`` for those that never left; the next question opens it again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from dejamq_proto.codes import BrokerUnavailable, DejamqError
from dejamq_proto.wire.framed import Frame, Pieces

from dejamq.net.transport import FrameSource, Wire

log = logging.getLogger("dejamq")

NO_ANSWER = 0
READ_S = 1.0
"""So long a broker may take at the end to read what it was told and answers with nothing."""
Answer = TypeVar("Answer")
Decode = Callable[[Frame], list[tuple[int, Answer]]]  # seq of the question, 0 for a frame that the broker sends unasked
Join = Callable[[list[Any]], bytes]  # several questions as one frame
Open = Callable[[FrameSource], Awaitable[Wire]]


class AnswerCallback(Generic[Answer]):
    """Stands where a future would, for whoever acts on an answer in the very turn in which it comes.

    A turn of the loop for each answer is a tenth of what a lonely send costs. A failure, which ends many questions at
    once, is told in the next turn.
    """

    __slots__ = ("_tell",)

    def __init__(self, tell: "Callable[[Answer | DejamqError], object]") -> None:
        self._tell: Callable[[Answer | DejamqError], object] | None = tell

    def done(self) -> bool:
        """Told, or not wanted any more."""
        return self._tell is None

    def cancel(self) -> None:
        """Do not tell."""
        self._tell = None

    def set_result(self, answer: Answer) -> None:
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell(answer)

    def set_exception(self, error: DejamqError) -> None:
        asyncio.get_running_loop().call_soon(self._fail, error)

    def _fail(self, error: DejamqError) -> None:
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell(error)


class AnswerStream(Generic[Answer]):
    """Opens connections of one kind, one at a time; owned by the event loop."""

    def __init__(self, open_wire: Open, address: str, decode: Decode[Answer]) -> None:
        self.open_wire = open_wire
        self.address = address
        self.decode = decode
        self.join: Join | None = None
        """Puts questions that are asked at the same time into one frame, where the broker reads such frames."""
        self.on_push: Callable[[Answer], None] = lambda answer: None
        self.on_break: Callable[[DejamqError], None] = lambda error: None
        self.connections = 0
        """How many there were: whether what the broker said on one of them still holds."""
        self._connection: _Connection[Answer] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def ask(self, seq: int, frame: Pieces) -> asyncio.Future[Answer]:
        """Send a question; its answer, or the failure of the stream, resolves the future. Cancel it to forget it."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.ask_for(future, seq, frame)
        return future

    def ask_for(self, waiter: "asyncio.Future[Answer] | AnswerCallback[Answer]", seq: int, frame: Pieces) -> None:
        """As ``ask``, for a waiter that is there already."""
        if self._closed:
            waiter.set_exception(BrokerUnavailable(f"the connection to {self.address} is closed", definite=True))
            return
        if self._connection is None or self._connection.broken:
            self._connection = _Connection(self)
            self.connections += 1
            task = asyncio.get_running_loop().create_task(self._connection.run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._connection.ask(seq, frame, waiter)

    def tell(self, frame: bytes) -> None:
        """Send what nobody answers, on a connection that is ``open``; a failure is only logged."""
        assert self._connection is not None, "look whether it is open"
        self._connection.send(NO_ANSWER, frame)

    @property
    def waiting(self) -> int:
        """How many questions have no answer yet."""
        return 0 if self._connection is None else len(self._connection.waiters)

    @property
    def open(self) -> bool:
        """A connection is up, or about to be."""
        return self._connection is not None and not self._connection.broken

    def break_off(self, reason: str) -> None:
        """Give the stream up: all its unanswered questions fail, and the next one opens another."""
        if self._connection is not None:
            self._connection.break_off(BrokerUnavailable(f"{self.address}: {reason}", definite=False))

    async def close(self) -> None:
        """End the stream. Unanswered frames fail. May be called twice.

        The broker first reads frames that get no answer: an immediate cancel would also discard those that arrived.
        """
        self._closed = True
        self.on_push, self.on_break = lambda answer: None, lambda error: None
        if self._connection is not None and self._connection.end():
            await asyncio.wait(tuple(self._tasks), timeout=READ_S)
        self.break_off("the client closed the connection")
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))


class _Connection(Generic[Answer]):
    """One life of the stream, from opening to breaking: the line that its wire carries."""

    def __init__(self, stream: AnswerStream[Answer]) -> None:
        self._stream = stream
        self._wire: Wire | None = None
        self._unsent: deque[tuple[int, Pieces]] = deque()
        self.waiters: dict[int, asyncio.Future[Answer] | AnswerCallback[Answer]] = {}
        self._told = self.ending = False
        self.broken = False

    def ask(self, seq: int, frame: Pieces, waiter: "asyncio.Future[Answer] | AnswerCallback[Answer]") -> None:
        """``seq`` may not be in use by another question of this connection."""
        self.waiters[seq] = waiter
        self.send(seq, frame)

    def send(self, seq: int, frame: Pieces) -> None:
        """Put it behind what is not sent yet."""
        self._unsent.append((seq, frame))
        self._told |= seq == NO_ANSWER
        self._poke()

    def end(self) -> bool:
        """Send nothing after what is unsent now. False where that tells nobody anything: all else was answered."""
        if self.broken or not self._told:
            return False
        self.ending = True
        self._poke()
        return True

    async def run(self) -> None:
        """Carry until the end, whatever it is; every unanswered question has failed when this returns."""
        try:
            self._wire = wire = await self._stream.open_wire(self)
            if not self.broken:
                wire.poke()
                self.break_off(await wire.carry())
        finally:
            self.break_off(BrokerUnavailable(f"the connection to {self._stream.address} was given up", definite=False))
            if self._wire is not None:
                self._wire.cancel()

    def next_frame(self) -> Pieces | None:
        """As ``FrameSource`` says."""
        join, unsent = self._stream.join, self._unsent
        while unsent and self._unwanted(unsent[0][0]):
            unsent.popleft()
        if not unsent:
            return None
        if join is None or len(unsent) == 1:
            return unsent.popleft()[1]
        frames = [frame for seq, frame in unsent if not self._unwanted(seq)]
        unsent.clear()
        return join(frames)

    def _unwanted(self, seq: int) -> bool:
        """Nobody waits for its answer any more, and it has not left: while a wire opens there is time for that."""
        if seq == NO_ANSWER:
            return False
        waiter = self.waiters.get(seq)
        if waiter is not None and not waiter.done():
            return False
        self.waiters.pop(seq, None)
        return True

    def received(self, frame: Frame) -> None:
        """Deliver the answers in it.

        One that nobody waits for any more is dropped, as RocketMQ drops a response whose opaque is gone.
        """
        for seq, answer in self._stream.decode(frame):
            if not seq:
                self._stream.on_push(answer)
                continue
            future = self.waiters.pop(seq, None)
            if future is not None and not future.done():
                future.set_result(answer)

    def _poke(self) -> None:
        if self._wire is not None:
            self._wire.poke()

    def break_off(self, error: DejamqError) -> None:
        """Fail what is unanswered; only the first call counts."""
        if self.broken:
            return
        self.broken = True
        if self._wire is not None:
            self._wire.cancel()
        never_left = {seq for seq, _ in self._unsent}
        if NO_ANSWER in never_left:
            log.warning("oneway_failed address=%s reason=%s", self._stream.address, error)
        for seq, future in self.waiters.items():
            if not future.done():
                future.set_exception(self._failure(error, definite=seq in never_left))
        self.waiters.clear()
        self._unsent.clear()
        self._stream.on_break(error)

    def _failure(self, error: DejamqError, *, definite: bool) -> DejamqError:
        return type(error)(str(error), code=error.code, definite=definite or error.definite)
