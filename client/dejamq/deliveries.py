"""Numbers every delivery and journals what became of it.

``forensic``: DELIVER is with the kernel before the handler is entered, RESULT right after it ends. ``audit``: ordinary
first deliveries and successes are gathered into runs of one process queue and written within 100 ms; whatever else is
written about a queue comes after what was gathered for it, so the order of lines is the order of events.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from dejamq_proto.events import Deliver, Handout, PqDrop, PqOpen, Result
from dejamq_proto.journal import FLUSH_INTERVAL_MS
from dejamq_proto.names import PROPERTY_KEYS, PROPERTY_ORIGIN_MESSAGE_ID, is_internal

from dejamq.assignment import OwnedQueue
from dejamq.context import Context
from dejamq.handlers import Outcome
from dejamq.received import ReceivedMessage, columns_of

GATHER_AT_MOST = 2048


class Deliveries:
    """One consumer's deliveries. Owned by the event loop; everything here is synchronous.

    What a killed process leaves at level ``audit`` may lack up to 100 ms of lines; the audit knows the level
    from the STATE line and takes an absent result for unknown, not for unfinished.
    """

    def __init__(self, context: Context, *, kind: str = "first") -> None:
        """``kind`` is the journal's word for an ordinary delivery."""
        self._kind = kind
        self._journal, self._group, self._client_id = context.journal, context.group, context.client_id
        self._business_key = context.config.journal_business_key
        self._on, self._forensic = self._journal.on, self._journal.forensic
        self._count = self._batches = 0
        self._gathering: dict[int, OwnedQueue] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, owned: OwnedQueue, message: ReceivedMessage) -> None:
        """A handler is about to get this message, for the first time from this process queue.

        Numbers count from 1 within one start of the client and are never given twice.
        """
        self._count += 1
        message.delivery_number = self._count
        if self._on:
            if self._forensic:
                self._write_deliver(owned, (message,), kind=self._kind)
            else:
                owned.entered.append(message)
                if owned.number not in self._gathering:
                    self._gather(owned)

    def enter_again(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage], *, kind: str = "local_retry") -> None:
        """As ``enter``, for messages that a handler of this process queue has had before."""
        self._number(messages)
        if self._on:
            self.flush(owned)
            self._write_deliver(owned, messages, kind=kind)

    def enter_batch(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage], *, kind: str = "first") -> None:
        """As ``enter``, for a handler of lists."""
        self._number(messages)
        self._batches += 1
        if self._on:
            self.flush(owned)
            self._write_deliver(owned, messages, kind=kind, batch_id=self._batches)

    def succeed(self, owned: OwnedQueue, message: ReceivedMessage) -> None:
        """It ended well, and its process queue knows."""
        if self._on:
            if self._forensic:
                self._journal.write(self._result(owned, (message,), "success"))
            else:
                owned.succeeded.append(message)
                if len(owned.succeeded) >= GATHER_AT_MOST:
                    self.flush(owned)
                elif owned.number not in self._gathering:
                    self._gather(owned)

    def end(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage], outcome: Outcome) -> None:
        """It ended in any other way, or too late: when the queue is dropped the result is thrown away.

        Such a result comes after all that was gathered, for every queue: whether another ownership of the same queue
        had been given the message by then tells R8 from O9.
        """
        if self._on:
            if owned.dropped:
                self.close()
            else:
                self.flush(owned)
            result = self._result(owned, messages, outcome.status)
            result.reason, result.pq_dropped = outcome.reason, owned.dropped
            self._journal.write(result)

    def handed_out(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """A run reached the process queue."""
        if self._on:
            first, last = messages[0].queue_offset, messages[-1].queue_offset
            count = len(messages)
            self._journal.write(Handout(**self._place(owned), first_offset=first, last_offset=last, count=count))

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
        """Write what is gathered for this process queue; call before anything else is journalled about it.

        What was gathered as successful counted, also when the queue has been dropped since.
        """
        if self._gathering.pop(owned.number, None) is None:
            return
        if owned.entered:
            entered, owned.entered = owned.entered, []
            self._write_deliver(owned, entered, kind=self._kind)
        if owned.succeeded:
            succeeded, owned.succeeded = owned.succeeded, []
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

    def _number(self, messages: Sequence[ReceivedMessage]) -> None:
        for number, message in enumerate(messages, self._count + 1):
            message.delivery_number = number
        self._count += len(messages)

    def _write_deliver(
        self, owned: OwnedQueue, messages: Sequence[ReceivedMessage], *, kind: str = "first", batch_id: int = 0
    ) -> None:
        columns = columns_of(messages)
        event = Deliver(
            **self._place(owned), client_id=self._client_id, kind=kind, batch_id=batch_id,
            delivery_ids=[message.delivery_number for message in messages],
            queue_offsets=[message.queue_offset for message in messages],
            log_offsets=columns.log_offsets, unique_keys=columns.unique_keys, store_hosts=columns.store_hosts,
        )  # fmt: skip
        if any(columns.reconsume_times) or is_internal(owned.queue.topic):
            event.reconsume_times = columns.reconsume_times
            event.origin_ids = [message.properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "") for message in messages]
        if self._business_key:
            event.business_keys = [_business_key(message, self._business_key) for message in messages]
        self._journal.write(event)

    def _result(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage], status: str) -> Result:
        return Result(
            **self._place(owned), status=status,
            delivery_ids=[message.delivery_number for message in messages],
            queue_offsets=[message.queue_offset for message in messages],
            mem_off=owned.process_queue.low_water,
        )  # fmt: skip

    def _place(self, owned: OwnedQueue) -> dict[str, Any]:
        queue = owned.queue
        return {
            "pq_id": owned.number, "group": self._group, "topic": queue.topic, "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
        }  # fmt: skip


def _business_key(message: ReceivedMessage, name: str) -> str:
    value = message.properties.get(name, "")
    return value.split(" ", 1)[0] if name == PROPERTY_KEYS else value
