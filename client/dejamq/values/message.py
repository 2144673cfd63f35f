"""Messages that a program sends, and their results: plain values, cheap to make."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NoReturn

import msgspec
import numpy as np
from dejamq_proto.codes import Code
from dejamq_proto.records.hosts import Host, offset_message_id
from dejamq_proto.records.recall_handle import RecallHandle
from dejamq_proto.wire.messages import SendRunResult, Words

from dejamq.native import MessageCheck
from dejamq.values.unique_id import next_unique_id


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False):
    """One queue of a topic at one broker. Sorts as RocketMQ sorts it: topic, broker name, queue id."""

    topic: str
    broker_name: str
    queue_id: int


class SendStatus(IntEnum):
    """How well an accepted message is kept; the values are the broker's response codes."""

    SEND_OK = Code.SUCCESS
    FLUSH_DISK_TIMEOUT = Code.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = Code.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = Code.SLAVE_NOT_AVAILABLE

    def __str__(self) -> str:
        return self.name


class _NoProperties(dict[str, str]):
    """Of all messages that have none: to make one for each would take as long as all else of a message."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a message cannot be changed; give properties when it is made, or to replace()")

    __setitem__ = __ior__ = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[()]]:
        """A copy is a dict as any other."""
        return dict, ()


_NO_PROPERTIES = _NoProperties()
_NO_KEYS: tuple[str, ...] = ()


class _Body(msgspec.Struct, frozen=True, gc=False):
    topic: str
    body: bytes


def _check_numbers(message: "Message") -> None:
    for name in ("delay_ms", "deliver_at_ms"):
        if type(getattr(message, name)) not in (int, type(None)):
            raise TypeError(f"{name} must be a whole number of milliseconds, or None")
    if type(message.delay_level) is not int or type(message.flag) is not int:
        raise TypeError("delay_level and flag must be whole numbers")


def _check_types(message: "Message") -> None:
    """What construction refuses, or puts right."""
    if type(message.topic) is not str:
        raise TypeError(f"topic must be a str, not {type(message.topic).__name__}")
    if type(message.body) is not bytes:
        _set(message, "body", _as_bytes(message.body))
    keys, tags, sharding_key = message.keys, message.tags, message.sharding_key
    if keys is not _NO_KEYS:
        _set(message, "keys", ((keys,) if keys else ()) if type(keys) is str else _texts("keys", keys))
    if message.properties is not _NO_PROPERTIES:
        _set(message, "properties", _properties(message.properties) if message.properties else _NO_PROPERTIES)
    if tags is not None and type(tags) is not str:
        raise TypeError(f"tags must be a str, not {type(tags).__name__}")
    if message.dedup_id is not None and type(message.dedup_id) is not str:
        raise TypeError(f"dedup_id must be a str, not {type(message.dedup_id).__name__}")
    if sharding_key is not None and type(sharding_key) is not str:
        raise TypeError(f"sharding_key must be a str, not {type(sharding_key).__name__}")
    _check_numbers(message)
    if type(message.wait_store) is not bool:
        raise TypeError(f"wait_store must be True or False, not {message.wait_store!r}")
    if type(message.message_id) is not str:
        raise TypeError(f"message_id must be a str, not {type(message.message_id).__name__}")


class Message(_Body, frozen=True, kw_only=True, gc=False):
    """A message to send. Construction checks types only; ``send`` refuses bad topics, sizes and characters.

    ``keys`` is one key or several, ``delay_level`` RocketMQ's 1 to 18 (0: at once). ``delay_ms`` delivers it so long
    after it was stored, ``deliver_at_ms`` at that time (ms since 1970), by the broker's clock and to its precision of a
    second. ``sharding_key`` keeps messages with equal keys in one queue, ``wait_store=False`` does not wait for a flush
    the broker would otherwise wait for.
    ``dedup_id`` (DEDUP_ID): the broker stores no second message of the topic with this id, as long as it knows it.
    ``message_id`` (UNIQ_KEY) is made here: the same object sent twice has one id, ``replace`` takes a new one.
    Raises TypeError.
    """

    tags: str | None = None
    keys: Iterable[str] = _NO_KEYS
    properties: Mapping[str, str] = _NO_PROPERTIES
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    dedup_id: str | None = None
    sharding_key: str | None = None
    flag: int = 0
    wait_store: bool = True
    message_id: str = msgspec.field(default_factory=next_unique_id)

    __post_init__ = MessageCheck(_check_types, _NO_PROPERTIES)  # type: ignore[misc]  # msgspec calls it

    @property
    def is_delayed(self) -> bool:
        """Whether it has a delay level or a time."""
        return bool(self.delay_level) or self.delay_ms is not None or self.deliver_at_ms is not None

    def replace(self, **changes: Any) -> "Message":
        """A copy with these fields changed and a new ``message_id``."""
        changes.setdefault("message_id", next_unique_id())
        return msgspec.structs.replace(self, **changes)


_set = msgspec.structs.force_setattr


def _as_bytes(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    hint = "; encode text first, e.g. text.encode()" if isinstance(body, str) else ""
    raise TypeError(f"body must be bytes, not {type(body).__name__}{hint}")


def _texts(what: str, values: Iterable[str]) -> tuple[str, ...]:
    """A tuple of the values. Raises TypeError for the first that is not a text."""
    try:
        texts = tuple(values)
    except TypeError:
        raise TypeError(f"{what} must be a str or several of them, not {type(values).__name__}") from None
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{what} must be str, not {type(text).__name__}")
    return texts


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    """A copy: a frozen message does not change with the program's dict."""
    try:
        copy = dict(properties)
    except (TypeError, ValueError):
        raise TypeError(f"properties must be a mapping of str to str, not {type(properties).__name__}") from None
    _texts("names and values of properties", (*copy.keys(), *copy.values()))
    return copy


class StoredRun:
    """Where a broker put one run: shared by the results of its messages, which compute their ids from it when asked.

    One object for up to 850 results: a result itself holds only its place in the run.
    """

    __slots__ = (
        "_duplicates",
        "_sizes",
        "_span_log_offsets",
        "_span_starts",
        "_timer_out_ms",
        "store_host",
        "store_timestamp_ms",
    )

    def __init__(self, answer: SendRunResult, sizes: Words) -> None:
        self.store_host, self.store_timestamp_ms = answer.store_host, answer.store_timestamp_ms
        self._sizes = sizes
        self._span_starts, self._span_log_offsets = answer.span_starts, answer.span_log_offsets
        self._timer_out_ms, self._duplicates = answer.timer_out_ms, answer.duplicates

    def log_offset(self, index: int) -> int:
        """Byte position of the run's record ``index`` in the broker's commit log.

        Records of a run lie one after the other; only where a log file ended does a new span begin.
        """
        span = int(np.searchsorted(self._span_starts, index, side="right")) - 1
        before = self._sizes[int(self._span_starts[span]) : index]
        return int(self._span_log_offsets[span]) + int(before.sum(dtype=np.int64))

    def timer_out_ms(self, index: int) -> int:
        """The beginning of the slot in which record ``index`` waits for its time; 0: it waits for none."""
        return int(self._timer_out_ms[index]) if len(self._timer_out_ms) else 0

    def is_duplicate(self, index: int) -> bool:
        """Whether record ``index`` was stored before, so that its place is the first one's."""
        return len(self._duplicates) > 0 and bool((self._duplicates == index).any())

    def host(self) -> Host:
        """Address and port of the broker that stored the run."""
        name, _, port = self.store_host.rpartition(":")
        return name, int(port)


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """A message is stored. ``message_id`` survives retries; ``offset_message_id`` names this stored copy.

    ``duplicate``: a message with its id was stored before. Queue, offsets and ``offset_message_id`` are that one's.
    """

    status: SendStatus
    message_id: str
    queue: MessageQueue
    queue_offset: int
    _stored: StoredRun
    _index: int

    def __repr__(self) -> str:
        return (
            f"SendResult(status={self.status.name}, message_id={self.message_id!r}, queue={self.queue!r}, "
            f"queue_offset={self.queue_offset}, offset_message_id={self.offset_message_id!r}"
            f"{', duplicate=True' if self.duplicate else ''})"
        )

    @property
    def duplicate(self) -> bool:
        """Nothing was stored now: the broker knows the message's id (``dedup_id``, or ``idempotent`` of its producer).

        A message that was sent again by a retry is one too, though its program sent it once.
        """
        return self._stored.is_duplicate(self._index)

    @property
    def offset_message_id(self) -> str:
        """The broker-made id: store host and log offset in hex."""
        return offset_message_id(self._stored.host(), self.log_offset)

    @property
    def log_offset(self) -> int:
        """Byte position of the record in that broker's commit log."""
        return self._stored.log_offset(self._index)

    @property
    def recall_handle(self) -> str:
        """For ``Producer.recall``: names a message that waits for its time. Empty for every other message."""
        out_ms = self._stored.timer_out_ms(self._index)
        at = self.queue
        return RecallHandle.in_slot(at.topic, at.broker_name, out_ms, self.message_id).encode() if out_ms else ""

    @property
    def store_timestamp_ms(self) -> int:
        """The broker's clock when it stored the message."""
        return self._stored.store_timestamp_ms
