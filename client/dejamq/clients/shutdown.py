"""How a consumer stops: dejamq's way, which drains, or RocketMQ's, which leaves what runs to be delivered again."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from enum import Enum
from typing import Any, Protocol

from dejamq.net.instance import HURRIED_S
from dejamq.rebalance.locks import QueueLocks
from dejamq.rebalance.rebalancer import Rebalancer
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.offset_store import OffsetStore


class ShutdownMode(Enum):
    """DRAIN: handlers end, then offsets are committed and locks given back. ROCKETMQ: its 0 ms, and its order."""

    DRAIN = "drain"
    ROCKETMQ = "rocketmq"


class Stopping(Protocol):
    """A started consumer, as far as it is ended here."""

    deliveries: Deliveries
    offsets: OffsetStore
    rebalancer: Rebalancer
    locks: QueueLocks | None

    async def stop_pulling(self) -> None: ...

    async def stop_workers(self, timeout_s: float) -> None: ...

    def cancel_workers(self) -> None: ...

    async def leave(self) -> None: ...

    def close_threads(self) -> None: ...


class Shutdown:
    """The end of one consumer. ``hurry`` may come at any time, also before."""

    def __init__(self, consumer: Stopping) -> None:
        self._consumer = consumer
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Wait for nobody who does not answer at once."""
        self._hurried.set()

    def hurry_after(self, seconds: float) -> None:
        """The time in all that somebody gave this end."""
        asyncio.get_running_loop().call_later(seconds, self.hurry)

    async def drain(self, timeout_s: float) -> None:
        """Stop pulling, let handlers end, commit, leave. Every step is taken even when one before it fails.

        The order is RocketMQ's, with one difference: handlers are waited for before the offsets are committed, so that
        what they finished counts.
        """
        consumer = self._consumer
        async with AsyncExitStack() as stack:
            stack.callback(consumer.close_threads)
            stack.push_async_callback(self._briefly, consumer.leave)
            stack.push_async_callback(self._briefly, lambda: consumer.rebalancer.release_all("shutdown"))
            stack.callback(consumer.deliveries.close)
            stack.push_async_callback(self._briefly, lambda: consumer.stop_workers(timeout_s))
            stack.push_async_callback(self._briefly, consumer.stop_pulling)

    async def as_rocketmq(self, timeout_s: float) -> None:
        """In this order: interrupt handlers, give locks back, send offsets oneway, drop queues, leave the group.

        Messages that a handler had not finished, or finishes now, are delivered again (cause O10). A lock that is
        free before its progress is known repeats messages too (O11). RocketMQ drops last; here the journal is
        open only until the group is left. Source: RocketMQ ``DefaultMQPushConsumerImpl.shutdown``.
        """
        consumer, owned = self._consumer, tuple(self._consumer.rebalancer.assignment)
        async with AsyncExitStack() as stack:
            stack.callback(consumer.close_threads)
            stack.push_async_callback(self._briefly, consumer.leave)
            stack.callback(self._drop, owned)
            stack.callback(consumer.offsets.commit_oneway, owned, reason="shutdown")
            stack.callback(self._unlock, owned)
            stack.callback(consumer.cancel_workers)
            stack.callback(consumer.rebalancer.stop)
            if timeout_s:
                stack.push_async_callback(self._briefly, lambda: consumer.stop_workers(timeout_s))

    def _unlock(self, owned: tuple[OwnedQueue, ...]) -> None:
        if self._consumer.locks is not None:
            self._consumer.locks.unlock_owned(owned)

    def _drop(self, owned: tuple[OwnedQueue, ...]) -> None:
        for one in owned:
            one.process_queue.dropped = True
            self._consumer.deliveries.dropped(one, "shutdown")
        self._consumer.deliveries.close()

    async def _briefly(self, step: Any) -> None:
        """One step; once hurried, for ``HURRIED_S`` at most. A step that is cut off ends with the process."""
        work: Coroutine[Any, Any, None] = step()
        doing, hurried = asyncio.ensure_future(work), asyncio.ensure_future(self._hurried.wait())
        try:
            await asyncio.wait((doing, hurried), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                await asyncio.wait((doing,), timeout=HURRIED_S)
        finally:
            hurried.cancel()
            if not doing.done():
                doing.cancel()
        if doing.done():
            await doing
