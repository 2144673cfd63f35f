"""The way to a broker's fast port: asked over gRPC, dialled, greeted; gRPC itself wherever that does not work.

A client may reach the broker by another port than the broker's own. It then came by a relay, which shall see runs and
pulls too, or by a published port, whose neighbour is somebody else's. Such a client stays with gRPC. After a try that
failed, streams that open in the next half a minute do not try. A stream that is open stays as it is.
"""

import asyncio
import logging
from math import inf
from time import monotonic
from typing import Any

import grpc.aio
from dejamq_proto.account import Account, now_ms
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.fast_pb2 import Hello, Welcome, WhereRequest
from dejamq_proto.fast_pb2_grpc import FastStub
from dejamq_proto.wire.calling import call
from dejamq_proto.wire.framed import Frame, Framed
from dejamq_proto.wire.tls import ClientTls, asyncio_tls, why
from google.protobuf.message import DecodeError

from dejamq.net.identity import Identity
from dejamq.net.transport import FastWire, FrameSource, Wire, grpc_wire

log = logging.getLogger("dejamq")

WHERE_MS, DIAL_S = 1_000, 0.5
AGAIN_S = 30.0
"""Not tried again for so long where a broker has no fast port, or nobody is welcome there."""


class HotWires:
    """Opens the wires to one broker address that carry runs and pulls. Owned by the event loop."""

    def __init__(
        self, channel: grpc.aio.Channel, address: str, identity: Identity, *, fast: bool, tls: ClientTls | None = None,
        account: Account | None = None,
    ) -> None:  # fmt: skip
        """``fast``: whether the fast port may be tried at all. ``tls``: None for a plain connection to it.

        ``account`` signs the greeting.
        """
        self._account, self._tls = account, tls
        self._channel, self._address, self._identity = channel, address, identity
        self._stub: Any = FastStub(channel)
        self._try_at = monotonic() if fast else inf

    async def open(self, method: str, line: FrameSource) -> Wire:
        """A wire for a streaming call, named in full. Does not fail: what is wrong is told by what it carries."""
        if monotonic() >= self._try_at and (framed := await self._fast(method)) is not None:
            return FastWire(framed, line, self._address, self._not_now)
        return grpc_wire(self._channel, method, self._address, line)

    async def _fast(self, method: str) -> Framed | None:
        """A connection that is welcome, if there can be one."""
        host, _, port = self._address.rpartition(":")
        try:
            where = WhereRequest(caller=self._identity.caller())
            found = await call(self._stub.Where, where, address=self._address, timeout_ms=WHERE_MS)
            if found.port and found.beside == int(port):
                proof = "" if self._account is None else self._account.authorization(method, now_ms())
                hello = Hello(boot_id=found.boot_id, method=method, authorization=proof)
                async with asyncio.timeout(DIAL_S):
                    return await _dialled(host.strip("[]"), found.port, hello, self._tls)
            reason = "it was reached by another port" if found.port else "it has none"
        except DejamqError as error:
            if error.code is not Code.REQUEST_CODE_NOT_SUPPORTED:
                return None  # the broker is away: nothing is known of its port
            reason = "it is older"
        except (OSError, TimeoutError, DecodeError, OverflowError) as error:
            reason = why(error) if str(error) else "it does not answer there"
        self._not_now(reason)
        return None

    def _not_now(self, reason: str = "it ended without an answer") -> None:
        self._try_at = monotonic() + AGAIN_S
        log.info("fast_port_unused address=%s reason=%s", self._address, reason)


async def _dialled(host: str, port: int, hello: Hello, tls: ClientTls | None) -> Framed:
    """Raises OSError where nobody is there or it is somebody else."""
    loop = asyncio.get_running_loop()
    _, framed = await loop.create_connection(Framed, host, port, **asyncio_tls(tls, host))
    try:
        await _greet(framed, hello)
    except BaseException:
        framed.fail("it was not welcome")
        raise
    return framed


async def _greet(framed: Framed, hello: Hello) -> None:
    answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

    def received(frame: Frame) -> None:
        if not answer.done():
            answer.set_result(frame)

    def lost(reason: str) -> None:
        if not answer.done():
            answer.set_exception(ConnectionError(reason))

    framed.received, framed.lost = received, lost
    framed.write(hello.SerializeToString())
    welcome = Welcome.FromString(bytes(await answer))
    if welcome.code or welcome.boot_id != hello.boot_id:
        raise ConnectionError(welcome.remark or "somebody else answers there")
