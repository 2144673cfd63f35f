"""The fast port: connections whose frames are the messages of one streaming call, with gRPC left out.

RocketMQ: the fast remoting server of BrokerController, which takes sends beside the common one. This one takes pulls as
well. What a handler is given stands where gRPC's request iterator and context would, so one handler serves both doors.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import grpc.aio
from dejamq_proto.calling import MAX_FRAME_BYTES
from dejamq_proto.codes import Code, ConfigError
from dejamq_proto.fast_pb2 import Hello, Welcome, WhereRequest, WhereResponse
from dejamq_proto.fast_pb2_grpc import FastServicer
from dejamq_proto.frame_stream import FrameStream
from google.protobuf.message import DecodeError

from dejamq_broker.site import Site

log = logging.getLogger(__name__)

HELLO_S, HELLO_BYTES = 5.0, 4096
"""So long a connection may take to say what it wants, and so much may it say."""
NO_PORT, ANY_PORT, BELOW = -1, 0, 2


class Method(NamedTuple):
    """A streaming call, and how its requests are read."""

    handler: Callable[[Any, Any], Awaitable[None]]
    decode: Callable[[bytes], Any] = bytes


class Conversation(FrameStream):
    """One connection as a handler sees it: an iterator of requests, whose end cancels the handler."""

    def __init__(self, accepted: "Callable[[Conversation], None]") -> None:
        """``accepted`` is told when there is a connection."""
        super().__init__()
        self._accepted = accepted
        self.most_bytes = HELLO_BYTES
        self.decode: Callable[[bytes], Any] = bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = transport.get_extra_info("peername")[:2]
        self._peer = f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
        self._accepted(self)

    def __aiter__(self) -> "Conversation":
        return self

    async def __anext__(self) -> Any:
        """What is no request ends the connection, after the answers to those before it."""
        frame = await self.read()
        try:
            return self.decode(frame)
        except DecodeError as error:
            log.info("fast_refused peer=%s reason=%s", self._peer, error)
            raise StopAsyncIteration from None

    def peer(self) -> str:
        """In gRPC's words."""
        return self._peer


class Context(NamedTuple):
    """What handlers use of gRPC's."""

    write: Callable[[bytes], Awaitable[None]]
    peer: Callable[[], str]


class FastDoor(FastServicer):
    """Listens beside the gRPC server, and says there where. Its port is 0 before ``start`` and after ``close``."""

    def __init__(self, site: Site, methods: Mapping[str, Method]) -> None:
        """``methods`` by their full names."""
        self._site, self._methods, self._beside = site, methods, 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.conversations: set[Conversation] = set()
        self.port = 0

    async def Where(self, _: WhereRequest, __: grpc.aio.ServicerContext[Any, Any]) -> WhereResponse:
        """Never refused."""
        return WhereResponse(port=self.port, boot_id=self._site.boot_id, beside=self._beside)

    async def start(self, bound: str, port: int) -> None:
        """Listen beside the gRPC server at ``bound``, at this port as ``fast_port`` means it. Raises ConfigError."""
        host, _, beside = bound.rpartition(":")
        self._beside = int(beside)
        if port == NO_PORT:
            return
        usual = max(self._beside - BELOW, ANY_PORT)
        try:
            self._server = await self._listen(host, port or usual)
        except OSError as error:
            if port:
                raise ConfigError(f"fast_port: cannot listen on {host}:{port}: {error.strerror}") from None
            self._server = await self._listen(host, ANY_PORT)
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("fast_port address=%s:%d", host, self.port)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self.conversations)

    async def close(self) -> None:
        """Accept nothing more, and end what handlers did not end by themselves. May be called twice."""
        self.port = 0
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Conversation(self._accepted), host.strip("[]"), port)

    def _accepted(self, conversation: Conversation) -> None:
        """As gRPC does, the end of a connection cancels its handler."""
        task = asyncio.get_running_loop().create_task(self._serve(conversation))

        def lost(_: str) -> None:
            self.conversations.discard(conversation)
            task.cancel()

        conversation.lost = lost
        self.conversations.add(conversation)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, conversation: Conversation) -> None:
        try:
            async with asyncio.timeout(HELLO_S):
                hello = Hello.FromString(await conversation.read())
            method = self._methods.get(hello.method)
            refusal = self._refusal(hello)
            conversation.write(refusal.SerializeToString())
            if method is not None and not refusal.code:
                conversation.decode, conversation.most_bytes = method.decode, MAX_FRAME_BYTES
                await method.handler(conversation, Context(conversation.send, conversation.peer))
            conversation.close()
        except (TimeoutError, DecodeError) as error:
            conversation.fail(f"no request of ours: {error!r}")
        except Exception as error:
            log.warning("fast_failed peer=%s error=%r", conversation.peer(), error)
            conversation.fail(f"the handler failed: {error!r}")
        except asyncio.CancelledError:
            conversation.fail("the broker closes")
            raise

    def _refusal(self, hello: Hello) -> Welcome:
        """Code 0 where there is none."""
        if hello.boot_id != self._site.boot_id:
            return Welcome(code=int(Code.SYSTEM_ERROR), remark=f"this is {self._site.broker_name}, started anew")
        if hello.method not in self._methods:
            return Welcome(
                code=int(Code.REQUEST_CODE_NOT_SUPPORTED), remark=f"{hello.method!r:.100} is not served here"
            )
        return Welcome()
