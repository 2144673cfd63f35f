"""Received messages: thin views of the run a pull brought, decoded when somebody looks.

A run is checked once when it arrives, so that no attribute ever raises; making its messages then costs some 0.05 µs
each. A message keeps its whole run alive until it is dropped or ``detach`` is called.
"""

from itertools import repeat

import msgspec
import numpy as np
from dejamq_proto import names
from dejamq_proto.records import record, run, small_runs
from dejamq_proto.records.hosts import host_text, offset_message_id
from dejamq_proto.wire.messages import PullAnswer, Words

from dejamq.native import COMPILED, BodyProperty, IdProperty
from dejamq.receiving.batch import PullBatch, RunBatch
from dejamq.receiving.batch_kinds import FewBatch, WideBatch
from dejamq.values.message import MessageQueue
from dejamq.values.namespace import unwrap, unwrap_queue

MOST_FEW = 16
"""So many records are read faster one by one: fewer than ``small_runs.FEW``, as a client only checks and reads them."""

NOT_OF_THE_PROGRAM = names.RESERVED_PROPERTIES | names.REQUEST_PROPERTIES
"""Properties that a forwarded copy leaves out."""


class ReceivedMessage(msgspec.Struct, gc=False, eq=False):
    """One delivered message. ``properties`` holds the system's own too; all times are ms since 1970.

    For a retried message ``topic`` is the one it was first sent to, while ``queue`` is where this copy was read
    (``%RETRY%group``), as in RocketMQ. The object belongs to the loop that received it.
    """

    _batch: PullBatch
    _index: int
    queue_offset: int
    delivery_number: int = 0
    """Counts the deliveries of this client; 0 before a handler got the message."""
    local_retries: int = 0
    """Failures whose send-back failed as well: counted here only, as the broker does not know of them."""
    _properties: dict[str, str] | None = None
    failure: str = ""
    """Why its handler failed, as far as it said: for the broker, and for whoever looks at the dead letter."""

    @property
    def topic(self) -> str:
        """The topic it was first sent to."""
        topic = self._batch.queue.topic
        if self._batch.first_topic:
            return self._batch.first_topic
        if topic.startswith(names.RETRY_PREFIX):
            return unwrap(self._batch.namespace, self.properties.get(names.PROPERTY_RETRY_TOPIC, topic))
        return topic

    @BodyProperty
    def body(self) -> bytes:
        """As the producer gave it: decompressed where the producer compressed it."""
        batch, index = self._batch, self._index
        plain = batch.plain
        if plain is not None:  # without a further call: a handler of lists costs little more than its bodies
            return plain[batch.starts[index] : batch.ends[index]]
        return batch.body(index)

    @property
    def properties(self) -> dict[str, str]:
        """Decoded once a message; treat it as read-only."""
        if self._properties is None:
            self._properties = self._batch.properties(self._index)
        return self._properties

    @property
    def user_properties(self) -> dict[str, str]:
        """The program's own properties: a forwarded copy of this message takes them along.

        Names that the system sets, and those of a request and its reply, are left out.
        """
        return {name: text for name, text in self.properties.items() if name not in NOT_OF_THE_PROGRAM}

    @property
    def tags(self) -> str | None:
        """The tag, None without one."""
        return self.properties.get(names.PROPERTY_TAGS)

    @property
    def keys(self) -> list[str]:
        """Business keys, in the producer's order."""
        return [key for key in self.properties.get(names.PROPERTY_KEYS, "").split(" ") if key]

    @IdProperty
    def message_id(self) -> str:
        """The client-made id, which survives retries; the broker-made one where the producer set none."""
        batch = self._batch
        keys = batch._unique_keys or batch.unique_keys  # the former without a further call, once they are read
        return keys[self._index] or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker-made id: another one for every stored copy."""
        return offset_message_id(self._batch.store_host(self._index), self.log_offset)

    @property
    def delivery_id(self) -> str:
        """Names this delivery in the journal: ``<boot id of the client>-<number>``."""
        return f"{self._batch.boot_id}-{self.delivery_number}"

    @property
    def receipt_handle(self) -> str:
        """Names this delivery to the broker; empty where the message was not popped."""
        handles = self._batch.handles
        return handles[self._index] if handles else ""

    def take_handle(self, handle: str) -> None:
        """The delivery has another receipt handle now."""
        if self._batch.handles:
            self._batch.handles[self._index] = handle

    @property
    def group(self) -> str:
        """The consumer group that it was delivered to; empty where it was read without one."""
        return self._batch.group

    @property
    def queue(self) -> MessageQueue:
        """Where this copy was read."""
        return self._batch.queue

    @property
    def log_offset(self) -> int:
        """Byte position in the broker's commit log."""
        return self._batch.column("log_offset")[self._index]

    @property
    def store_size(self) -> int:
        """Bytes of the stored record."""
        return self._batch.column("total_size")[self._index]

    @property
    def body_crc(self) -> int:
        """CRC-32 of the stored body."""
        return self._batch.column("body_crc")[self._index]

    @property
    def flag(self) -> int:
        """The producer's own number; RocketMQ gives it no meaning."""
        return self._batch.column("flag")[self._index]

    @property
    def sys_flag(self) -> int:
        """RocketMQ's bits: compression, transaction, IPv6 hosts."""
        return self._batch.column("sys_flag")[self._index]

    @property
    def reconsume_times(self) -> int:
        """How often the group has failed with this message before."""
        return self._batch.column("reconsume_times")[self._index] + self.local_retries

    @property
    def born_timestamp_ms(self) -> int:
        """The producer's clock."""
        return self._batch.column("born_timestamp_ms")[self._index]

    @property
    def store_timestamp_ms(self) -> int:
        """The broker's clock."""
        return self._batch.column("store_timestamp_ms")[self._index]

    @property
    def born_host(self) -> str:
        """``address:port`` of the producer as the broker saw it."""
        return host_text(self._batch.born_host(self._index))

    @property
    def store_host(self) -> str:
        """``address:port`` of the broker."""
        return host_text(self._batch.store_host(self._index))

    @property
    def prepared_transaction_offset(self) -> int:
        """Log offset of the half message of a committed one; 0 for all others."""
        return self._batch.column("prepared_transaction_offset")[self._index]

    def detach(self) -> "ReceivedMessage":
        """Let go of the run it came with (up to a megabyte) and keep only this record. Returns the message."""
        old = self._batch
        raw = old.raw(self._index)
        batch = batch_of(raw, 0, np.array([len(raw)], "<u4"), old.queue, old.boot_id)
        batch.group, batch.namespace, batch.first_topic = old.group, old.namespace, old.first_topic
        batch.handles = [self.receipt_handle] if old.handles else None
        self._batch, self._index = batch, 0
        return self

    def __repr__(self) -> str:
        place = f"{self.queue.broker_name}:{self.queue.queue_id}@{self.queue_offset}"
        return f"ReceivedMessage({self.topic!r}, {self.message_id}, {place}, reconsume_times={self.reconsume_times})"


def receive(answer: PullAnswer, queue: MessageQueue, boot_id: str) -> tuple[PullBatch, list[ReceivedMessage]]:
    """Check a found answer and make its messages. Raises BadRun or BadRecord for bytes that are no records."""
    if answer.frame:
        data = answer.frame if COMPILED else bytes(answer.frame)  # in Python slices of bytes cost half of a view's
        at = len(data) - len(answer.records[0])
    else:
        data, at = b"".join(answer.records), 0
    batch = batch_of(data, at, answer.sizes, queue, boot_id)
    messages = list(map(ReceivedMessage, repeat(batch), range(len(batch)), batch.column("queue_offset")))
    return batch, messages


def batch_of(data: bytes | memoryview, at: int, sizes: Words, queue: MessageQueue, boot_id: str) -> PullBatch:
    """The records of these sizes that are the data from ``at`` on. Raises BadRun or BadRecord for other bytes."""
    if 0 < len(sizes) <= MOST_FEW:
        data = bytes(data)
        headers = small_runs.headers(data, at, sizes.tolist())
        if headers is not None:
            return FewBatch(headers, data, at, queue, boot_id)
    records = memoryview(data)[at:]
    try:
        return RunBatch(run.parse(records, sizes), data, at, queue, boot_id)
    except run.BadRun:
        return WideBatch(_decode_alone(records, sizes), queue, boot_id)


def receive_stored(raw: bytes, broker_name: str, boot_id: str = "", namespace: str = "") -> ReceivedMessage:
    """One stored record as a message that nobody pulled. Raises BadRecord for other bytes."""
    stored = record.decode(raw)
    queue = unwrap_queue(namespace, MessageQueue(stored.topic, broker_name, stored.queue_id))
    answer = PullAnswer(sizes=np.array([len(raw)], "<u4"), records=(raw,), next_offset=stored.queue_offset + 1)
    batch, (message,) = receive(answer, queue, boot_id)
    batch.namespace = namespace
    return message


def _decode_alone(data: bytes | memoryview, sizes: Words) -> list[record.Record]:
    """Each record by itself. Bodies were checked by the broker and by TCP; their CRC is not looked at again."""
    ends = np.cumsum(sizes.astype(np.int64)).tolist()
    if not ends or ends[-1] != len(data):
        raise run.BadRun(max(len(ends) - 1, 0), f"{len(data)} bytes came for records of {sum(sizes.tolist())}")
    starts = [0, *ends[:-1]]
    return [record.decode(bytes(data[a:b]), check_crc=False) for a, b in zip(starts, ends, strict=True)]
