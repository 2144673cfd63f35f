"""How one process calls another: channels, deadlines, and gRPC errors turned into ours."""

import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, TypeVar, cast

import grpc
import grpc.aio

from dejamq_proto.account import Account, SignedChannel
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, SendTimeout, error_for
from dejamq_proto.wire.tls import ClientTls, trouble

CODE_KEY = "dejamq-code"
REMARK_KEY = "dejamq-remark-bin"
MAX_FRAME_BYTES = 64 << 20
KEPT_BYTES = 4 << 20
NEVER_CONNECTED = ("failed to connect", "dns resolution failed", "name resolution")
TOO_LONG = "larger than max"
TLS_WANTED = "http status 426"
"""A server that takes TLS only answers a plain connection so."""
STREAM_LOST = "stream removed"
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # else a peer whose kernel still answers is waited for a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # a server that came back is found at once: RocketMQ dials again for each request. 100 ms is gRPC's least
    ("grpc.initial_reconnect_backoff_ms", 100),
    # how long a server may take to greet before it counts as away: a send, which has 3 s, can still go elsewhere
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]

Request = TypeVar("Request")
Response = TypeVar("Response")


def dial(
    address: str, tls: ClientTls | None = None, account: Account | Callable[[], Account | None] | None = None
) -> grpc.aio.Channel:
    """A channel to ``host:port``. It connects on first use and reconnects by itself; the caller closes it.

    ``tls``: None for a plain one. ``account`` signs each call.
    """
    keep_pages()
    if tls is None:
        channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    else:
        options = [*CHANNEL_OPTIONS, *tls.channel_options]
        channel = grpc.aio.secure_channel(address, tls.credentials, options=options)
    return channel if account is None else cast(grpc.aio.Channel, SignedChannel(channel, account))


@cache
def keep_pages() -> None:
    """Frames of a megabyte come from the heap, whose pages are there already. That saves a fifth of the cost of
    receiving them.

    glibc maps each block of more than 128 KiB anew, until a larger buffer was freed. Then it takes all blocks up to
    that size for temporary ones (mallopt(3), M_MMAP_THRESHOLD). Not a page of this one is touched.
    """
    bytearray(KEPT_BYTES)


async def call(
    method: Callable[..., Awaitable[Response]], request: Request, *, address: str, timeout_ms: float
) -> Response:
    """One unary call with a deadline. Raises the DejamqError that the answer, or its absence, means."""
    try:
        return await method(request, timeout=timeout_ms / 1000)
    except grpc.aio.AioRpcError as error:
        raise error_from(error, address) from None


def error_from(error: grpc.aio.AioRpcError, address: str) -> DejamqError:
    """The meaning of a failed call. Without a code of ours in the trailers, no dejamq server decided it.

    ``definite`` follows from how far the request got. A server's own refusal and a connection that never came up are
    definite. A connection that broke is not, since the request may have been done.
    """
    metadata: Any = error.trailing_metadata() or ()
    trailers: dict[str, str | bytes] = dict(metadata)
    details = error.details() or error.code().name
    if CODE_KEY in trailers:
        remark = trailers.get(REMARK_KEY, b"")
        text = remark.decode("utf-8", "replace") if isinstance(remark, bytes) and remark else details
        return error_for(int(trailers[CODE_KEY]), text)
    status = error.code()
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return SendTimeout(f"{address} did not answer in time")
    if status is grpc.StatusCode.UNAVAILABLE:
        if TLS_WANTED in details.lower():
            text = f"{address} takes TLS only; set tls_ca (DEJAMQ_TLS_CA) to the file of its CA"
            return BrokerUnavailable(text, definite=True)
        never_left = any(sign in details.lower() for sign in NEVER_CONNECTED)
        text = trouble(details) or _short(details)
        return BrokerUnavailable(f"no dejamq server answers at {address}: {text}", definite=never_left)
    if status is grpc.StatusCode.UNIMPLEMENTED:
        text = f"{address} speaks gRPC but not this service of dejamq; check the address"
        return DejamqError(text, code=Code.REQUEST_CODE_NOT_SUPPORTED)
    if status is grpc.StatusCode.CANCELLED:
        return BrokerUnavailable(f"the call to {address} was cancelled", definite=False)
    if _broken(status, details):
        text = f"the connection to {address} broke: {status.name} {_short(details)}"
        return BrokerUnavailable(text, definite=False)
    return DejamqError(f"{address} failed: {status.name} {_short(details)}", code=Code.SYSTEM_ERROR)


def _broken(status: grpc.StatusCode, details: str) -> bool:
    """Whether gRPC itself ended the call, because its stream or connection broke.

    INTERNAL comes from a reset stream, and from a write that failed before the reader had the status of the call.
    RESOURCE_EXHAUSTED comes from a peer that had no room for the stream. A message over a limit has the same status.
    UNKNOWN also comes from a handler that failed, and then the connection is whole.
    """
    if status is grpc.StatusCode.UNKNOWN:
        return STREAM_LOST in details.lower()
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return TOO_LONG not in details.lower()
    return status is grpc.StatusCode.INTERNAL


def _short(details: str) -> str:
    """The last thing that went wrong, without gRPC's account of every address it tried."""
    if not details:
        return "no reason given"
    last = details.splitlines()[0].rpartition("last error: ")[2]
    return re.sub(r"^[A-Z_]+: (ipv[46]:\S+: )?(Failed to connect to remote host: )?", "", last).strip("[] ")[:200]
