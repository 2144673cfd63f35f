"""The client's side of a remoting connection: to our servers, and to a real RocketMQ's.

Source: RocketMQ ``NettyRemotingClient``.
"""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from dejamq_proto.account import Account
from dejamq_proto.codes import BrokerUnavailable, SendTimeout
from dejamq_proto.remoting.frames import ONEWAY, VERSION, BadFrame, FrameReader, encode, texts_of
from dejamq_proto.remoting.header import JSON, Command
from dejamq_proto.remoting.requests import Fields, RequestKind
from dejamq_proto.wire.tls import ClientTls, asyncio_tls, why

__all__ = ["Account", "RemotingClient", "connect"]
CONNECT_S, ANSWER_S, LAST_WORDS_S = 3.0, 5.0, 1.0
MOST_BYTES = 256 << 20
"""Of one answer. Java's clients take 16 MiB, but a broker's table of all offsets may be larger."""


class RemotingClient(asyncio.Protocol):
    """One connection. Owned by the event loop; ``connect`` makes one, ``close`` ends it.

    ``form``, ``version`` and ``language`` are those of the requests. ``closed`` is set when the connection has ended.
    """

    def __init__(self, address: str, on_request: Callable[[Command], None], account: Account | None) -> None:
        """``on_request`` gets the server's own requests. ``account`` signs those to the server."""
        self.address, self._on_request, self._account = address, on_request, account
        self.form, self.version, self.language = JSON, VERSION, "JAVA"
        self.transport: asyncio.Transport
        self.closed = asyncio.Event()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._reader = FrameReader(MOST_BYTES)
        self._why = "the connection ended"

    async def ask(
        self, request: RequestKind[Any], fields: Fields | None = None, body: bytes = b"", *, timeout_s: float = ANSWER_S
    ) -> Command:
        """The answer, whatever its code. Raises SendTimeout without one in time, BrokerUnavailable for a connection
        that ended.
        """
        ext = {} if fields is None else texts_of(fields)
        waiting = self.send(Command(code=request.code, ext=ext, body=body))
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            text = f"{self.address} did not answer {request.name} within {timeout_s:g} s"
            raise SendTimeout(text) from None

    def send(self, command: Command) -> "asyncio.Future[Command]":
        """Write a request; its answer comes later. The number is the connection's own."""
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        if self.closed.is_set():
            answer.set_exception(self._ended())
            return answer
        self._waiting[number] = answer
        answer.add_done_callback(lambda _: self._waiting.pop(number, None))
        self._write(command, number)
        return answer

    def tell(self, command: Command) -> None:
        """Write a request that nobody answers (oneway)."""
        command.flag |= ONEWAY
        self._write(command, next(self._numbers))

    def reply(self, command: Command) -> None:
        """Write the answer to a request of the server, made by ``frames.answer``."""
        self.transport.write(encode(command, self.form))

    async def close(self) -> None:
        """What was written goes out first, unless the server does not read it."""
        self.transport.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self.closed.wait()
        self.transport.abort()

    def _write(self, command: Command, number: int) -> None:
        command.opaque, command.version, command.language = number, self.version, self.language
        if self._account is not None:
            self._account.sign(command)
        self.transport.write(encode(command, self.form))

    def _ended(self) -> BrokerUnavailable:
        return BrokerUnavailable(f"{self.address}: {self._why}", definite=False)

    # by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.receive(data)
        try:
            while (command := self._reader.next_command()) is not None:
                self._take(command)
        except BadFrame as error:
            self._why = f"no remoting server: {error}"
            self.transport.abort()

    def _take(self, command: Command) -> None:
        """An answer that nobody waits for any more is passed over."""
        if not command.is_answer:
            self._on_request(command)
        elif (answer := self._waiting.get(command.opaque)) is not None and not answer.done():
            answer.set_result(command)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._why = f"the connection broke: {exc}"
        self.closed.set()
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(self._ended())


async def connect(
    address: str, on_request: Callable[[Command], None], *, account: Account | None = None,
    timeout_s: float = CONNECT_S, tls: ClientTls | None = None,
) -> RemotingClient:  # fmt: skip
    """A connection to ``host:port``; without ``tls`` a plain one. Raises BrokerUnavailable."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        async with asyncio.timeout(timeout_s):
            _, client = await asyncio.get_running_loop().create_connection(
                lambda: RemotingClient(address, on_request, account), host, int(port), **asyncio_tls(tls, host)
            )
    except TimeoutError:
        raise BrokerUnavailable(f"{address} was not reached within {timeout_s:g} s", definite=True) from None
    except OSError as error:
        raise BrokerUnavailable(f"{address}: {why(error)}", definite=True) from None
    return client
