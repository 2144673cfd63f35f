"""The fast port: connections whose frames are the messages of one streaming call, with gRPC left out.

RocketMQ: the fast remoting server of BrokerController, which takes sends beside the common one. This one takes pulls as
well. A handler gets objects in the places of gRPC's request iterator and context, so one handler serves both doors.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import grpc.aio
from dejamq_proto.access.admission import address_of
from dejamq_proto.access.guard import Guard
from dejamq_proto.account import HEADER
from dejamq_proto.codes import Code, ConfigError, DejamqError
from dejamq_proto.fast_pb2 import Hello, Welcome, WhereRequest, WhereResponse
from dejamq_proto.fast_pb2_grpc import FastServicer
from dejamq_proto.serving.acceptor import Acceptor, peer_name, peer_of
from dejamq_proto.serving.half_frames import HalfFrames
from dejamq_proto.serving.listening import bound, end_listening, listen
from dejamq_proto.wire.calling import MAX_FRAME_BYTES
from dejamq_proto.wire.frame_stream import FrameStream
from dejamq_proto.wire.framed import Frame, Pieces
from google.protobuf.message import DecodeError

from dejamq_broker.base.identity import Site

log = logging.getLogger(__name__)

HELLO_S, HELLO_BYTES = 5.0, 4096
"""The time, and the bytes, that a connection may take to say what it wants."""
LINGER_S = 5.0
"""The time that an answered connection waits for its client to end it."""
NO_PORT, ANY_PORT, BELOW = -1, 0, 2


def as_it_is(frame: Frame) -> Frame:
    """For who reads the bytes himself."""
    return frame


class Method(NamedTuple):
    """A streaming call, how its requests are read, and how large one may be."""

    handler: Callable[[Any, Any], Awaitable[None]]
    decode: Callable[[Frame], Any] = as_it_is
    most_bytes: int = MAX_FRAME_BYTES


class Conversation(FrameStream):
    """One connection as a handler sees it: an iterator of requests."""

    def __init__(self, accepted: "Callable[[Conversation], None]", halves: HalfFrames) -> None:
        """``accepted`` is called when there is a connection."""
        super().__init__()
        self._accepted, self._halves = accepted, halves
        self.most_bytes = HELLO_BYTES
        self.decode: Callable[[Frame], Any] = as_it_is

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer = peer_name(peer_of(transport))
        self._accepted(self)

    def buffer_updated(self, nbytes: int) -> None:
        """A frame that waits because the handler is busy has no limit of time."""
        before = self.coming
        super().buffer_updated(nbytes)
        if self.coming and not self.held:
            now_s = asyncio.get_running_loop().time()
            self._halves.keep(self, self.come_bytes, now_s, new=self.coming is not before)
        elif before:
            self._halves.forget(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._halves.forget(self)
        super().connection_lost(exc)

    def give_up(self, reason: str) -> None:
        """End it at once, with a line in the log."""
        log.warning("fast_refused peer=%s reason=%s", self._peer, reason)
        self.fail(reason)

    def __aiter__(self) -> "Conversation":
        return self

    async def __anext__(self) -> Any:
        """Bytes that are no request end the connection, after the answers to the requests before them."""
        try:
            return self.decode(await self.read())
        except ConnectionError:
            pass
        except DecodeError as error:
            log.info("fast_refused peer=%s reason=%s", self._peer, error)
        raise StopAsyncIteration

    def peer(self) -> str:
        """In gRPC's words."""
        return self._peer


class HandlerContext(NamedTuple):
    """The part of gRPC's context that handlers use."""

    write: Callable[[Pieces], Awaitable[None]]
    peer: Callable[[], str]
    invocation_metadata: Callable[[], Any]


class FastDoor(FastServicer):
    """Listens beside the gRPC server, and says there where. Its port is 0 before ``start`` and after ``close``."""

    def __init__(
        self, site: Site, methods: Mapping[str, Method], acceptor: Acceptor, guard: Guard | None = None
    ) -> None:
        """``methods`` by their full names. ``acceptor`` is the public port's, whose doors are open here as well.

        ``guard`` is asked once for each connection who it is; handlers ask it for each message.
        """
        self._guard = guard
        self.acceptor, self._closing = acceptor, False
        self._site, self._methods, self._beside, self._grpc_port = site, methods, 0, 0
        self._held: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.conversations: set[Conversation] = set()
        self.halves = HalfFrames()
        self._settled = asyncio.Event()
        self.port = 0

    def open(self) -> Conversation:
        """The protocol of one connection that wants this door."""
        return Conversation(self._accepted, self.halves)

    async def Where(self, _: WhereRequest, context: grpc.aio.ServicerContext[Any, Any]) -> WhereResponse:
        """Never refused. A caller that asks before the result is known waits for it.

        The port that this one is beside of is the one that the caller reached: gRPC's own, or the public one.
        """
        await self._settled.wait()
        beside = self._beside if self.acceptor.was_relayed(context.peer()) else self._grpc_port
        return WhereResponse(port=self.port, boot_id=self._site.boot_id, beside=beside)

    async def start(self, bound: str, port: int, direct: str = "") -> None:
        """Listen beside the server at ``bound``, at this port as ``fast_port`` means it. Raises ConfigError.

        ``direct`` is gRPC's own address where that is another one.
        """
        host, _, beside = bound.rpartition(":")
        self._beside = int(beside)
        self._grpc_port = int((direct or bound).rpartition(":")[2])
        try:
            if port != NO_PORT:
                await self._listen(host.strip("[]"), port)
        finally:
            self._settled.set()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self.conversations)

    def stop_listening(self) -> None:
        """Connections that are there go on. May be called twice."""
        self.port = 0
        end_listening(self._held)

    async def close(self, grace_ms: float = 0) -> None:
        """Accept nothing more; connections whose handlers ended may read their answers for this time.

        May be called twice.
        """
        self.stop_listening()
        self._closing = True
        self._settled.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_ms / 1000)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LINGER_S)
        self.halves.close()

    async def _listen(self, host: str, port: int) -> None:
        """gRPC serves everything as well, so only a port that somebody chose has to be free."""
        for candidate in (port,) if port else (max(self._beside - BELOW, ANY_PORT), ANY_PORT):
            try:
                self._held = await bound(host, candidate)
                await listen(self._held, self.acceptor.arriving)
            except OSError as error:
                refusal = error.strerror
            else:
                self.port = self._held[0].getsockname()[1]
                log.info("fast_port address=%s:%d", host, self.port)
                return
        if port:
            raise ConfigError(f"fast_port: cannot listen on {host}:{port}: {refusal}")
        log.warning("fast_port_none host=%s reason=%s", host, refusal)

    def _accepted(self, conversation: Conversation) -> None:
        """As gRPC does, the loss of a connection cancels its handler."""
        if self._closing:
            conversation.fail("the broker closes")
            return
        task = asyncio.get_running_loop().create_task(self._serve(conversation))

        def lost(_: str) -> None:
            self.conversations.discard(conversation)
            task.cancel()

        conversation.lost = lost
        self.conversations.add(conversation)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, conversation: Conversation) -> None:
        """One connection, from its greeting to its end."""
        try:
            async with asyncio.timeout(HELLO_S):
                hello = Hello.FromString(bytes(await conversation.read()))
            await self._converse(conversation, hello)
            async with asyncio.timeout(LINGER_S):
                await conversation.finish()
        except (TimeoutError, DecodeError, ConnectionError) as error:
            conversation.fail(f"it did not speak, or did not end: {error!r}")
        except Exception as error:
            log.warning("fast_failed peer=%s error=%r", conversation.peer(), error)
            conversation.fail(f"the handler failed: {error!r}")
        except asyncio.CancelledError:
            conversation.fail("the connection is lost, or the broker closes")
            raise

    async def _converse(self, conversation: Conversation, hello: Hello) -> None:
        welcome = self._welcome(hello, conversation.peer())
        conversation.write(welcome.SerializeToString())
        if not welcome.code:
            method = self._methods[hello.method]
            conversation.decode, conversation.most_bytes = method.decode, method.most_bytes
            await method.handler(
                conversation, HandlerContext(conversation.send, conversation.peer, lambda: _metadata(hello))
            )

    def _welcome(self, hello: Hello, peer: str) -> Welcome:
        """The answer to a client's hello, with an error code for a client that is not welcome."""
        site = self._site
        welcome = Welcome(boot_id=site.boot_id)
        if hello.boot_id != site.boot_id:
            welcome.code, welcome.remark = int(Code.SYSTEM_ERROR), f"this is {site.broker_name}, started anew"
        elif hello.method not in self._methods:
            code, remark = Code.REQUEST_CODE_NOT_SUPPORTED, f"{hello.method!r:.100} is not served here"
            welcome.code, welcome.remark = int(code), remark
        elif self._guard is not None:
            try:
                self._guard.call(hello.method, _metadata(hello), address_of(peer))
            except DejamqError as error:
                welcome.code, welcome.remark = int(error.code), str(error)
        return welcome


def _metadata(hello: Hello) -> tuple[tuple[str, str], ...]:
    """As a call of the same stream has it over gRPC."""
    return ((HEADER, hello.authorization),)
