"""Taking messages for a group: what was shown is acknowledged, and nothing else."""

import asyncio
from collections.abc import Callable

from dejamq import PushConsumer, ReceivedMessage

from dejamq_cli.terminal.output import OutputClosed
from dejamq_cli.terminal.stopping import stop_signals, until

IDLE_S = 3.0
CLOSE_TIMEOUT_MS = 1_000
Show = Callable[[ReceivedMessage], None]


class Taking:
    """Shows at most ``count`` messages (0: no limit). A message is acknowledged when it is written, not before."""

    def __init__(self, consumer: PushConsumer, topic: str, show: Show, count: int) -> None:
        consumer.subscribe(topic, self._handle)
        self._consumer, self._show, self._left = consumer, show, count or -1
        self._enough, self._moved = asyncio.Event(), asyncio.Event()

    async def run(self, *, follow: bool) -> bool:
        """Until enough, or nothing came for a while; whether a signal ended it. Raises what the consumer fails with."""
        with stop_signals() as asked:
            await self._consumer.start()
            try:
                await until(self._take(follow), asked.stopped)
            finally:
                await self._consumer.close(CLOSE_TIMEOUT_MS)
            return asked.stopped.is_set()

    async def _take(self, follow: bool) -> None:
        assigned = asyncio.ensure_future(self._consumer.wait_assigned())
        stopped = asyncio.ensure_future(self._consumer.wait_stopped())
        try:
            await assigned
            while not self._enough.is_set() and not stopped.done():
                self._moved.clear()
                async with asyncio.timeout(None if follow else IDLE_S):
                    await self._moved.wait()
        except TimeoutError:
            if not assigned.done() or assigned.exception():
                raise
        finally:
            assigned.cancel()
            stopped.cancel()

    async def _handle(self, message: ReceivedMessage) -> None:
        if self._enough.is_set() or not self._written(message):
            # one too many: cancelled by the close, neither acknowledged nor counted as a try
            await asyncio.Future()
        self._left -= 1
        if not self._left:
            self._enough.set()
        self._moved.set()

    def _written(self, message: ReceivedMessage) -> bool:
        try:
            self._show(message)
        except OutputClosed:  # nobody reads any more
            self._enough.set()
            self._moved.set()
            return False
        return True
