"""Messages by key and by id. Source: RocketMQ ``DefaultMessageStore.queryMessage``, ``QueryMessageProcessor``.

The index knows hashes only, so it also answers records of other keys (``Aa`` and ``BB`` hash alike). RocketMQ's broker
sends them and its client drops them. Here the store looks into each record, so they neither reach the caller nor take
space in the answer. For the same reason times are exact here, where the index keeps whole seconds.
"""

import errno
from collections import deque
from collections.abc import Callable
from itertools import chain

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY
from dejamq_proto.records.hosts import host_text, parse_offset_message_id
from dejamq_proto.records.record import decode

from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.index.file import Bounds
from dejamq_broker.store.index.index import Index
from dejamq_broker.store.index.keys import key_hash, keys_of, words_of
from dejamq_broker.store.log.catch_up import LateReader

UNIQUE_MOST = 32
"""Records that a query by unique key answers at most (RocketMQ: ``defaultQueryMaxNum``)."""
MAX_BYTES = 32 << 20
"""The most that one answer may hold beyond its first record."""
MAX_FOREIGN = 10_000
"""A query ends after this number of records of other keys. Only keys that collide on purpose reach it."""
NO_END = (1 << 63) - 1
ALL = 1 << 30
"""Asks for as many as the settings allow."""


class KeyQuery(msgspec.Struct, frozen=True):
    """The question: records of the topic with this word among their KEYS, or, ``unique``, with this UNIQ_KEY.

    Store times in ms, both ends included.
    """

    topic: str
    key: str
    begin_ms: int = 0
    end_ms: int = NO_END
    max_messages: int = ALL
    unique: bool = False

    def fits(self, raw: bytes) -> bool:
        record = decode(raw, check_crc=False)
        if record.topic != self.topic or not self.begin_ms <= record.store_timestamp_ms <= self.end_ms:
            return False
        properties = record.properties
        if self.unique:
            return properties.get(PROPERTY_UNIQUE_KEY) == self.key
        return self.key in words_of(properties.get(PROPERTY_KEYS))


class QueryResult(msgspec.Struct, frozen=True):
    """The records' bytes in log order, and how far the index has come: store time (ms) and log offset."""

    records: list[bytes]
    index_timestamp_ms: int
    index_log_offset: int


class Query:
    """Answers operators and tools. Any thread; it may take long when the index is far behind."""

    def __init__(self, index: Index, record_at: Callable[[int], bytes | None], late: LateReader, most: int) -> None:
        """``late`` feeds the index, and gives what it could not be fed."""
        self._index, self._record_at, self._late, self._most = index, record_at, late, most

    def by_key(self, wanted: KeyQuery) -> QueryResult:
        """The newest records that fit, ``max_messages`` at most, the oldest of them first.

        Everything confirmed is looked at: the index is brought up to date first. RocketMQ goes back in time in up to
        three rounds when nothing of a round can be read. Here one pass goes on to the next candidate. Records that a
        full disk keeps out of the index are looked for in the log itself. Raises StoreError when the disk fails
        otherwise.
        """
        behind = self._bring_up(wanted)
        most = min(wanted.max_messages, UNIQUE_MOST if wanted.unique else self._most)
        found: dict[int, bytes] = {}
        size = foreign = 0
        indexed = self._index.matches(wanted.topic, wanted.key, Bounds(wanted.begin_ms, wanted.end_ms))
        for log_offset in chain(behind, indexed):
            if len(found) >= most or foreign >= MAX_FOREIGN:
                break
            raw = self._record_at(log_offset)
            if raw is None or not wanted.fits(raw):
                foreign += 1
                continue
            size += len(raw) if log_offset not in found else 0
            if found and size > MAX_BYTES:
                break
            found[log_offset] = raw
        return QueryResult([found[log_offset] for log_offset in sorted(found)], *self._index.newest)

    def _bring_up(self, wanted: KeyQuery) -> list[int]:
        """Feed the index.

        Gives the log offsets, newest first, of records that may fit and for which the answer has no space.
        """
        try:
            self._late.catch_up()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return self._behind(wanted)
            what = f"the index cannot come to the end of the log: {error.strerror};"
            raise StoreError(f"{what} move the folder index away and restart, it is made again") from error
        return []

    def _behind(self, wanted: KeyQuery) -> list[int]:
        hashed = key_hash(wanted.topic, wanted.key)
        newest: deque[int] = deque(maxlen=self._most + MAX_FOREIGN)
        for found in self._late.rest():
            keys = keys_of(found)
            newest.extend(keys.log_offsets[keys.hashes == hashed].tolist())
        return list(reversed(newest))

    def by_id(self, message_id: str) -> bytes | None:
        """The record that an offset message id (32 or 56 hex digits) names, None when none begins there.

        Raises INVALID_PARAMETER for a text that is no such id. Raises QUERY_NOT_FOUND when the record there was stored
        under another address: the id is another broker's.
        """
        try:
            host, log_offset = parse_offset_message_id(message_id)
        except ValueError:
            raise DejamqError(
                f"{message_id!r} is no offset message id: it has 32 hex digits, 56 with an IPv6 address",
                code=Code.INVALID_PARAMETER,
            ) from None
        raw = self._record_at(log_offset)
        stored_by = decode(raw, check_crc=False).store_host if raw is not None else host
        if stored_by != host:
            raise DejamqError(
                f"{message_id} is of the broker {host_text(host)}, the record at {log_offset} here was stored by "
                f"{host_text(stored_by)}: ask that broker",
                code=Code.QUERY_NOT_FOUND,
            )
        return raw
