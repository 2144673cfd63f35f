"""One bidirectional stream to a broker on which numbered questions get numbered answers.

Sends, pulls and heartbeats each have one. It opens on first use. When it breaks, every question without an answer fails
with BrokerUnavailable, ``definite`` for those that never left; the next question opens it again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc.aio
from dejamq_proto.calling import error_from
from dejamq_proto.codes import BrokerUnavailable, DejamqError

log = logging.getLogger("dejamq")

END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # grpc-stubs lacks it
NO_ANSWER = 0
READ_S = 1.0
"""So long a broker may take at the end to read what it was told and answers with nothing."""
Answer = TypeVar("Answer")
Decode = Callable[[bytes], list[tuple[int, Answer]]]  # seq of the question, 0 for what the broker says unasked
Join = Callable[[list[bytes]], bytes]  # several questions as one frame


class Told(Generic[Answer]):
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

    def __init__(self, channel: grpc.aio.Channel, path: str, address: str, decode: Decode[Answer]) -> None:
        self._open: Any = channel.stream_stream(path, request_serializer=None, response_deserializer=None)
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

    def ask(self, seq: int, frame: bytes) -> asyncio.Future[Answer]:
        """Send a question; its answer, or the failure of the stream, resolves the future. Cancel it to forget it."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.ask_for(future, seq, frame)
        return future

    def ask_for(self, waiter: "asyncio.Future[Answer] | Told[Answer]", seq: int, frame: bytes) -> None:
        """As ``ask``, for a waiter that is there already."""
        if self._closed:
            waiter.set_exception(BrokerUnavailable(f"the connection to {self.address} is closed", definite=True))
            return
        if self._connection is None or self._connection.broken:
            self._connection = _Connection(self, self._open())
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
    def open(self) -> bool:
        """A connection is up, or about to be."""
        return self._connection is not None and not self._connection.broken

    def break_off(self, reason: str) -> None:
        """Give the stream up: all its unanswered questions fail, and the next one opens another."""
        if self._connection is not None:
            self._connection.break_off(BrokerUnavailable(f"{self.address}: {reason}", definite=False))

    async def close(self) -> None:
        """End the stream. What is unanswered fails. May be called twice.

        The broker reads first what nobody answers: to cancel at once would also discard what has arrived there.
        """
        self._closed = True
        self.on_push, self.on_break = lambda answer: None, lambda error: None
        if self._connection is not None and self._connection.end():
            await asyncio.wait(tuple(self._tasks), timeout=READ_S)
        self.break_off("the client closed the connection")
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))


class _Connection(Generic[Answer]):
    """One life of the stream, from opening to breaking."""

    def __init__(self, stream: AnswerStream[Answer], call: Any) -> None:
        self._stream, self._call = stream, call
        self._unsent: deque[tuple[int, bytes]] = deque()
        self._pending: dict[int, asyncio.Future[Answer] | Told[Answer]] = {}
        self._wake: asyncio.Future[None] | None = None
        self._told = self._ending = False
        self.broken = False

    def ask(self, seq: int, frame: bytes, waiter: "asyncio.Future[Answer] | Told[Answer]") -> None:
        """``seq`` may not be in use by another question of this connection."""
        self._pending[seq] = waiter
        self.send(seq, frame)

    def send(self, seq: int, frame: bytes) -> None:
        """Put it behind what is not sent yet."""
        self._unsent.append((seq, frame))
        self._told |= seq == NO_ANSWER
        self._wake_writer()

    def end(self) -> bool:
        """Send nothing after what is unsent now. False where that tells nobody anything: all else was answered."""
        if self.broken or not self._told:
            return False
        self._ending = True
        self._wake_writer()
        return True

    def _wake_writer(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def run(self) -> None:
        """Read until the end, whatever it is; every unanswered question has failed when this returns."""
        writer = asyncio.get_running_loop().create_task(self._write())
        try:
            self.break_off(await self._read())
        finally:
            self.break_off(BrokerUnavailable(f"the connection to {self._stream.address} was given up", definite=False))
            writer.cancel()
            await asyncio.wait((writer,))

    async def _read(self) -> DejamqError:
        """Deliver answers until the stream ends; the reason for its end."""
        address = self._stream.address
        try:
            while (frame := await self._call.read()) is not END:
                for seq, answer in self._stream.decode(frame):
                    self._deliver(seq, answer)
        except grpc.aio.AioRpcError as error:
            return error_from(error, address)
        except asyncio.CancelledError:
            if not self.broken:  # the task itself is cancelled, not only the call by break_off
                raise
        except ValueError as error:
            return BrokerUnavailable(f"{address} sent bytes that are no answer: {error}", definite=False)
        return BrokerUnavailable(f"{address} ended the stream", definite=False)

    def _deliver(self, seq: int, answer: Answer) -> None:
        """An answer nobody waits for any more is dropped, as RocketMQ drops a response whose opaque is gone."""
        if not seq:
            self._stream.on_push(answer)
            return
        future = self._pending.pop(seq, None)
        if future is not None and not future.done():
            future.set_result(answer)

    async def _write(self) -> None:
        try:
            while True:
                while self._unsent:
                    await self._call.write(self._next_frame())
                if self._ending:
                    await self._call.done_writing()
                    return
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the reader learns why and tells

    def _next_frame(self) -> bytes:
        join, unsent = self._stream.join, self._unsent
        if join is None or len(unsent) == 1:
            return unsent.popleft()[1]
        frames = [frame for _, frame in unsent]
        unsent.clear()
        return join(frames)

    def break_off(self, error: DejamqError) -> None:
        """Fail what is unanswered; only the first call counts."""
        if self.broken:
            return
        self.broken = True
        self._call.cancel()
        never_left = {seq for seq, _ in self._unsent}
        if NO_ANSWER in never_left:
            log.warning("oneway_failed address=%s reason=%s", self._stream.address, error)
        for seq, future in self._pending.items():
            if not future.done():
                future.set_exception(self._failure(error, definite=seq in never_left))
        self._pending.clear()
        self._unsent.clear()
        self._stream.on_break(error)

    def _failure(self, error: DejamqError, *, definite: bool) -> DejamqError:
        return type(error)(str(error), code=error.code, definite=definite or error.definite)
