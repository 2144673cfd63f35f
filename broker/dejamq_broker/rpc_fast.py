"""The fast port: connections whose frames are the messages of one streaming call, with gRPC left out.

RocketMQ: the fast remoting server of BrokerController, which takes sends beside the common one. This one takes pulls as
well. What a handler is given stands where gRPC's request iterator and context would, so one handler serves both doors.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import grpc.aio
from dejamq_proto.calling import MAX_FRAME_BYTES
from dejamq_proto.codes import Code, ConfigError
from dejamq_proto.fast_pb2 import Hello, Welcome, WhereRequest, WhereResponse
from dejamq_proto.fast_pb2_grpc import FastServicer
from dejamq_proto.frame_stream import FrameStream
from dejamq_proto.framed import Frame, Pieces
from google.protobuf.message import DecodeError

from dejamq_broker.site import Site

log = logging.getLogger(__name__)

HELLO_S, HELLO_BYTES = 5.0, 4096
"""So long a connection may take to say what it wants, and so much may it say."""
LINGER_S = 5.0
"""So long a connection that is answered waits for its client to end it."""
WAITING_CONNECTIONS = 1024
"""As many clients may connect in one step of the loop, as all do after a restart."""
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

    def __init__(self, accepted: "Callable[[Conversation], None]") -> None:
        """``accepted`` is told when there is a connection."""
        super().__init__()
        self._accepted = accepted
        self.most_bytes = HELLO_BYTES
        self.decode: Callable[[Frame], Any] = as_it_is

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = transport.get_extra_info("peername")[:2]
        self._peer = f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
        self._accepted(self)

    def __aiter__(self) -> "Conversation":
        return self

    async def __anext__(self) -> Any:
        """What is no request ends the connection, after the answers to those before it."""
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
    """What handlers use of gRPC's context."""

    write: Callable[[Pieces], Awaitable[None]]
    peer: Callable[[], str]


class FastDoor(FastServicer):
    """Listens beside the gRPC server, and says there where. Its port is 0 before ``start`` and after ``close``."""

    def __init__(self, site: Site, methods: Mapping[str, Method]) -> None:
        """``methods`` by their full names."""
        self._site, self._methods, self._beside = site, methods, 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.conversations: set[Conversation] = set()
        self._settled = asyncio.Event()
        self.port = 0

    async def Where(self, _: WhereRequest, __: grpc.aio.ServicerContext[Any, Any]) -> WhereResponse:
        """Never refused. Who asks before it is known waits for it."""
        await self._settled.wait()
        return WhereResponse(port=self.port, boot_id=self._site.boot_id, beside=self._beside)

    async def start(self, bound: str, port: int) -> None:
        """Listen beside the gRPC server at ``bound``, at this port as ``fast_port`` means it. Raises ConfigError."""
        host, _, beside = bound.rpartition(":")
        self._beside = int(beside)
        try:
            if port != NO_PORT:
                await self._listen(host.strip("[]"), port)
        finally:
            self._settled.set()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self.conversations)

    async def close(self, grace_ms: float = 0) -> None:
        """Accept nothing more; whose handlers ended may read their answers so long. May be called twice."""
        self.port = 0
        self._settled.set()
        if self._server is not None:
            self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_ms / 1000)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _listen(self, host: str, port: int) -> None:
        """gRPC serves everything as well, so only a port that somebody chose has to be free."""
        for candidate in (port,) if port else (max(self._beside - BELOW, ANY_PORT), ANY_PORT):
            try:
                self._server = await self._serving(host, candidate)
            except OSError as error:
                refusal = error.strerror
            else:
                self.port = self._server.sockets[0].getsockname()[1]
                log.info("fast_port address=%s:%d", host, self.port)
                return
        if port:
            raise ConfigError(f"fast_port: cannot listen on {host}:{port}: {refusal}")
        log.warning("fast_port_none host=%s reason=%s", host, refusal)

    async def _serving(self, host: str, port: int) -> asyncio.Server:
        """Whoever listens on every address does so for both families, as gRPC does."""
        loop = asyncio.get_running_loop()
        if host != "::":
            return await loop.create_server(
                lambda: Conversation(self._accepted), host, port, backlog=WAITING_CONNECTIONS
            )
        both = socket.create_server(
            (host, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=WAITING_CONNECTIONS
        )
        return await loop.create_server(lambda: Conversation(self._accepted), sock=both, backlog=WAITING_CONNECTIONS)

    def _accepted(self, conversation: Conversation) -> None:
        """As gRPC does, the loss of a connection cancels its handler."""
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
        welcome = self._welcome(hello)
        conversation.write(welcome.SerializeToString())
        if not welcome.code:
            method = self._methods[hello.method]
            conversation.decode, conversation.most_bytes = method.decode, method.most_bytes
            await method.handler(conversation, HandlerContext(conversation.send, conversation.peer))

    def _welcome(self, hello: Hello) -> Welcome:
        """With a code for whoever is not."""
        site = self._site
        welcome = Welcome(boot_id=site.boot_id)
        if hello.boot_id != site.boot_id:
            welcome.code, welcome.remark = int(Code.SYSTEM_ERROR), f"this is {site.broker_name}, started anew"
        elif hello.method not in self._methods:
            code, remark = Code.REQUEST_CODE_NOT_SUPPORTED, f"{hello.method!r:.100} is not served here"
            welcome.code, welcome.remark = int(code), remark
        return welcome
