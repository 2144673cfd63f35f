"""Numbers every delivery and journals its outcome.

``forensic``: DELIVER is with the kernel before the handler is entered. RESULT is with the kernel before the next
handler is entered or anything else happens. ``audit``: ordinary first deliveries and successes are gathered into runs
of one process queue and written within 100 ms. Other lines about a queue come after the gathered ones, so the order of
lines is the order of events.
"""

import asyncio
from collections.abc import Sequence
from itertools import count, zip_longest
from typing import Any

from dejamq_proto.journal.events import Deliver, Handout, Persist, PqDrop, PqOpen, Result
from dejamq_proto.journal.writer import FLUSH_INTERVAL_MS
from dejamq_proto.names import PROPERTY_KEYS, PROPERTY_ORIGIN_MESSAGE_ID, is_internal
from msgspec.structs import replace

from dejamq.receiving.assignment import Lines, OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.delivery_columns import Stretches
from dejamq.receiving.handlers import HandlerOutcome
from dejamq.receiving.received import ReceivedMessage

GATHER_AT_MOST, GATHER_OF_ALL = 512, 8192
"""So many messages of one queue, and of all of them, are gathered: until their line is written their bytes are kept.

A line takes in all that one pull brought, so large pulls are let go one by one. Several of them leave no room for
anything else in the caches of a core: with 2048, a message out of polls cost an eighth more.
"""


class Deliveries:
    """One consumer's deliveries. Owned by the event loop; everything here is synchronous.

    The journal of a killed process at level ``audit`` may lack up to 100 ms of lines. The audit knows the level
    from the STATE line and takes an absent result for unknown, not for unfinished.
    """

    def __init__(self, context: ConsumerContext, *, kind: str = "first") -> None:
        """``kind`` is the journal's word for an ordinary delivery."""
        self._kind = kind
        self._journal, self._group, self._client_id = context.journal, context.group, context.client_id
        self._business_key = context.config.journal_business_key
        self._on, self.forensic = self._journal.on, self._journal.forensic
        self.numbers = count(1)
        """The next delivery's number: whoever calls a handler takes it."""
        self._batches = 0
        self._gathering: dict[int, OwnedQueue] = {}
        self._gathered = 0
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, owned: OwnedQueue, message: ReceivedMessage) -> None:
        """A handler is about to get this message, for the first time from this process queue.

        Numbers count from 1 within one start of the client and are never given twice.
        """
        message.delivery_number = next(self.numbers)
        self.entered(owned, (message,))

    def entered(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """As ``enter``, for messages of one pull, in its order, that have their numbers; each was given alone."""
        if self.forensic:
            for message in messages:
                self.tell_entered(owned, message)
        elif self._on:
            if owned.entered.batch_sizes:
                self.flush(owned)
            owned.entered.add(messages)
            if owned.number not in self._gathering:
                self._gather(owned)

    def enter_again(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage], *, kind: str = "local_retry") -> None:
        """As ``enter``, for messages that a handler of this process queue has had before."""
        self._number(messages)
        self.entered_again(owned, messages, kind=kind)

    def entered_again(
        self, owned: OwnedQueue, messages: Sequence[ReceivedMessage], *, kind: str = "local_retry"
    ) -> None:
        """As ``enter_again``, for messages that have their numbers."""
        if self._on:
            local_retries = [message.local_retries for message in messages]
            self.flush(owned)
            self._write_deliver(owned, Stretches(messages), kind=kind, local_retries=local_retries)

    def enter_batch(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage], *, kind: str = "first") -> None:
        """As ``enter``, for a handler of lists."""
        self._number(messages)
        if not self._on:
            return
        if self.forensic or kind != self._kind:
            batch = Stretches()
            batch.add_batch(messages)
            self.flush(owned)
            self._write_deliver(owned, batch, kind=kind)
            return
        if owned.entered.count and not owned.entered.batch_sizes:
            self.flush(owned)
        owned.entered.add_batch(messages)
        if owned.number not in self._gathering:
            self._gather(owned)

    def succeed(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """They ended well, each alone, and their process queue knows."""
        if self.forensic:
            for message in messages:
                self.tell_succeeded(owned, message)
        elif self._on:
            owned.succeeded.add(messages)
            self._gathered += len(messages)
            if owned.number not in self._gathering:
                self._gather(owned)
            if owned.succeeded.count >= GATHER_AT_MOST:
                self.flush(owned)
            elif self._gathered >= GATHER_OF_ALL:
                self.close()

    def succeed_together(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """They ended well, by one answer, and their process queue knows, unless it was dropped."""
        if self.forensic or owned.dropped:
            self.end(owned, messages, HandlerOutcome("success", len(messages)))
        else:
            self.succeed(owned, messages)

    def end(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage], outcome: HandlerOutcome) -> None:
        """It ended in any other way, or too late: when the queue is dropped the result is thrown away.

        Such a result comes after all that was gathered, for every queue: whether another ownership of the same queue
        had been given the message by then tells R8 from O9.
        """
        if self._on:
            if owned.dropped:
                self.close()
            else:
                self.flush(owned)
            result = self._result(owned, Stretches(messages), outcome.status)
            result.reason, result.pq_dropped = outcome.reason, owned.dropped
            self._journal.write(result)

    def handed_out(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """A run reached the process queue."""
        if self._on:
            first, last = messages[0].queue_offset, messages[-1].queue_offset
            line = replace(self.lines(owned).handout, first_offset=first, last_offset=last, count=len(messages))
            self._journal.write(line)

    def opened(self, owned: OwnedQueue, source: str) -> None:
        """An ownership began; ``source`` says where its first offset came from."""
        if self._on:
            event = PqOpen(
                **self._place(owned), client_id=self._client_id, start_offset=owned.next_offset, source=source,
                generation=owned.generation,
            )  # fmt: skip
            self._journal.write(event)

    def dropped(self, owned: OwnedQueue, reason: str) -> None:
        """An ownership ended, with what was unfinished then."""
        if self._on:
            self.flush(owned)
            held = owned.process_queue
            mem_off, in_flight = held.low_water, held.in_flight
            self._journal.write(PqDrop(**self._place(owned), reason=reason, mem_off=mem_off, in_flight=in_flight))

    def flush(self, owned: OwnedQueue) -> None:
        """Write the gathered lines of this process queue; call before anything else is journalled about it.

        Deliveries gathered as successful counted, also when the queue has been dropped since.
        """
        if self._gathering.pop(owned.number, None) is None:
            return
        if owned.entered.count:
            entered, owned.entered = owned.entered, Stretches()
            self._write_deliver(owned, entered, kind=self._kind)
        if owned.succeeded.count:
            succeeded, owned.succeeded = owned.succeeded, Stretches()
            self._gathered -= succeeded.count
            self._journal.write(self._result(owned, succeeded, "success"))

    def close(self) -> None:
        """Write everything gathered. May be called twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for owned in tuple(self._gathering.values()):
            self.flush(owned)

    def _gather(self, owned: OwnedQueue) -> None:
        """The first line that is gathered starts the timer; a queue stands in the table while it has unwritten
        lines.
        """
        self._gathering[owned.number] = owned
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_INTERVAL_MS / 1000, self._due)

    def _due(self) -> None:
        self._timer = None
        self.close()
        self._journal.flush()  # or these lines would wait a second interval

    def tell_entered(self, owned: OwnedQueue, message: ReceivedMessage) -> None:
        """As ``enter`` of a message with its number, at level ``forensic``, which pays its price for each."""
        batch, index, lines = message._batch, message._index, owned.lines or self.lines(owned)
        if batch.retried or not lines.plain:
            self._write_deliver(owned, Stretches((message,)), kind=self._kind)
            return
        line = lines.entered
        line.delivery_ids[0], line.queue_offsets[0] = message.delivery_number, message.queue_offset
        line.log_offsets[0] = batch.column("log_offset")[index]
        line.unique_keys[0], hosts = batch.unique_keys[index], batch.store_hosts
        line.store_hosts = hosts if len(hosts) == 1 else [hosts[index]]
        self._journal.write(line)

    def tell_succeeded(self, owned: OwnedQueue, message: ReceivedMessage, *, followed: bool = False) -> None:
        """As ``succeed``, at level ``forensic``.

        ``followed``: the next message is entered in this very step, and its line takes this one along to the kernel.
        """
        line = (owned.lines or self.lines(owned)).succeeded
        line.delivery_ids[0], line.queue_offsets[0] = message.delivery_number, message.queue_offset
        line.mem_off = owned.process_queue.low_water
        self._journal.write(line, followed=followed)

    def lines(self, owned: OwnedQueue) -> Lines:
        """The common part of lines about this ownership. A line made anew costs twice as much as a copy."""
        lines = owned.lines
        if lines is None:
            place, plain = self._place(owned), not (self._business_key or is_internal(owned.queue.topic))
            deliver = Deliver(
                **place, client_id=self._client_id, kind=self._kind, delivery_ids=[], queue_offsets=[], log_offsets=[],
                unique_keys=[],
            )  # fmt: skip
            result = Result(**place, status="success", delivery_ids=[], queue_offsets=[], mem_off=0)
            handout = Handout(**place, first_offset=0, last_offset=0, count=0)
            persist = Persist(**place, value=0, reason="")
            for line in (handout, deliver, result, persist):
                self._journal.sign(line)
            entered = replace(deliver, delivery_ids=[0], queue_offsets=[0], log_offsets=[0], unique_keys=[""])
            succeeded = replace(result, delivery_ids=[0], queue_offsets=[0])
            lines = owned.lines = Lines(handout, deliver, result, persist, entered, succeeded, plain)
        return lines

    def _number(self, messages: Sequence[ReceivedMessage]) -> None:
        for message, number in zip(messages, self.numbers, strict=False):  # in this order: no number is lost
            message.delivery_number = number

    def _write_deliver(
        self, owned: OwnedQueue, delivered: Stretches, *, kind: str = "first", local_retries: Sequence[int] = ()
    ) -> None:
        event, retried = self._deliver(owned, delivered, kind), delivered.retried or any(local_retries)
        if retried or not self.lines(owned).plain:
            if retried or is_internal(owned.queue.topic):
                times = delivered.column("reconsume_times")
                event.reconsume_times = list(map(sum, zip_longest(times, local_retries, fillvalue=0)))
                event.origin_ids = [one.get(PROPERTY_ORIGIN_MESSAGE_ID, "") for one in delivered.properties()]
            if self._business_key:
                event.business_keys = [business_key(one, self._business_key) for one in delivered.properties()]
        self._journal.write(event)

    def _deliver(self, owned: OwnedQueue, delivered: Stretches, kind: str) -> Deliver:
        batches = len(delivered.batch_sizes)
        self._batches += batches
        return replace(
            self.lines(owned).deliver, kind=kind, batch_id=self._batches - batches + 1 if batches else 0,
            batch_sizes=delivered.batch_sizes if batches > 1 else [], delivery_ids=delivered.numbers,
            queue_offsets=delivered.listed("queue_offset"), log_offsets=delivered.listed("log_offset"),
            unique_keys=delivered.unique_keys, store_hosts=delivered.store_hosts,
        )  # fmt: skip

    def _result(self, owned: OwnedQueue, delivered: Stretches, status: str) -> Result:
        return replace(
            self.lines(owned).result, status=status, delivery_ids=delivered.numbers,
            queue_offsets=delivered.listed("queue_offset"), mem_off=owned.process_queue.low_water,
        )  # fmt: skip

    def _place(self, owned: OwnedQueue) -> dict[str, Any]:
        queue = owned.queue
        return {
            "pq_id": owned.number, "group": self._group, "topic": queue.topic, "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
        }  # fmt: skip


def business_key(properties: dict[str, str], name: str) -> str:
    """What identifies the event that a message is about: its first key, or a property."""
    value = properties.get(name, "")
    return value.split(" ", 1)[0] if name == PROPERTY_KEYS else value
