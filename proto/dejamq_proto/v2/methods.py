"""The calls of ``apache.rocketmq.v2.MessagingService``: their requests and answers, and how a server refuses them.

Requests are read here and not by gRPC, so that bytes that are no request get a status as everything else does.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from dejamq_proto import names
from dejamq_proto.access.admission import AGAIN, HEARER, Hearer, address_of
from dejamq_proto.access.guard import AccessDenied, Caller, Guard
from dejamq_proto.account import DATE_TIME, HEADER
from dejamq_proto.codes import Code, DejamqError, InvalidName
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.statuses import StatusError, named, status_of

SERVICE = "apache.rocketmq.v2.MessagingService"
CLIENT_ID, LANGUAGE, VERSION = "x-mq-client-id", "x-mq-language", "x-mq-client-version"
BOOT_ID, SEQ = "x-dejamq-boot-id", "x-dejamq-seq"
"""Of a program that writes a journal: its start, and the number of the call there. Others send neither."""
LONGEST_CLIENT_ID = LONGEST_BOOT_ID = 255
MOST_BYTES, MOST_SENT_BYTES = 1 << 20, 64 << 20
"""Of a request, and of one that brings messages, which has checks of its own. The event loop reads them, and others
wait meanwhile.
"""
Request = TypeVar("Request", bound=Message)
Context = Any


class Call(NamedTuple):
    """Who calls. ``peer`` is gRPC's name of the other end, ``left_s`` the time until the client gives up.

    ``boot_id`` and ``seq`` are those of the client's own journal, '' and 0 without one. ``user`` is who has shown that
    he is it, '' without access control; ``proof`` are the headers by which.
    """

    client_id: str
    language: str
    version: str
    peer: str
    left_s: float | None
    boot_id: str = ""
    seq: int = 0
    user: str = ""
    proof: tuple[tuple[str, str], ...] = ()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """As the caller sent them, for a call in its name."""
        return (CLIENT_ID, self.client_id), (LANGUAGE, self.language), (VERSION, self.version), *self.proof


Unary = Callable[[Any, Call], Awaitable[Any]]
"""Answers one request, or raises DejamqError."""

UNARY: dict[str, tuple[type[Message], type[Any]]] = {
    "QueryRoute": (pb.QueryRouteRequest, pb.QueryRouteResponse),
    "Heartbeat": (pb.HeartbeatRequest, pb.HeartbeatResponse),
    "SendMessage": (pb.SendMessageRequest, pb.SendMessageResponse),
    "QueryAssignment": (pb.QueryAssignmentRequest, pb.QueryAssignmentResponse),
    "AckMessage": (pb.AckMessageRequest, pb.AckMessageResponse),
    "ForwardMessageToDeadLetterQueue": (
        pb.ForwardMessageToDeadLetterQueueRequest, pb.ForwardMessageToDeadLetterQueueResponse
    ),
    "EndTransaction": (pb.EndTransactionRequest, pb.EndTransactionResponse),
    "NotifyClientTermination": (pb.NotifyClientTerminationRequest, pb.NotifyClientTerminationResponse),
    "ChangeInvisibleDuration": (pb.ChangeInvisibleDurationRequest, pb.ChangeInvisibleDurationResponse),
    "UpdateOffset": (pb.UpdateOffsetRequest, pb.UpdateOffsetResponse),
    "GetOffset": (pb.GetOffsetRequest, pb.GetOffsetResponse),
    "QueryOffset": (pb.QueryOffsetRequest, pb.QueryOffsetResponse),
    "RecallMessage": (pb.RecallMessageRequest, pb.RecallMessageResponse),
    "SyncLiteSubscription": (pb.SyncLiteSubscriptionRequest, pb.SyncLiteSubscriptionResponse),
}  # fmt: skip


def call_of(context: Context, peer: str) -> Call:
    """Raises CLIENT_ID_REQUIRED."""
    headers = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    client_id = headers.get(CLIENT_ID, "")
    if not client_id or len(client_id) > LONGEST_CLIENT_ID:
        raise StatusError(pb.CLIENT_ID_REQUIRED, "the header x-mq-client-id names the client")
    language, version = headers.get(LANGUAGE, ""), headers.get(VERSION, "")
    boot_id, seq = headers.get(BOOT_ID, "")[:LONGEST_BOOT_ID], headers.get(SEQ, "")
    number = int(seq) if seq.isdecimal() and len(seq) < 16 else 0
    proof = tuple((name, headers[name]) for name in (HEADER, DATE_TIME) if name in headers)
    return Call(client_id, language, version, peer, context.time_remaining(), boot_id, number, HEARER.get().name, proof)


def read(raw: bytes, kind: type[Request]) -> Request:
    """Raises BAD_REQUEST for bytes that are no such request, or more than one needs."""
    most = MOST_SENT_BYTES if kind is pb.SendMessageRequest else MOST_BYTES
    if len(raw) > most:
        raise StatusError(pb.BAD_REQUEST, f"the request has {len(raw)} bytes, at most {most} are read")
    try:
        return kind.FromString(raw)
    except (DecodeError, UnicodeDecodeError) as error:
        raise StatusError(pb.BAD_REQUEST, f"the request cannot be read: {' '.join(str(error).split())}") from None


def generic_handler(
    unary: Mapping[str, Unary], streams: Mapping[str, Callable[[bytes, Context], Awaitable[None]]],
    telemetry: Callable[[AsyncIterator[bytes], Context], Awaitable[None]], true_peer: Callable[[str], str],
    guard: Guard | None = None,
) -> "grpc.GenericRpcHandler[Any, Any]":  # fmt: skip
    """What a server adds: these calls under the protocol's own path. Calls that are left out are UNIMPLEMENTED.

    ``streams`` and ``telemetry`` write serialized answers by themselves. ``guard`` is asked before each call, and for
    each message of a stream.
    """
    door = _Door(guard, true_peer)
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(_answering(name, serve, true_peer, door))
        for name, serve in unary.items()
    }
    handlers |= {
        name: grpc.unary_stream_rpc_method_handler(_streaming(name, serve, door)) for name, serve in streams.items()
    }
    handlers["Telemetry"] = grpc.stream_stream_rpc_method_handler(_telling(telemetry, door))
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


class _Door:
    """Where this service asks who calls, and whether he may."""

    def __init__(self, guard: Guard | None, true_peer: Callable[[str], str]) -> None:
        self.guard, self._true_peer = guard, true_peer

    def who(self, name: str, context: Context) -> Caller | None:
        """None without access control. Raises Unauthenticated."""
        if self.guard is None:
            return None
        peer = self._true_peer(context.peer())
        who = self.guard.v2_call(name, context.invocation_metadata(), address_of(peer))
        HEARER.set(Hearer(self.guard, who))
        return who

    def check(self, who: Caller | None, name: str, request: Any) -> None:
        """Raises PermissionDenied."""
        if self.guard is not None and who is not None:
            self.guard.check_v2(who, name, request)


STREAMS: dict[str, tuple[type[Message], type[Any]]] = {
    "ReceiveMessage": (pb.ReceiveMessageRequest, pb.ReceiveMessageResponse),
    "PullMessage": (pb.PullMessageRequest, pb.PullMessageResponse),
}
"""Calls with one request and a stream of answers."""


def _streaming(
    name: str, serve: Callable[[bytes, Context], Awaitable[None]], door: _Door
) -> Callable[[bytes, Context], Awaitable[None]]:
    request_type, answer_type = STREAMS[name]

    async def served(raw: bytes, context: Context) -> None:
        try:
            if (who := door.who(name, context)) is not None:
                again = partial(door.check, who, name, read(raw, request_type))
                again()
                AGAIN.set(again)
        except DejamqError as error:
            await context.write(answer_type(status=status_of(error)).SerializeToString())
            return
        await serve(raw, context)

    return served


def _telling(
    telemetry: Callable[[AsyncIterator[bytes], Context], Awaitable[None]], door: _Door
) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
    async def checked(frames: AsyncIterator[bytes], who: Caller, refused: list[AccessDenied]) -> AsyncIterator[bytes]:
        async for raw in frames:
            try:
                door.check(who, "Telemetry", read(raw, pb.TelemetryCommand))
            except AccessDenied as error:
                refused.append(error)
                return
            yield raw

    async def told(frames: AsyncIterator[bytes], context: Context) -> None:
        refused: list[AccessDenied] = []
        try:
            who = door.who("Telemetry", context)
            await telemetry(frames if who is None else checked(frames, who, refused), context)
        except AccessDenied as error:
            refused.append(error)
        if refused:  # as RocketMQ's proxy says it, and ends the stream
            await context.write(pb.TelemetryCommand(status=status_of(refused[0])).SerializeToString())

    return told


def _answering(
    name: str, serve: Unary, true_peer: Callable[[str], str], door: _Door
) -> Callable[[bytes, Context], Awaitable[bytes]]:
    request_type, answer_type = UNARY[name]

    async def answered(raw: bytes, context: Context) -> bytes:
        try:
            who = door.who(name, context)
            call, request = call_of(context, true_peer(context.peer())), read(raw, request_type)
            door.check(who, name, request)
            answer = await serve(request, call)
        except DejamqError as error:
            answer = answer_type(status=status_of(error))
        serialized: bytes = answer.SerializeToString()
        return serialized

    return answered


def topic_of(resource: pb.Resource) -> str:
    """A topic that clients may use. Raises ILLEGAL_TOPIC."""
    try:
        names.check_topic(resource.name)
    except InvalidName as error:
        raise named(error, pb.ILLEGAL_TOPIC) from None
    if names.is_system(resource.name):
        raise StatusError(pb.ILLEGAL_TOPIC, f"topic {resource.name!r} belongs to the broker itself")
    return resource.name


def group_of(resource: pb.Resource) -> str:
    """A group that clients may use. Raises ILLEGAL_CONSUMER_GROUP."""
    try:
        names.check_group(resource.name)
    except InvalidName as error:
        raise named(error, pb.ILLEGAL_CONSUMER_GROUP) from None
    if resource.name.startswith(names.SYSTEM_GROUP_PREFIX):
        raise StatusError(pb.ILLEGAL_CONSUMER_GROUP, f"group {resource.name!r} belongs to the broker itself")
    return resource.name


def no_route(topic: str) -> DejamqError:
    """The refusal of a topic that nobody has, in RocketMQ's words."""
    text = f"No topic route info in name server for the topic: {topic}"
    return DejamqError(text, code=Code.TOPIC_NOT_EXIST)
