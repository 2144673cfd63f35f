"""Hooks of a producer of transactions: what the broker is told of each one's end."""

import logging
from typing import Any, Protocol, runtime_checkable

import msgspec

from dejamq.receiving.received import ReceivedMessage
from dejamq.transactions.states import TransactionState
from dejamq.values.message import Message

log = logging.getLogger("dejamq")


class EndTransactionContext(msgspec.Struct, eq=False):
    """One end of one transaction, about to leave. ``message`` is a ReceivedMessage in the answer to a check."""

    group: str
    message: Message | ReceivedMessage
    broker_address: str
    state: TransactionState
    from_check: bool

    @property
    def message_id(self) -> str:
        """The message's id, which is the transaction's too."""
        return self.message.message_id


@runtime_checkable
class EndTransactionHook(Protocol):
    """Called in the event loop, must not wait; what it raises is logged and changes nothing.

    RocketMQ: EndTransactionHook.
    """

    def end_transaction(self, context: EndTransactionContext) -> None: ...


class EndTransactionHooks:
    """The hooks of one producer, in the order in which they were added."""

    def __init__(self) -> None:
        self._hooks: list[EndTransactionHook] = []

    def add(self, hook: Any) -> bool:
        """Call it from now on; False for what is no such hook."""
        if not isinstance(hook, EndTransactionHook):
            return False
        self._hooks.append(hook)
        return True

    def call(self, context: EndTransactionContext) -> None:
        """The end is about to leave."""
        for hook in self._hooks:
            try:
                hook.end_transaction(context)
            except BaseException as error:
                log.warning("end_transaction_hook_failed hook=%s reason=%r", type(hook).__name__, error)
