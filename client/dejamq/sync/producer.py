"""The blocking producer."""

import asyncio
import contextvars
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any

from dejamq_proto.codes import BacklogFull, ClientClosed

from dejamq.clients.producer import Producer as AsyncProducer
from dejamq.receiving.observer import Observing
from dejamq.receiving.received import ReceivedMessage
from dejamq.sending.hooks import SendHook
from dejamq.sending.intake import Destination, no_message
from dejamq.sync.facade import Facade
from dejamq.values.message import Message, MessageQueue, SendResult

Submitted = tuple[Message, Destination, float | None, "Future[SendResult]", contextvars.Context | None]
"""The caller's context, where telemetry wants to know it."""


class Producer(Facade[AsyncProducer]):
    """``dejamq.Producer`` for threads. Hooks and selectors are called in the loop's thread."""

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None, telemetry: Observing | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        """As ``dejamq.Producer``."""
        self._wrap(AsyncProducer(group, namesrv=namesrv, telemetry=telemetry, **settings), group)

    def _wrap(self, inner: AsyncProducer, group: str) -> None:
        super().__init__(inner)
        self.group = group
        self._handed: list[Submitted] = []
        self._handed_bytes = 0
        self._taking: asyncio.Task[None] | None = None

    @property
    def observed(self) -> bool:
        """As ``dejamq.Producer.observed``."""
        return self._inner.observed

    def send(self, message: Message, *, queue: Destination = None, timeout_ms: float | None = None) -> SendResult:
        """Send and wait for the result; Ctrl-C ends the wait, the message may still be sent."""
        return self._await(self._inner.send, message, queue=queue, timeout_ms=timeout_ms)

    def submit(
        self, message: Message, *, queue: Destination = None, timeout_ms: float | None = None
    ) -> "Future[SendResult]":
        """Hand the message to the loop's thread and return; the future gets the result, or why there is none.

        Raises BacklogFull above ``max_pending_bytes``: ``drain()`` and submit again. Messages that one thread submits
        to one queue keep their order. Cancelling the future forgets the result, or the message when it did not leave
        this thread yet.
        """
        if not isinstance(message, Message):
            raise no_message(message)
        future: Future[SendResult] = Future()
        context = contextvars.copy_context() if self.observed else None
        self._hand((message, queue, timeout_ms, future, context))
        return future

    def send_oneway(self, message: Message, *, queue: Destination = None) -> None:
        """Send without waiting for anything; a failure is only logged. Raises at once for a bad message."""
        self._do(self._inner.send_oneway, message, queue=queue)

    def send_batch(
        self, messages: Iterable[Message], *, queue: Destination = None, timeout_ms: float | None = None
    ) -> list[SendResult]:
        """As ``dejamq.Producer.send_batch``."""
        return self._await(self._inner.send_batch, messages, queue=queue, timeout_ms=timeout_ms)

    def request(self, message: Message, timeout_ms: float, *, queue: Destination = None) -> ReceivedMessage:
        """As ``dejamq.Producer.request``."""
        return self._await(self._inner.request, message, timeout_ms, queue=queue)

    def recall(self, topic: str, handle: str, *, timeout_ms: float | None = None) -> str:
        """As ``dejamq.Producer.recall``."""
        return self._await(self._inner.recall, topic, handle, timeout_ms=timeout_ms)

    def drain(self) -> None:
        """Wait until there is room again for submits."""
        self._await(self._taken)
        self._await(self._inner.drain)

    def flush(self) -> None:
        """Wait until nothing waits and nothing is in flight; failures are told by the futures."""
        self._await(self._taken)
        self._await(self._inner.flush)

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """As ``dejamq.Producer.publish_queues``."""
        return self._await(self._inner.publish_queues, topic)

    @property
    def pending_bytes(self) -> int:
        """Submitted and not finished, as ``max_pending_bytes`` counts it."""
        return self._handed_bytes + self._inner.pending_bytes

    def add_hook(self, hook: SendHook) -> None:
        """As ``dejamq.Producer.add_hook``; called in the loop's thread, which a hook must not block."""
        self._do(self._inner.add_hook, hook)

    def close(self, timeout_ms: float | None = None) -> None:
        """Send what was submitted, then leave; may be called twice."""
        budget_ms = self._inner.config.await_termination_ms if timeout_ms is None else timeout_ms
        deadline = monotonic() + budget_ms / 1000
        if not self._inner.closed:
            self._await(self._taken_within, budget_ms / 1000)
        super().close(max(0.0, (deadline - monotonic()) * 1000))

    def _hand(self, submitted: Submitted) -> None:
        """Leave it for the loop's next turn: waking the loop costs far more than the message, so once for many."""
        loop, size = self._loop(), len(submitted[0].body)
        if self._inner.closed:
            raise ClientClosed("this producer is closed; make a new one", definite=True)
        with self._lock:
            pending = self._handed_bytes + self._inner.pending_bytes
            if pending and pending + size > self._inner.config.max_pending_bytes:
                limit = self._inner.config.max_pending_bytes
                raise BacklogFull(f"{pending} bytes wait to be sent, max_pending_bytes is {limit}; drain() first")
            self._handed.append(submitted)
            self._handed_bytes += size
            first = len(self._handed) == 1
        if first:
            loop.soon(self._begin_taking)

    def _begin_taking(self) -> None:
        if self._taking is None:
            self._taking = asyncio.get_running_loop().create_task(self._take())

    async def _taken(self) -> None:
        """Until everything that was handed over is the asyncio producer's."""
        self._begin_taking()
        assert self._taking is not None
        await asyncio.shield(self._taking)

    async def _taken_within(self, timeout_s: float) -> None:
        """As ``_taken``, at most so long: what is left then fails as the producer closes."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._taken()
        except TimeoutError:
            pass

    async def _take(self) -> None:
        """Submit what was handed over, in its order; where there is no room for it, wait for some."""
        while True:
            with self._lock:
                handed, self._handed = self._handed, []
                if not handed:
                    self._taking = None
                    return
            for submitted in handed:
                await self._submit(submitted)
                with self._lock:
                    self._handed_bytes -= len(submitted[0].body)

    def _submit_in(
        self, context: contextvars.Context | None, message: Message, queue: Destination, timeout_ms: float | None
    ) -> "asyncio.Future[SendResult]":
        if context is None:
            return self._inner.submit(message, queue=queue, timeout_ms=timeout_ms)
        return context.run(lambda: self._inner.submit(message, queue=queue, timeout_ms=timeout_ms))

    async def _submit(self, submitted: Submitted) -> None:
        message, queue, timeout_ms, future, context = submitted
        if future.cancelled():
            return
        try:
            while True:
                try:
                    sending = self._submit_in(context, message, queue, timeout_ms)
                    break
                except BacklogFull:
                    await self._inner.drain()
        except BaseException as error:
            _settle(future, error)
            if not isinstance(error, Exception):
                raise
        else:
            sending.add_done_callback(lambda sent: _copy(sent, future))


def _copy(sent: "asyncio.Future[SendResult]", future: "Future[SendResult]") -> None:
    if sent.cancelled():
        future.cancel()
    elif (error := sent.exception()) is not None:
        _settle(future, error)
    elif future.set_running_or_notify_cancel():
        future.set_result(sent.result())


def _settle(future: "Future[SendResult]", error: BaseException) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
