"""Hooks of a producer: what a program wants to see of each try, before it leaves and when it returned."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
from dejamq_proto.codes import ConfigError, DejamqError

from dejamq.values.message import Message, MessageQueue, SendResult

log = logging.getLogger("dejamq")


class SendContext(msgspec.Struct, eq=False):
    """One try of one message. ``values`` is the hooks' own, the same before and after.

    ``attempt`` counts from 1. ``result`` and ``error`` are None before; after, one of them tells how the try
    ended: an error that is retried is told too, the message's own end is the last one.
    """

    group: str
    message: Message
    queue: MessageQueue
    broker_address: str
    attempt: int
    oneway: bool
    result: SendResult | None = None
    error: DejamqError | None = None
    values: dict[str, Any] = msgspec.field(default_factory=dict)


@runtime_checkable
class SendHook(Protocol):
    """Both are called in the event loop and must not wait; what they raise is logged and changes nothing.

    RocketMQ: SendMessageHook.
    """

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


class SendHooks:
    """The hooks of one producer, in the order in which they were added. False while there are no hooks."""

    def __init__(self) -> None:
        self._hooks: list[SendHook] = []

    def add(self, hook: SendHook) -> None:
        """Call it for every try from now on. Raises ConfigError for what is no hook."""
        if not isinstance(hook, SendHook):
            raise ConfigError(
                f"{type(hook).__name__} is no send hook: it needs before_send(context), after_send(context)"
            )
        self._hooks.append(hook)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before(self, contexts: Sequence[SendContext]) -> None:
        """The tries of a run are about to leave."""
        self._call(contexts, lambda hook: hook.before_send)

    def after(self, contexts: Sequence[SendContext]) -> None:
        """The tries of a run returned."""
        self._call(contexts, lambda hook: hook.after_send)

    def _call(
        self, contexts: Sequence[SendContext], which: Callable[[SendHook], Callable[[SendContext], None]]
    ) -> None:
        for hook in self._hooks:
            for context in contexts:
                try:
                    which(hook)(context)
                except BaseException as error:
                    log.warning("send_hook_failed hook=%s reason=%r", type(hook).__name__, error)
