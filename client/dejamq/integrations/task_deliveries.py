"""Tasks in the hands of one worker: each is kept from other workers until it is settled, once."""

import asyncio
import logging
import time
from collections.abc import Callable

from dejamq_proto.codes import ClientClosed, Code, DejamqError

from dejamq.receiving.received import ReceivedMessage
from dejamq.simple.consumer import SimpleConsumer

log = logging.getLogger("dejamq.integrations.tasks")
RENEWED_FOR_S = 10_800
"""As RocketMQ's proxy renews: a task that takes longer than three hours comes again."""


class TaskDelivery:
    """One task of one worker, by its message. Owned by the event loop of its consumer."""

    def __init__(
        self, consumer: SimpleConsumer, message: ReceivedMessage, invisible_ms: int, forget: Callable[[], object]
    ) -> None:
        """``forget`` is called when it is no longer this worker's."""
        self.message = message
        self.again_ms: int | None = None
        """Settling gives the task back, for somebody in so many ms; None: it is acknowledged."""
        self._consumer, self._invisible_ms, self._forget = consumer, invisible_ms, forget
        self._stopped, self._ended = asyncio.Event(), False
        self._settling: asyncio.Task[None] | None = None
        self._renewing = asyncio.get_running_loop().create_task(self._renew())

    @property
    def attempt(self) -> int:
        """1 at the first delivery."""
        return self.message.reconsume_times + 1

    def run_by(self, execution: "asyncio.Task[object]") -> None:
        """It is renewed until this has ended, and if that did not settle it, once more at most."""
        execution.add_done_callback(self._end)

    async def settle(self) -> None:
        """Acknowledge it, or give it back as ``again_ms`` says: once. Whoever waits for it may be cancelled.

        Raises DejamqError: the task comes again, or is somebody else's already.
        """
        if self._settling is None:
            self._settling = asyncio.get_running_loop().create_task(self._settle())
        await asyncio.shield(self._settling)

    async def _settle(self) -> None:
        try:
            await self._stop_renewing()
            if self.again_ms is None:
                await self._consumer.ack(self.message)
            else:
                await self._consumer.change_invisible(self.message, self.again_ms)
        finally:
            self._forget()

    async def give_back(self, ms: int) -> None:
        """Not done here: somebody may have it in so many ms, unless it is settled already. A failure is logged."""
        if self._settling is None:
            self.again_ms = ms
        try:
            await self.settle()
        except DejamqError as error:
            log.warning("task_not_settled message_id=%s: it comes again: %s", self.message.message_id, error)

    def _end(self, execution: "asyncio.Task[object]") -> None:
        self._ended = True
        error = None if execution.cancelled() else execution.exception()
        if error is not None:
            log.error("task_not_settled message_id=%s: it comes again: %r", self.message.message_id, error)

    async def _stop_renewing(self) -> None:
        """A renewal under way ends first: it would undo what comes before it."""
        self._stopped.set()
        await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew(self) -> None:
        """At half of its time each, until it is settled."""
        until_s, last = time.monotonic() + RENEWED_FOR_S, False
        while time.monotonic() < until_s and not last:
            try:
                async with asyncio.timeout(self._invisible_ms / 2000):
                    await self._stopped.wait()
                return
            except TimeoutError:
                last = self._ended
            try:
                await self._consumer.change_invisible(self.message, self._invisible_ms)
            except DejamqError as error:
                log.warning("task_not_renewed message_id=%s: it may come again: %s", self.message.message_id, error)
                if error.code == Code.NO_MESSAGE or isinstance(error, ClientClosed):
                    return


class TaskDeliveries:
    """What one worker has in hand, by the delivery numbers that its journal has too."""

    def __init__(self) -> None:
        self._by_number: dict[int, TaskDelivery] = {}

    def take(self, consumer: SimpleConsumer, message: ReceivedMessage, invisible_ms: int) -> TaskDelivery:
        """From now on it is renewed."""
        number = message.delivery_number
        delivery = TaskDelivery(consumer, message, invisible_ms, lambda: self._by_number.pop(number, None))
        self._by_number[number] = delivery
        return delivery

    def get(self, number: object) -> TaskDelivery | None:
        """None: this worker has no such delivery, or no longer."""
        return self._by_number.get(number) if isinstance(number, int) else None

    async def give_all_back(self) -> int:
        """Whatever is not settled is somebody else's at once. How many they were."""
        left = list(self._by_number.values())
        await asyncio.gather(*(delivery.give_back(0) for delivery in left))
        return len(left)
