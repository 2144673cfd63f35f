"""The life of a consumer as programs see it: who it is in its group, its start, its end, and who may still use it."""

import asyncio
import time
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from dejamq_proto.codes import ClientClosed

from dejamq.forking import Origin
from dejamq.membership import Membership, handled_by

HALF_AN_HOUR_MS = 1_800_000

Started = TypeVar("Started", bound=Membership)


class ConsumerLife(Generic[Started]):
    """What push and lite pull consumers have in common. Belongs to one event loop; ``_running`` is set by the start."""

    def __init__(self) -> None:
        self._running: Started | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._origin = Origin()

    @property
    def closed(self) -> bool:
        """Closing has begun, or is done."""
        return self._closing is not None

    @property
    def client_id(self) -> str:
        """Who this is in the group; empty before the start."""
        return "" if self._running is None else self._running.instance.client_id

    @property
    def boot_id(self) -> str:
        """Names this start in the journals; empty before it."""
        return "" if self._running is None else self._running.instance.boot_id

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

    async def _end(self, wait_ms: float) -> None:
        """Close once, however often and by whomever it is asked; a cancelled caller does not stop it.

        A handler does not wait: its own end is what closing waits for.
        """
        self._origin.check("consumer")
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(wait_ms / 1000))
            self._ending.set()
        if not in_handler_of(self):
            await asyncio.shield(self._closing)

    async def _close(self, timeout_s: float) -> None:
        if self._running is not None:
            await self._running.close(timeout_s)

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


def in_handler_of(consumer: ConsumerLife[Any]) -> bool:
    """Whether this is asked by one of the consumer's handlers, be it in a thread, or by what a handler began."""
    return consumer._running is not None and handled_by.get() is consumer._running


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def begin_timestamp_ms(chosen_ms: int | None) -> int:
    """Where ``ConsumeFrom.TIMESTAMP`` begins: as chosen, else half an hour ago (RocketMQ: consumeTimestamp)."""
    return now_ms() - HALF_AN_HOUR_MS if chosen_ms is None else chosen_ms
