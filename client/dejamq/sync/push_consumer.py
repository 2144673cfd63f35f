"""The blocking push consumer."""

import signal
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

from dejamq_proto.codes import ConfigError

from dejamq.clients.consumer import PushConsumer as AsyncPushConsumer
from dejamq.clients.consumer_life import in_handler_of
from dejamq.clients.signals import STOP_SIGNALS
from dejamq.rebalance.consume_from import ConsumeFrom, MessageModel
from dejamq.receiving.handlers import BatchHandler, Handler
from dejamq.receiving.hooks import ConsumeHook, Keep
from dejamq.receiving.observer import Observing
from dejamq.receiving.statistics import ConsumerStatistics
from dejamq.sync.facade import Facade
from dejamq.values.allocation import Strategy
from dejamq.values.message import MessageQueue


class PushConsumer(Facade[AsyncPushConsumer]):
    """``dejamq.PushConsumer`` for programs without an event loop.

    Handlers are plain functions: they run in threads of the consumer, ``max_concurrency`` at a time, and may use other
    clients of ``dejamq.sync``. An ``async def`` handler runs in the loop's thread, where blocking calls are refused.
    """

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None,
        model: MessageModel = MessageModel.CLUSTERING, ordered: bool = False, auto_commit: bool = True,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET, consume_timestamp_ms: int | None = None,
        allocation: str | Strategy = "averagely", max_concurrency: int = 20, max_reconsume_times: int | None = None,
        telemetry: Observing | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        """As ``dejamq.PushConsumer``."""
        inner = AsyncPushConsumer(
            group, namesrv=namesrv, model=model, ordered=ordered, auto_commit=auto_commit, consume_from=consume_from,
            consume_timestamp_ms=consume_timestamp_ms, allocation=allocation, max_concurrency=max_concurrency,
            max_reconsume_times=max_reconsume_times, telemetry=telemetry, **settings,
        )  # fmt: skip
        super().__init__(inner)
        self.group = group

    def subscribe(self, topic: str, handler: Handler, *, tags: str | None = "*", sql: str | None = None) -> None:
        """As ``dejamq.PushConsumer.subscribe``."""
        self._do(self._inner.subscribe, topic, handler, tags=tags, sql=sql)

    def subscribe_batch(
        self, topic: str, handler: BatchHandler, *, size: int, tags: str | None = "*", sql: str | None = None
    ) -> None:
        """As ``dejamq.PushConsumer.subscribe_batch``."""
        self._do(self._inner.subscribe_batch, topic, handler, size=size, tags=tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """As ``dejamq.PushConsumer.unsubscribe``."""
        self._do(self._inner.unsubscribe, topic)

    def add_hook(self, hook: ConsumeHook) -> None:
        """As ``dejamq.PushConsumer.add_hook``."""
        self._do(self._inner.add_hook, hook)

    def add_filter(self, keep: Keep) -> None:
        """As ``dejamq.PushConsumer.add_filter``; asked in the loop's thread, which it must not block."""
        self._do(self._inner.add_filter, keep)

    def statistics(self) -> ConsumerStatistics:
        """As ``dejamq.PushConsumer.statistics``."""
        return self._do(self._inner.statistics)

    def suspend(self) -> None:
        """Pull no more and keep the queues."""
        self._do(self._inner.suspend)

    def resume(self) -> None:
        """Pull again after ``suspend``."""
        self._do(self._inner.resume)

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues this consumer owns now, sorted."""
        return self._do(lambda: self._inner.assignment)

    @property
    def client_id(self) -> str:
        """The client id of this member of the group; empty before the start."""
        return self._inner.client_id

    @property
    def boot_id(self) -> str:
        """Names this start in the journals; empty before it."""
        return self._inner.boot_id

    def wait_assigned(self, timeout_ms: float = 30_000) -> tuple[MessageQueue, ...]:
        """As ``dejamq.PushConsumer.wait_assigned``."""
        return self._await(self._inner.wait_assigned, timeout_ms)

    def wait_stopped(self) -> None:
        """Until ``stop`` or ``close`` is called or the consumer fails; any thread may call these."""
        self._await(self._inner.wait_stopped)

    def close(self, timeout_ms: float | None = None) -> None:
        """As ``dejamq.PushConsumer.close``; in a handler it returns at once, and the end of the program waits."""
        if in_handler_of(self._inner):
            self._await(self._inner.close, timeout_ms)
        else:
            super().close(timeout_ms)

    def stop(self) -> None:
        """Make ``run_until_stopped`` return; for any thread, handlers and signal handlers too."""
        self._loop().soon(self._inner.stop)

    def hurry(self) -> None:
        """While it closes: wait no longer for handlers that still run."""
        self._loop().soon(self._inner.hurry)

    def run_until_stopped(self, *, signals: Sequence[signal.Signals] = STOP_SIGNALS) -> None:
        """Serve until a signal, ``stop``, ``close`` or a fatal failure, then drain and close.

        A second signal ends the wait for handlers.

        Raises the fatal failure, and ConfigError outside the main thread unless ``signals=()``.
        """
        self.start_later()  # the thread, so that no signal handler has to start it; signals count from the first moment
        with Signals(signals, self.stop, self.hurry):
            self._await(self._inner.run_until_stopped, signals=())
        self.close()


class Signals:
    """Inside ``with``: the first signal calls ``stop``, a further one ``hurry``. Earlier handlers come back.

    The main thread waits in a lock meanwhile, which lets Python's signal handlers run.
    """

    def __init__(
        self, signals: Sequence[signal.Signals], stop: Callable[[], object], hurry: Callable[[], object]
    ) -> None:
        self._signals, self._next = tuple(signals), [stop, hurry]
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Signals":
        try:
            for number in self._signals:
                self._earlier[number] = signal.signal(number, self._arrived)
        except ValueError as error:
            text = f"signals can be handled in the main thread only ({error}); elsewhere pass signals=()"
            raise ConfigError(text) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, earlier in self._earlier.items():
            if earlier is not None:  # None: installed by something other than Python, which cannot be put back
                signal.signal(number, earlier)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        ask = self._next.pop(0) if len(self._next) > 1 else self._next[0]
        ask()
