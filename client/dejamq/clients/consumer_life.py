"""The life of a consumer as programs see it: who it is in its group, its start, its end, and who may still use it."""

import asyncio
import time
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from dejamq_proto.codes import ClientClosed

from dejamq.net.instance import Instance
from dejamq.net.unclosed import Unclosed
from dejamq.rebalance.membership import Membership, handled_by
from dejamq.receiving.assignment import Assignment
from dejamq.receiving.observer import ConsumerObserver, ObservedClient, Observing, observing_or_default
from dejamq.values.forking import ProcessOrigin

HALF_AN_HOUR_MS = 1_800_000


class StartedParts(Protocol):
    """The parts of a started consumer of any kind."""

    @property
    def instance(self) -> Instance: ...


Parts = TypeVar("Parts", bound=StartedParts)
Started = TypeVar("Started", bound=Membership)


class MemberLife(Generic[Parts]):
    """The common part of all consumers. Belongs to one event loop; ``_running`` is set by the start."""

    def __init__(self) -> None:
        self._running: Parts | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._origin = ProcessOrigin()

    @property
    def closed(self) -> bool:
        """Closing has begun, or is done."""
        return self._closing is not None or (self._running is not None and self._running.instance.closed)

    @property
    def client_id(self) -> str:
        """The client id of this member of the group; empty before the start."""
        return "" if self._running is None else self._running.instance.client_id

    @property
    def boot_id(self) -> str:
        """Names this start in the journals; empty before it."""
        return "" if self._running is None else self._running.instance.boot_id

    def _observed_by(
        self, telemetry: Observing | None, group: str, namespace: str, broadcasting: bool | None
    ) -> ConsumerObserver | None:
        observing = observing_or_default(telemetry)
        who = ObservedClient(group, namespace, lambda: self.client_id, broadcasting)
        return None if observing is None else observing.of_consumer(who)

    def inspect(self) -> Parts:
        """The parts of a started consumer, for tests. Only tests call this."""
        assert self._running is not None, "start it first"
        return self._running

    async def start(self) -> None:
        """Join the group and begin; does nothing when running."""
        raise NotImplementedError

    async def close(self, timeout_ms: float | None = None) -> None:
        """End what was started. May be called twice."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if error is None:
            self._raise_fatal()

    def _check(self) -> None:
        """Raise ForkedProcess, the fatal failure of a background task, or ClientClosed."""
        self._origin.check("consumer")
        if self._running is not None:
            self._running.instance.check()
        if self._closing is not None:
            raise ClientClosed("this consumer is closed; make a new one")

    def _raise_fatal(self) -> None:
        if self._running is not None and self._running.instance.fatal is not None:
            raise self._running.instance.fatal


class ConsumerLife(MemberLife[Started]):
    """The common part of push and lite pull consumers, whose members share queues."""

    def __init__(self) -> None:
        super().__init__()
        self._unclosed: Unclosed | None = None

    async def _begin(self, running: Started) -> None:
        """Start what was made; when that fails, the consumer is as before."""
        self._running = running
        try:
            await running.start()
        except BaseException as error:
            self._running = None
            await running.abandon()
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and not (task and task.cancelling()):
                raise ClientClosed("the consumer was closed while it started") from None
            raise
        rebalancer = running.rebalancer
        self._unclosed = Unclosed(self, f"consumer {running.group!r}", lambda: _uncommitted(rebalancer.assignment))
        running.instance.on_left_open.connect(self._unclosed.tell)

    async def _end(self, wait_ms: float, *, in_all: bool = False) -> None:
        """Close once, however often and by whomever it is asked; a cancelled caller does not stop it.

        A handler does not wait: its own end is what closing waits for.
        """
        self._origin.check("consumer")
        if self._running is not None and self._running.instance.closed_with_loop():
            self._running.close_threads()
            return
        if self._closing is None:
            if self._unclosed is not None:
                self._unclosed.close()
            self._closing = asyncio.ensure_future(self._close(wait_ms / 1000, in_all))
            self._ending.set()
        if not in_handler_of(self):
            await asyncio.shield(self._closing)

    async def _close(self, timeout_s: float, in_all: bool) -> None:
        if self._running is not None:
            await self._running.close(timeout_s, in_all=in_all)


def _uncommitted(assignment: Assignment) -> str:
    behind = [one.uncommitted for one in assignment if one.uncommitted]
    if not behind:
        return ""
    return f"the progress of {sum(behind)} messages in {len(behind)} queues is not committed, and they come again"


def in_handler_of(consumer: ConsumerLife[Any]) -> bool:
    """Whether this is asked by one of the consumer's handlers, be it in a thread, or by what a handler began."""
    return consumer._running is not None and handled_by.get() is consumer._running


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def begin_timestamp_ms(chosen_ms: int | None) -> int:
    """Where ``ConsumeFrom.TIMESTAMP`` begins: as chosen, else half an hour ago (RocketMQ: consumeTimestamp)."""
    return now_ms() - HALF_AN_HOUR_MS if chosen_ms is None else chosen_ms
