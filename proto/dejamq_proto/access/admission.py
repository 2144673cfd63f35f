"""A stream's right: who opened it is known from then on, and each message of it is asked for."""

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from dejamq_proto.access.guard import Caller, Guard

Admit = Callable[[Any], None]
"""Raises PermissionDenied for a message that its sender may not send."""


def everything(_: Any) -> None:
    """Without access control."""


def admission(guard: Guard | None, method: str, context: Any, peer: str) -> Admit:
    """For a stream of dejamq.v1, named in full. ``peer`` is gRPC's name of the client. Raises Unauthenticated."""
    if guard is None:
        return everything
    who = guard.call(method, context.invocation_metadata(), address_of(peer))
    return lambda message: guard.check_call(who, method, message)


def publisher(guard: Guard | None, method: str, context: Any, peer: str) -> Callable[[str], bool]:
    """Whether the one who opened this stream may see half messages of a topic. Raises Unauthenticated."""
    if guard is None:
        return lambda _: True
    who: Caller = guard.call(method, context.invocation_metadata(), address_of(peer))
    return lambda topic: guard.may_publish(who, topic)


def address_of(peer: str) -> str:
    """The IP address in gRPC's name of a client."""
    host = unquote(peer).partition(":")[2].rpartition(":")[0]
    return host.strip("[]")
