"""A stream's right: who opened it is known from then on, and each message of it is asked for."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple
from urllib.parse import unquote

from dejamq_proto.access.guard import Caller, Guard

Again = Callable[[], None]
"""Raises PermissionDenied for a request whose sender may not make it any more."""


def nothing() -> None:
    """Without access control."""


AGAIN: ContextVar[Again] = ContextVar("again", default=nothing)
"""Of the call that this task answers: whoever held it for a while asks once more before he hands out a message."""
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


class Hearer(NamedTuple):
    """What somebody may hear from the broker now; nothing before he has shown who he is. Nobody is told of a refusal.

    Without a ``guard`` everybody hears everything.
    """

    guard: Guard | None
    who: Caller | None

    @property
    def name(self) -> str:
        """'' without access control."""
        return "" if self.who is None else self.who.name

    @property
    def trusted(self) -> bool:
        """He may do everything, as everybody may without access control."""
        return self.guard is None or (self.who is not None and self.who.trusted)

    def is_there(self) -> bool:
        """He is a user as he was."""
        return self.guard is None or (self.who is not None and self.guard.still(self.who))

    def may_publish(self, topic: str) -> bool:
        """He may see half messages of this topic."""
        return self.guard is None or (self.who is not None and self.guard.may_publish(self.who, topic))

    def may_consume(self, topic: str) -> bool:
        """He may be handed messages of this topic."""
        return self.guard is None or (self.who is not None and self.guard.may_consume(self.who, topic))


EVERYBODY = Hearer(None, None)
"""Without access control."""


HEARER: ContextVar[Hearer] = ContextVar("hearer", default=EVERYBODY)  # a tuple, which nobody changes
"""Who makes the call that this task answers, and what he may hear later by the stream that he opens."""


def hearer(guard: Guard | None, method: str, context: Any, peer: str) -> Hearer:
    """Of a stream. Raises Unauthenticated."""
    who = None if guard is None else guard.call(method, context.invocation_metadata(), address_of(peer))
    return Hearer(guard, who)


def address_of(peer: str) -> str:
    """The IP address in gRPC's name of a client. One of IPv4 is told as that, since rules name networks so."""
    host = unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")
    return host.removeprefix("::ffff:") if "." in host else host
