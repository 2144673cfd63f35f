"""TransactionProducer: a message and a local transaction, both or neither.

Source: RocketMQ ``TransactionMQProducer``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

from dejamq_proto.codes import Code, DejamqError, ForkedProcess
from dejamq_proto.names import AUTO_CREATE_TOPIC

from dejamq.clients.producer import Producer
from dejamq.handling.subscriptions import in_thread
from dejamq.net.instance import Instance
from dejamq.receiving.handlers import is_async
from dejamq.receiving.observer import Observing
from dejamq.sending.hooks import SendHook
from dejamq.sending.intake import Destination, no_message
from dejamq.transactions.checks import Checks
from dejamq.transactions.ends import Half, TransactionEnds
from dejamq.transactions.hooks import EndTransactionHook, EndTransactionHooks
from dejamq.transactions.states import (
    Checker,
    Execute,
    TransactionResult,
    TransactionState,
    TransactionVerdict,
    answer_of,
    check_function,
    failed,
)
from dejamq.values.message import Message, SendResult, SendStatus
from dejamq.values.producer_config import TransactionProducerConfig


class TransactionProducer(Producer):
    """A Producer that also sends in transactions.

    ``send_in_transaction`` stores a message that nobody sees yet, lets the program make its local transaction, and
    tells the broker to deliver or to drop the message. When the broker does not hear of an end, it asks a producer of
    the group, this one or another: ``checker(message)`` looks up what became of the local transaction. It must know
    that for every message of the group, whichever process sent it. Plain functions run in threads.
    """

    _config_class = TransactionProducerConfig
    config: TransactionProducerConfig
    _ends: TransactionEnds
    _checks: Checks

    def __init__(
        self, group: str, *, checker: Checker, topics: Iterable[str] = (), namesrv: str | Sequence[str] | None = None,
        telemetry: Observing | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        """``settings`` are fields of ``TransactionProducerConfig``. Brokers can ask a producer that they know: those of
        ``topics``, and those that create topics, know it from its start. Raises InvalidName, ConfigError.
        """
        check_function(checker, "checker")
        super().__init__(group, namesrv=namesrv, telemetry=telemetry, **settings)
        config = self.config
        self._checker, self._topics = checker, [self._intake.topic(topic) for topic in topics]
        self._end_hooks = EndTransactionHooks()
        if self._observer is not None:
            self._end_hooks.add(self._observer)
        self._threads = ThreadPoolExecutor(config.execute_concurrency, thread_name_prefix="dejamq-transaction")
        self._check_threads = ThreadPoolExecutor(
            config.check_thread_pool_max_size, thread_name_prefix="dejamq-transaction-check"
        )
        self._running = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def start(self) -> None:
        """As a Producer's; brokers may ask from now on."""
        started = self._instance is not None
        await super().start()
        if started:
            return
        assert self._instance is not None
        instance, config = self._instance, self.config
        self._ends = TransactionEnds(instance, self._inner_group, config.send_msg_timeout_ms, self._end_hooks)
        checker = _called(self._checker, self._check_threads)
        self._checks = Checks(
            checker if self._observer is None else self._observer.checking(checker), self._ends,
            group=self._inner_group, namespace=config.namespace,
            boot_id=instance.boot_id, hold_max=config.check_request_hold_max,
        )  # fmt: skip
        instance.presence.on_check.connect(self._checks.asked)
        for number in range(config.check_thread_pool_max_size):
            instance.spawn(self._checks.work(), f"transaction-checks-{number}")
        instance.spawn(self._introduce(instance), "transaction-brokers")

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, queue: Destination = None, timeout_ms: float | None = None
    ) -> TransactionResult:
        """Store the half message, call ``execute(message)``, and tell the broker what it returned.

        Raises as ``send`` when the half message cannot be stored; ``execute`` was not called then. An exception
        of ``execute`` is not raised here: the transaction is UNKNOWN, and ``error`` of the result, the log and the
        journal tell. A message with a delay is refused. Cancelling leaves the transaction UNKNOWN: the broker asks the
        checker.
        """
        self._ready()
        if not isinstance(message, Message):
            raise no_message(message)
        check_function(execute, "execute")
        if message.delay_level:
            text = "a message of a transaction cannot have a delay_level"
            raise DejamqError(text, code=Code.INVALID_PARAMETER, definite=True)
        self._running += 1
        self._quiet.clear()
        try:
            if self._observer is None:
                sent = await self._send_half(message, queue, timeout_ms)
            else:
                with self._observer.sending((message,), "send_in_transaction") as sending:
                    message = sending.messages[0]
                    sent = await self._send_half(message, queue, timeout_ms)
                    sending.stored((sent,))
            verdict = await self._executed(message, execute, sent)
            return TransactionResult(verdict.state, sent, verdict.error)
        finally:
            self._running -= 1
            if not self._running:
                self._quiet.set()

    def add_hook(self, hook: SendHook | EndTransactionHook) -> None:
        """As a Producer's; an EndTransactionHook is called before each end of a transaction leaves."""
        ends = self._end_hooks.add(hook)
        if not ends or isinstance(hook, SendHook):
            super().add_hook(hook)  # type: ignore[arg-type]  # which refuses an object that is no hook

    async def close(self, timeout_ms: float | None = None) -> None:
        """Wait for transactions and checks that have begun, then as a Producer's, within the same time in all."""
        if not self._origin.here:
            raise ForkedProcess("this producer was made before fork; close it in its own process")
        self._closing = True
        if self._instance is not None and self._instance.closed_with_loop():
            self._close_threads()
            return
        budget_ms = self.config.await_termination_ms if timeout_ms is None else timeout_ms
        deadline = monotonic() + budget_ms / 1000
        try:
            async with asyncio.timeout(budget_ms / 1000):
                await self._quiet.wait()
                if self._instance is not None:
                    await self._checks.close()
        except TimeoutError:
            pass  # the broker asks for transactions that have not ended
        finally:
            self._close_threads()
            await super().close(max(0.0, (deadline - monotonic()) * 1000))

    def _close_threads(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._check_threads.shutdown(wait=False, cancel_futures=True)

    async def _send_half(self, message: Message, queue: Destination, timeout_ms: float | None) -> SendResult:
        """As an ordinary send, with its retries: they may store the half message twice, as in RocketMQ."""
        future = self._ready().new_future()
        half = self._intake.single(message, future, timeout_ms, "sync", queue, half_of=self._inner_group)
        await self._take_on(half)
        return await future

    async def _executed(self, message: Message, execute: Execute, sent: SendResult) -> TransactionVerdict:
        """Make the local transaction, unless the half message is not kept well enough, and tell the broker."""
        half = Half(message, sent.queue.broker_name, sent.queue_offset, sent.log_offset)
        if sent.status is not SendStatus.SEND_OK:
            verdict = TransactionVerdict(TransactionState.ROLLBACK)
        else:
            try:
                verdict = await answer_of(_called(execute, self._threads), message)
            except asyncio.CancelledError:
                self._ends.tell(half, failed(InterruptedError("cancelled")))
                raise
        self._ends.tell(half, verdict)
        return verdict

    async def _introduce(self, instance: Instance) -> None:
        """Read routes, so that heartbeats tell their brokers of this producer before it has sent anything."""
        left = [AUTO_CREATE_TOPIC, *self._topics]
        while left:
            for topic in tuple(left):
                try:
                    await instance.routes.refresh(topic, creating=topic != AUTO_CREATE_TOPIC)
                    left.remove(topic)
                except DejamqError:
                    instance.routes.unwatch(topic)  # asked again here, without a warning each time
            await asyncio.sleep(self.config.poll_name_server_interval_ms / 1000)


def _called(function: Callable[[Any], Any], threads: ThreadPoolExecutor) -> Callable[[Any], Awaitable[Any]]:
    """The function as one to await: a plain one runs in a thread."""
    if is_async(function):
        return function
    return lambda argument: in_thread(function, threads, argument)
