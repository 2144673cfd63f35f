"""The keys of records read back from the log, hashed as the index keeps them: all records of a run at once.

A record is found by its UNIQ_KEY and by each word of its KEYS. Records that are not as everybody writes them (text
beyond ASCII, a property twice, a last 0x02 missing) are looked at one by one. Source: RocketMQ ``IndexService``.
"""

import re
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto.names import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY
from dejamq_proto.records.record import (
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_ROLLBACK,
    Record,
    decode,
    decode_properties,
    java_hash,
)
from dejamq_proto.records.run import Bytes, Run, every

from dejamq_broker.store.log.batch import Ints
from dejamq_broker.store.log.record_texts import properties_rows, topics_of, windows
from dejamq_broker.store.log.scan import FoundRecords

Words = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

_MODULUS = 1 << 32
_INVERSE_OF_31 = pow(31, -1, _MODULUS)
_UNIQUE_NAME = np.frombuffer(PROPERTY_UNIQUE_KEY.encode(), np.uint8)
_KEYS_NAME = np.frombuffer(PROPERTY_KEYS.encode(), np.uint8)
_NO_KEY = rb"(?!(?:%b|%b)\x01)[^\x01\x02\x80-\xFF]+\x01[^\x01\x02\x80-\xFF]*\x02" % (
    PROPERTY_UNIQUE_KEY.encode(), PROPERTY_KEYS.encode()
)  # fmt: skip
_ONLY_KEY = re.compile(rb"%b\x01([^\x01\x02\x80-\xFF]+)\x02(?:%b)*" % (PROPERTY_UNIQUE_KEY.encode(), _NO_KEY))
"""Properties of which the first is a UNIQ_KEY and no other one a key."""


class Keys(msgspec.Struct, frozen=True, gc=False):
    """One element a key, in the order of the index: log order, in a record UNIQ_KEY first, then the words of KEYS."""

    hashes: Ints
    log_offsets: Ints
    store_timestamps_ms: Ints

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, part: slice) -> "Keys":
        return Keys(self.hashes[part], self.log_offsets[part], self.store_timestamps_ms[part])


class _Spans(msgspec.Struct, frozen=True, gc=False):
    """Keys as texts in the joined properties, with the number of the record that each belongs to."""

    records: Ints
    at: Ints
    size: Ints


class _Properties(msgspec.Struct, frozen=True, gc=False):
    """Where in the joined properties each one begins, has its 0x01 and its 0x02, and the number of its record."""

    owners: Ints
    begins: Ints
    opens: Ints
    closes: Ints


def key_hash(topic: str, key: str) -> int:
    """The hash that the index keeps of a key. Source: RocketMQ ``IndexFile.indexKeyHashMethod``."""
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 1 << 31 else value


def words_of(keys: str | None) -> list[str]:
    """The single keys of a KEYS property."""
    return [word for word in (keys or "").split(" ") if word]


def keys_of(found: FoundRecords) -> Keys:
    """The part of these records that goes into the index. Rolled-back ones are left out, prepared ones are not."""
    if found.run is None:
        record = decode(found.data, check_crc=False)
        hashes = _hashes_of(record)
        return _keys(hashes, [found.log_offset] * len(hashes), [record.store_timestamp_ms] * len(hashes))
    return _of_run(found, found.run)


def java_hashes(data: Bytes, at: Ints, size: Ints) -> Words:
    """Java's ``hashCode`` modulo 2**32 of ASCII texts: text i takes ``size[i]`` bytes from ``at[i]`` on.

    There is no loop over texts or their lengths. A running sum of bytes times powers of 1/31 gives any text's hash as
    one difference, times a power of 31. 31 is odd, so it has an inverse.
    """
    ends = np.cumsum(size)
    total = int(ends[-1]) if len(ends) else 0
    powers, inverses = _powers(total)
    flat = data[np.repeat(at - ends + size, size) + np.arange(total)]
    sums = np.zeros(total + 1, np.uint32)
    np.cumsum(flat * inverses[:total], dtype=np.uint32, out=sums[1:])
    hashes: Words = (sums[ends] - sums[ends - size]) * powers[ends - 1]
    return hashes


def _powers(largest: int) -> tuple[Words, Words]:
    """Powers of 31 and of its inverse modulo 2**32, from the 0th to this one at least."""
    return _table_of_powers(1 << max(16, largest.bit_length()))


@lru_cache(maxsize=2)
def _table_of_powers(count: int) -> tuple[Words, Words]:
    bases = np.array([[31], [_INVERSE_OF_31]], np.uint32).repeat(count, axis=1)
    bases[:, 0] = 1
    powers, inverses = np.cumprod(bases, axis=1, dtype=np.uint32)
    return powers, inverses


def _of_run(found: FoundRecords, run: Run) -> Keys:
    alike = _of_alike(found, run)
    if alike is not None:
        return alike
    flat, ends = _joined(run.data, run.properties_at, run.properties_size)
    indexed = _indexed(run)
    plain = indexed & ~_wide(flat, ends)
    spans = _spans(flat, ends, ends - run.properties_size, plain)
    powers, _ = _powers(int(spans.size.max(initial=0)))
    hashes = _folded(_prefixes(run)[spans.records] * powers[spans.size] + java_hashes(flat, spans.at, spans.size))
    records = spans.records
    odd = np.flatnonzero(indexed & ~plain)
    if len(odd):
        records, hashes = _with_odd(found.data, run, odd, (records, hashes))
    return Keys(
        hashes, found.log_offset + run.positions[records], run.headers["store_timestamp_ms"][records].astype(np.int64)
    )


def _of_alike(found: FoundRecords, run: Run) -> Keys | None:
    """The same for a fifth of the price, where records differ in nothing but their only key, a UNIQ_KEY that comes
    first. One producer writes most records so. None for others.
    """
    rows = properties_rows(run)
    if rows is None or not every(_indexed(run)):
        return None
    first = rows[0].tobytes()
    only = _ONLY_KEY.fullmatch(first)
    if only is None:
        return None
    begin, end = only.span(1)
    keys, others = rows[:, begin:end], np.delete(rows, np.s_[begin:end], axis=1)
    if others.tobytes() != (first[:begin] + first[end:]) * len(rows) or keys.min() <= 2 or keys.max() >= 0x80:
        return None
    powers, _ = _powers(end - begin)
    hashes = _prefixes(run) * powers[end - begin] + keys.astype(np.uint32) @ powers[: end - begin][::-1]
    return Keys(_folded(hashes), found.log_offset + run.positions, run.headers["store_timestamp_ms"].astype(np.int64))


def _indexed(run: Run) -> Mask:
    """Which records the index takes up."""
    indexed: Mask = (run.headers["sys_flag"] & SYS_TRANSACTION_MASK) != SYS_TRANSACTION_ROLLBACK
    return indexed


def _prefixes(run: Run) -> Words:
    """Java's hash of the text before each record's keys."""
    topics, which = topics_of(run)
    hashes = np.array([java_hash(topic.decode("utf-8", "replace") + "#") for topic in topics]).astype(np.uint32)
    prefixes: Words = hashes[which]
    return prefixes


def _joined(data: Bytes, at: Ints, size: Ints) -> tuple[Bytes, Ints]:
    """The texts one after the other, and where each ends."""
    ends = np.cumsum(size)
    width = int(size[0])
    if every(size == width) and width:
        return windows(data, at, width).ravel(), ends
    return data[np.repeat(at - ends + size, size) + np.arange(int(ends[-1]))], ends


def _wide(flat: Bytes, ends: Ints) -> Mask:
    """Which texts have a byte beyond ASCII."""
    wide = np.zeros(len(ends), np.bool_)
    wide[np.searchsorted(ends, np.flatnonzero(flat >= 0x80), side="right")] = True
    return wide


def _spans(flat: Bytes, ends: Ints, starts: Ints, plain: Mask) -> _Spans:
    """The keys of the plain records. A record that turns out not to be plain is taken out of ``plain``."""
    found = _properties(flat, ends, starts, plain)
    owners = found.owners
    unique, keys = _named(flat, found, _UNIQUE_NAME), _named(flat, found, _KEYS_NAME)
    for chosen in (unique, keys):
        twice = owners[chosen[1:]]
        plain[twice[twice == owners[chosen[:-1]]]] = False
    unique, keys = unique[plain[owners[unique]]], keys[plain[owners[keys]]]
    words_at, words_end = _split(flat, found.opens[keys] + 1, found.closes[keys])
    records = np.concatenate((owners[unique], np.searchsorted(ends, words_at, side="right")))
    at = np.concatenate((found.opens[unique] + 1, words_at))
    size = np.concatenate((found.closes[unique], words_end)) - at
    # unique keys stand first here, so a stable order by record keeps them before the record's words
    order = np.argsort(records, kind="stable")
    return _Spans(records[order], at[order], size[order])


def _properties(flat: Bytes, ends: Ints, starts: Ints, plain: Mask) -> _Properties:
    """All properties of the plain records: those in which 0x01 and 0x02 take turns, with 0x02 at the end."""
    marks = np.flatnonzero((flat == 1) | (flat == 2))
    owners = np.searchsorted(ends, marks, side="right")
    firsts = np.searchsorted(marks, starts)
    plain[owners[flat[marks] != 1 + (np.arange(len(marks)) - firsts[owners]) % 2]] = False
    filled = ends > starts
    plain[filled] &= flat[ends[filled] - 1] == 2
    of_plain = plain[owners]
    marks, owners = marks[of_plain], owners[of_plain][::2]
    opens, closes = marks[::2], marks[1::2]
    begins = starts[owners]
    inner = np.flatnonzero(owners[1:] == owners[:-1]) + 1
    begins[inner] = closes[inner - 1] + 1
    return _Properties(owners, begins, opens, closes)


def _named(flat: Bytes, found: _Properties, name: Bytes) -> Ints:
    """The numbers of the properties that have this name and a value."""
    fitting = np.flatnonzero((found.opens - found.begins == len(name)) & (found.closes - found.opens > 1))
    if not len(fitting):
        return fitting
    named: Ints = fitting[(windows(flat, found.begins[fitting], len(name)) == name).all(axis=1)]
    return named


def _split(flat: Bytes, at: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Where the words of these texts begin and end, in order."""
    if not len(at):
        return at, ends
    spaces = np.flatnonzero(flat == ord(" "))
    owners = np.minimum(np.searchsorted(ends, spaces, side="right"), len(at) - 1)
    spaces = spaces[(spaces >= at[owners]) & (spaces < ends[owners])]
    if len(spaces):
        at = np.sort(np.concatenate((at, spaces + 1)))
        ends = np.sort(np.concatenate((ends, spaces)))
    filled = ends > at
    return at[filled], ends[filled]


def _folded(hashes: Words) -> Ints:
    """As ``key_hash`` folds one hash."""
    values = np.abs(hashes.view(np.int32).astype(np.int64))
    values[values == 1 << 31] = 0
    return values


def _with_odd(data: bytes | memoryview, run: Run, odd: Ints, plain: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Record numbers and hashes in log order, with the records that are looked at one by one."""
    found = {number: _hashes_of(decode(data, int(run.positions[number]), check_crc=False)) for number in odd.tolist()}
    numbers = np.repeat(odd, [len(found[number]) for number in odd.tolist()])
    hashes = np.array([value for number in odd.tolist() for value in found[number]], np.int64)
    records = np.concatenate((plain[0], numbers))
    order = np.argsort(records, kind="stable")
    return records[order], np.concatenate((plain[1], hashes))[order]


def _hashes_of(record: Record) -> list[int]:
    if record.transaction_type == SYS_TRANSACTION_ROLLBACK:
        return []
    properties = decode_properties(record.raw_properties)
    unique = properties.get(PROPERTY_UNIQUE_KEY)
    words = [unique] if unique else []
    return [key_hash(record.topic, word) for word in words + words_of(properties.get(PROPERTY_KEYS))]


def _keys(hashes: list[int], log_offsets: list[int], times_ms: list[int]) -> Keys:
    return Keys(np.array(hashes, np.int64), np.array(log_offsets, np.int64), np.array(times_ms, np.int64))
