"""Connections of the remoting protocol, as both servers have them: read, dispatch, answer, close.

RocketMQ promises no order between two requests of a connection. Here a request that needs no wait is answered before
the next one is read; others are answered when they are ready. Source: RocketMQ ``NettyRemotingAbstract``.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from dejamq_proto import failpoints
from dejamq_proto.access.admission import Hearer
from dejamq_proto.access.guard import Caller, Guard
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.remoting.frames import MAX_FRAME_BYTES, BadFrame, FrameReader, answer, encode
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import REQUESTS
from dejamq_proto.serving.acceptor import peer_of
from dejamq_proto.serving.faults import frame_lost
from dejamq_proto.serving.half_frames import HalfFrames

log = logging.getLogger(__name__)

MOST_RUNNING = 256
"""Requests of one connection that wait for something; while there are more, nothing is read from it."""
MOST_AT_ONCE, MOST_TURN_S = 200, 0.02
"""Requests of one connection that are taken in one round of the event loop, and how long they may take: some write."""
IDLE_S = 120.0
"""A connection without a byte in either direction for so long is closed. Clients send heartbeats each 30 s."""
LAST_WORDS_S = 1.0
"""At the end a client has this time to read what was sent to it."""
GOES_AWAY_SINCE = 475
"""Clients of later versions (RocketMQ's V5_3_1) know GO_AWAY: they send the request again over a new connection."""


class ConnectionSession(Protocol):
    """The server's knowledge of one connection."""

    def closed(self) -> None:
        """The connection has ended."""

    def answered(self, command: Command) -> None:
        """An answer to one of the server's own requests came."""


Of = TypeVar("Of", bound=ConnectionSession)
Answered = Command | None | Awaitable[Command | None]
"""None: the answer comes later through ``Connection.send``, or there is none."""
Handlers = Mapping[int, Callable[[Of, Command], Answered]]


class RemotingDoor(Generic[Of]):
    """All remoting connections of one server. Owned by the event loop."""

    def __init__(self, handlers: "Handlers[Of]", open_session: "Callable[[Connection[Of]], Of]") -> None:
        """``handlers`` by the numbers of their requests. ``open_session`` is called for each new connection."""
        self.handlers, self.open_session = handlers, open_session
        self.guard: Guard | None = None
        """Asked before each request; None: everybody may do everything."""
        self.connections: set[Connection[Of]] = set()
        self.halves = HalfFrames()
        self.closing = False
        self._left = asyncio.Event()

    def open(self) -> asyncio.Protocol:
        """The protocol of one connection that wants this door."""
        return Connection(self)

    async def close(self, grace_ms: float) -> None:
        """Refuse new requests, let running ones end within the grace, then end every connection.

        A oneway request is still done: nobody could be told that it was refused. Every wait here has a limit.
        """
        self.closing = True
        await asyncio.sleep(0)  # answers of requests that were held until now go out first
        await _ended(self._tasks(), grace_ms / 1000)
        tasks = self._tasks()
        for connection in list(self.connections):
            connection.end()
        await self._all_left(LAST_WORDS_S)
        for connection in list(self.connections):
            connection.abort()
        await self._all_left(LAST_WORDS_S)
        await _ended(tasks, LAST_WORDS_S)
        self.halves.close()

    def left(self, connection: "Connection[Of]") -> None:
        """It has ended."""
        self.connections.discard(connection)
        self.halves.forget(connection)
        self._left.set()

    def _tasks(self) -> "set[asyncio.Task[None]]":
        return {task for connection in self.connections for task in connection.tasks}

    async def _all_left(self, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.connections:
                    self._left.clear()
                    await self._left.wait()


async def _ended(tasks: "set[asyncio.Task[None]]", within_s: float) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=within_s)


class _Sessions:
    """What each of several doors knows of one connection."""

    def __init__(self, sessions: "list[ConnectionSession]") -> None:
        self.each = sessions

    def closed(self) -> None:
        for session in self.each:
            session.closed()

    def answered(self, command: Command) -> None:
        for session in self.each:
            session.answered(command)


def together(*doors: "RemotingDoor[Any]") -> "RemotingDoor[Any]":
    """One door for the requests of several, which have no number in common. The guard is that of the first."""

    def of(number: int, handler: Callable[[Any, Command], Answered]) -> Callable[[_Sessions, Command], Answered]:
        return lambda sessions, command: handler(sessions.each[number], command)

    handlers = {
        code: of(number, handler) for number, door in enumerate(doors) for code, handler in door.handlers.items()
    }
    door: RemotingDoor[Any] = RemotingDoor(
        handlers, lambda connection: _Sessions([each.open_session(connection) for each in doors])
    )
    door.guard = doors[0].guard
    return door


class Connection(asyncio.Protocol, Generic[Of]):
    """One client, or one broker, at the other end. A connection that does not read its answers is not read from."""

    def __init__(self, door: RemotingDoor[Of]) -> None:
        self._door, self._reader = door, FrameReader()
        self.tasks: set[asyncio.Task[None]] = set()
        self._deferred: deque[Callable[[], None]] = deque()
        self._late: dict[int, str] = {}
        """With failpoints: the requests that are answered through ``send``, by number, with their names."""
        self._full = self._held = self._goes_on_later = False
        self.peer: tuple[str, int] = ("", 0)
        self._who: Caller | None = None

    @property
    def address(self) -> str:
        """The other end as ``host:port``."""
        host, port = self.peer
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    # by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = peer_of(transport)
        self._loop = asyncio.get_running_loop()
        self._last_s = self._loop.time()
        if self._door.closing:
            self._transport.abort()
            return
        self._timer = self._loop.call_later(IDLE_S, self._look_idle)
        self._door.connections.add(self)
        self.session = self._door.open_session(self)

    def data_received(self, data: bytes) -> None:
        self._last_s = self._loop.time()
        self._reader.receive(data)
        self._work()

    def pause_writing(self) -> None:
        self._full = True
        self._hold()

    def resume_writing(self) -> None:
        """A step may fill the connection again, and put off further steps."""
        self._full = False
        while self._deferred and not self._full:
            step = self._deferred.popleft()
            try:
                step()
            except Exception:
                log.exception("remoting_failed peer=%s", self.address)
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        if self not in self._door.connections:
            return  # it came while the door closed
        self._timer.cancel()
        self._deferred.clear()
        for task in self.tasks:
            task.cancel()
        self._door.left(self)
        self.session.closed()

    # by handlers

    def send(self, command: Command) -> bool:
        """Queue a command; False for a connection that has ended, and for a request that no frame can hold."""
        if self._transport.is_closing():
            return False
        if self._late and command.is_answer and (name := self._late.pop(command.opaque, None)):
            self._start(self._late_answer(name, command))
            return True
        return self._write(command)

    def answer_later(self, command: Command, look: Callable[[], Command | None]) -> None:
        """Look for the answer in a later round of the loop, when the other end reads. None: it comes later still.

        An error of the look is answered as one of a handler, and is nobody else's. It is asked again whether the
        sender may make the request.
        """
        self._loop.call_soon(self.when_it_reads, partial(self._look, command, look))

    def admit(self, command: Command) -> None:
        """Ask who sent this request, and whether he may. Raises PermissionDenied."""
        if (guard := self._door.guard) is not None:
            self._who = guard.remoting(command, self.peer[0])

    @property
    def hearer(self) -> Hearer:
        """The sender of the last request."""
        return Hearer(self._door.guard, self._who)

    @property
    def full(self) -> bool:
        """The other end does not read what was sent to it."""
        return self._full

    def when_it_reads(self, step: Callable[[], None]) -> None:
        """Do this now, or as soon as the other end reads again; never for a connection that ends before."""
        if self._full:
            self._deferred.append(step)
        else:
            step()

    def end(self) -> None:
        """Close it behind what was sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def give_up(self, reason: str) -> None:
        """Close it at once, with a line in the log."""
        log.warning("remoting_refused peer=%s reason=%s", self.address, reason)
        self._transport.abort()

    # its own

    def _write(self, command: Command) -> bool:
        """False for a request that no frame can hold."""
        frame = encode(command)
        if len(frame) > MAX_FRAME_BYTES:
            if not command.is_answer:
                return False
            text = f"the answer has {len(frame)} bytes, a frame holds {MAX_FRAME_BYTES}: ask for less at a time"
            frame = encode(answer(command, Code.SYSTEM_ERROR, text))
        self._last_s = self._loop.time()
        self._transport.write(frame)
        return True

    def _work(self) -> None:
        """Take the requests that are here, as long as their answers are read. Others have their turn in between."""
        if self._goes_on_later:
            return
        taken, until_s = 0, self._loop.time() + MOST_TURN_S
        try:
            while not (self._full or len(self.tasks) >= MOST_RUNNING or self._transport.is_closing()):
                if taken >= MOST_AT_ONCE or self._loop.time() > until_s:
                    self._goes_on_later = True
                    self._loop.call_soon(self._work_on)
                    break
                command = self._reader.next_command()
                if command is None:
                    self._await_rest(new=taken > 0)
                    self._go_on()
                    return
                self._take(command)
                taken += 1
        except BadFrame as error:
            log.info("remoting_refused peer=%s reason=%s", self.address, error)
            self._transport.abort()
            return
        self._door.halves.forget(self)
        self._hold()

    def _await_rest(self, *, new: bool) -> None:
        """``new``: the frame began with the last bytes that came."""
        if held := self._reader.held:
            self._door.halves.keep(self, held, self._last_s, new=new)
        else:
            self._door.halves.forget(self)

    def _work_on(self) -> None:
        self._goes_on_later = False
        self._work()

    def _hold(self) -> None:
        if not self._held and not self._transport.is_closing():
            self._held = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._held and not self._transport.is_closing():
            self._held = False
            self._transport.resume_reading()

    def _take(self, command: Command) -> None:
        if command.is_answer:
            self.session.answered(command)
            return
        if self._door.closing and not command.oneway:
            self._send_away(command)
            return
        if failpoints.ARMED:
            self._run(command, self._at_failpoints(command))
            return
        try:
            answered = self._call(command)
        except Exception as error:
            self._refuse(command, error)
            return
        if isinstance(answered, Command):
            self._answer(command, answered)
        elif answered is not None:
            self._run(command, answered)

    def _send_away(self, command: Command) -> None:
        """RocketMQ: NettyRemotingAbstract, while it is shut down."""
        if command.version > GOES_AWAY_SINCE:
            self._write(answer(command, Code.GO_AWAY, "please go away"))
        else:
            self._write(answer(command, Code.SERVICE_NOT_AVAILABLE, "the server is closing"))

    def _call(self, command: Command) -> Answered:
        self.admit(command)
        handler = self._door.handlers.get(command.code)
        if handler is None:
            text = f" request type {command.code} not supported"
            return answer(command, Code.REQUEST_CODE_NOT_SUPPORTED, text)
        REQUESTS[command.code].check_size(command)
        return handler(self.session, command)

    def _run(self, command: Command, waiting: Awaitable[Command | None]) -> None:
        self._start(self._waited(command, waiting))

    def _start(self, waiting: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(waiting)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if self._held and not self._transport.is_closing():
            self._work()

    async def _waited(self, command: Command, waiting: Awaitable[Command | None]) -> None:
        try:
            answered = await waiting
        except Exception as error:
            self._refuse(command, error)
        else:
            if answered is not None:
                self._answer(command, answered)

    async def _at_failpoints(self, command: Command) -> Command | None:
        """As of a call over gRPC: ``rpc.NAME.request`` and ``rpc.NAME.answer``, by RocketMQ's name of the request.

        An answer that comes later, as a held pull's does, has its failpoint when it comes.
        """
        request = REQUESTS.get(command.code)
        name = request.name if request else str(command.code)
        if await frame_lost(name):
            return None
        self._late[command.opaque], answered = name, None
        try:
            answered = self._call(command)
        finally:
            if answered is not None or command.oneway:
                del self._late[command.opaque]
        if answered is None:
            return None
        if not isinstance(answered, Command):
            answered = await cast(Coroutine[Any, Any, Command | None], answered)
        return None if await frame_lost(name, "answer") else answered

    async def _late_answer(self, name: str, answered: Command) -> None:
        try:
            if await frame_lost(name, "answer"):
                return
        except DejamqError as error:
            answered = answer(answered, int(error.code), str(error))
        if not self._transport.is_closing():
            self._write(answered)

    def _look(self, command: Command, look: Callable[[], Command | None]) -> None:
        if self._transport.is_closing():
            return
        try:
            self.admit(command)
            answered = look()
        except Exception as error:
            self._refuse(command, error)
        else:
            if answered is not None:
                self._answer(command, answered)

    def _refuse(self, command: Command, error: Exception) -> None:
        """What is no refusal of the domain's is a fault of ours, and answered as RocketMQ answers its own."""
        if isinstance(error, DejamqError):
            of_clients = error.code >= Code.CONNECT_BROKER_EXCEPTION  # such numbers never travel
            code = Code.SYSTEM_ERROR if of_clients else error.code
            self._answer(command, answer(command, int(code), str(error)))
            return
        self._failed(command, error)
        self._answer(command, answer(command, Code.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))

    def _answer(self, command: Command, answered: Command) -> None:
        if command.oneway:
            return
        try:
            self.send(answered)
        except Exception as error:  # it cannot be written
            self._failed(command, error)
            self.send(answer(command, Code.SYSTEM_ERROR, f"{type(error).__name__} in the answer to this request"))

    def _failed(self, command: Command, error: Exception) -> None:
        log.error("remoting_failed peer=%s code=%d", self.address, command.code, exc_info=error)

    def _look_idle(self) -> None:
        silent_s = self._loop.time() - self._last_s
        if silent_s >= IDLE_S:
            log.info("remoting_idle peer=%s", self.address)
            self._transport.abort()
            return
        self._timer = self._loop.call_later(IDLE_S - silent_s, self._look_idle)
