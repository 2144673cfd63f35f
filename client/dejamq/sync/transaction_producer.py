"""The blocking producer of transactions."""

from collections.abc import Iterable, Sequence
from typing import Any

from dejamq.receiving.observer import Observing
from dejamq.sending.hooks import SendHook
from dejamq.sending.intake import Destination
from dejamq.sync.producer import Producer
from dejamq.transactions.hooks import EndTransactionHook
from dejamq.transactions.producer import TransactionProducer as AsyncTransactionProducer
from dejamq.transactions.states import Checker, Execute, TransactionResult
from dejamq.values.message import Message


class TransactionProducer(Producer):
    """``dejamq.TransactionProducer`` for threads. ``execute`` and the checker run in threads of their own."""

    _inner: AsyncTransactionProducer

    def __init__(
        self, group: str, *, checker: Checker, topics: Iterable[str] = (), namesrv: str | Sequence[str] | None = None,
        telemetry: Observing | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        """As ``dejamq.TransactionProducer``."""
        inner = AsyncTransactionProducer(
            group, checker=checker, topics=topics, namesrv=namesrv, telemetry=telemetry, **settings
        )  # fmt: skip
        self._wrap(inner, group)

    def send_in_transaction(
        self, message: Message, execute: Execute, *, queue: Destination = None, timeout_ms: float | None = None
    ) -> TransactionResult:
        """As ``dejamq.TransactionProducer.send_in_transaction``; Ctrl-C leaves the transaction UNKNOWN."""
        return self._await(
            self._inner.send_in_transaction, message, execute, queue=queue, timeout_ms=timeout_ms
        )  # fmt: skip

    def add_hook(self, hook: SendHook | EndTransactionHook) -> None:
        """As ``dejamq.TransactionProducer.add_hook``; called in the loop's thread, which a hook must not block."""
        self._do(self._inner.add_hook, hook)
