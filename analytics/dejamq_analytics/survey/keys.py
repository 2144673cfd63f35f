"""Memory of each message that a line names: 16 bytes, which find it again among all others.

An entry is the hash of the unique key (of the place in the log where a message has none) with the hash of its place and
a code of what happened there. All entries of one key meet in one bucket, and there it shows whether the message came
once. Two keys of one hash only make a candidate more.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

ENTRY = np.dtype([("key", "<u8"), ("place", "<u4"), ("code", "<u4")])
"""``code``: bits 0 and 1 what happened, 2 odd, 3 counts as a message, 4 to 15 who got it, 16 to 31 the log offset."""
SENT, STORED, DELIVERED = range(3)
BUSINESS = np.dtype([("business", "<u8"), ("key", "<u8"), ("place", "<u4"), ("code", "<u4")])
"""A delivery of a message that has a business key: its hash, and the entry."""
ODD, COUNTS = 4, 8
BUCKETS = 64
Numbers = np.ndarray[Any, np.dtype[Any]]
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


class Candidates(NamedTuple):
    """Of one bucket: the keys of messages that may matter, the places where they were stored or delivered, and how many
    messages there are in all."""

    keys: Numbers
    places: Numbers
    messages: int


NOTHING = Candidates(np.empty(0, np.uint64), np.empty(0, np.uint32), 0)


def together(several: Iterable[Candidates]) -> Candidates:
    """Those of all buckets."""
    every = [NOTHING, *several]
    found, given = (np.concatenate([one[part] for one in every]) for part in (0, 1))
    return Candidates(found, given, sum(one.messages for one in every))


def hashed(texts: Sequence[str]) -> Numbers:
    """64 bits of each, the same in every process."""
    sizes = set(map(len, texts))
    joined = "".join(texts).encode("utf-8", "surrogatepass")
    if len(sizes) == 1 and len(joined) == len(texts) * min(sizes):  # as unique keys are: of one size, of ASCII alone
        return _of_bytes(np.frombuffer(joined, np.uint8).reshape(len(texts), -1))
    raw = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths, found = np.array(list(map(len, raw))), np.empty(len(raw), np.uint64)
    for size in np.unique(lengths):
        mine = np.flatnonzero(lengths == size)
        found[mine] = _of_bytes(np.frombuffer(b"".join(raw[at] for at in mine), np.uint8).reshape(len(mine), size))
    return found


def _of_bytes(rows: Numbers) -> Numbers:
    """The hash of each row."""
    count, size = rows.shape
    words = np.zeros((count, -(-size // 8)), np.uint64)
    words.view(np.uint8)[:, :size] = rows
    found = np.full(count, size, np.uint64)
    for column in words.T:
        found = mixed(found, column)
    return found


def mixed(seed: Numbers, numbers: Numbers) -> Numbers:
    """64 bits of a hash and a number."""
    with np.errstate(over="ignore"):
        one = (seed ^ numbers.astype(np.uint64)) * _MIX
        return (one ^ (one >> _SHIFT)) * _MIX


def at(seeds: Numbers, offsets: Numbers) -> Numbers:
    """The place of an entry, by the hash of its queue and the offset there."""
    return mixed(seeds, offsets) >> np.uint64(32)


@lru_cache
def receiver(group: str) -> int:
    """The bits of who got it. Two groups with the same make candidates of what both got."""
    return (zlib.crc32(group.encode()) & 0xFFF) << 4


def entries(keys: Numbers, places: Numbers, logs: Numbers, codes: Numbers) -> Numbers:
    """``places`` as ``at`` tells them, ``codes`` without the log offset's bits."""
    made = np.empty(len(keys), ENTRY)
    made["key"] = keys
    made["place"] = places
    log = mixed(np.full(len(keys), 7, np.uint64), logs) >> np.uint64(48)
    made["code"] = codes.astype(np.uint32) | (log.astype(np.uint32) << np.uint32(16))
    return made


def of_business(business: Numbers, made: Numbers) -> Numbers:
    """Entries with the hashes of their business keys."""
    joined = np.empty(len(made), BUSINESS)
    joined["business"] = business
    for name in ENTRY.names or ():
        joined[name] = made[name]
    return joined


def by_bucket(made: Numbers, name: str = "key") -> Iterator[tuple[int, bytes]]:
    """The entries by the highest bits of their keys."""
    bucket = (made[name] >> np.uint64(58)).astype(np.uint8)  # bytes are sorted by counting them
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], np.arange(BUCKETS + 1))
    for number in range(BUCKETS):
        chosen = order[ends[number] : ends[number + 1]]
        if len(chosen):
            yield number, made[chosen].tobytes()


def judged(data: bytes, *, business: bool, brokers_known: bool) -> Candidates:
    """Of a bucket of entries, or of entries by business, as ``by_bucket`` gave them."""
    if business:
        return same_business(np.frombuffer(data, BUSINESS))
    return candidates(np.frombuffer(data, ENTRY), brokers_known)


def candidates(made: Numbers, brokers_known: bool) -> Candidates:
    """Which messages of a bucket were not simply sent once, stored once and delivered once to each who got them.

    ``brokers_known``: a message that was sent and never stored may be lost.
    """
    if not len(made):
        return NOTHING
    made, starts, _ = _grouped(made, "key")
    plain = _plain(made, starts)
    firsts = starts[plain]
    counted = (made["code"][firsts] | made["code"][firsts + 1]) & COUNTS > 0
    rest = np.ones(len(made), bool)
    rest[firsts] = rest[firsts + 1] = False
    others = _of_others(made[rest], brokers_known)
    return others._replace(messages=others.messages + int(counted.sum()))


def _plain(made: Numbers, starts: Numbers) -> Numbers:
    """Which keys have two entries, stored and delivered, at one place: in most journals nearly all have."""
    pairs = np.flatnonzero(np.diff(np.append(starts, len(made))) == 2)
    first, second = made[starts[pairs]], made[starts[pairs] + 1]
    differ = first["code"] ^ second["code"]
    what = (first["code"] & 3, second["code"] & 3)
    there = (np.minimum(*what) == STORED) & (np.maximum(*what) == DELIVERED)
    once = there & (first["place"] == second["place"]) & (differ >> np.uint32(16) == 0)
    found: Numbers = pairs[once & ((first["code"] | second["code"]) & ODD == 0)]
    return found


def _of_others(made: Numbers, brokers_known: bool) -> Candidates:
    """Of keys that are not plain, as ``candidates``."""
    if not len(made):
        return NOTHING
    made, starts, number = _grouped(made, "key")
    code = made["code"]
    what = code & 3
    found = np.bitwise_or.reduceat(code & ODD, starts) > 0
    messages = int((np.bitwise_or.reduceat(code & COUNTS, starts) > 0).sum())
    sent, stored = (np.add.reduceat((what == one).astype(np.int32), starts) for one in (SENT, STORED))
    found |= (sent > 1) | (stored > 1)
    if brokers_known:
        found |= (sent > 0) & (stored == 0)
    there = what != SENT
    for each in (made["place"], code >> np.uint32(16)):
        found |= _differs(each, there, starts)
    found |= _received_twice(number, code, len(starts))
    given = found[number] & (what != SENT)
    return Candidates(made["key"][starts][found], np.unique(made["place"][given]), messages)


def same_business(made: Numbers) -> Candidates:
    """The messages whose business somebody got more than once."""
    if not len(made):
        return NOTHING
    made, starts, number = _grouped(made, "business")
    mine = made[_received_twice(number, made["code"], len(starts))[number]]
    return Candidates(np.unique(mine["key"]), np.unique(mine["place"]), 0)


def _grouped(made: Numbers, name: str) -> tuple[Numbers, Numbers, Numbers]:
    """In order, where each group begins, and the number of its group for each."""
    made = made[np.argsort(made[name])]
    starts = np.flatnonzero(np.concatenate(([True], made[name][1:] != made[name][:-1])))
    return made, starts, np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(made))))


def _differs(values: Numbers, where: Numbers, starts: Numbers) -> Numbers:
    """Whether a group has two values there."""
    lowest = np.minimum.reduceat(np.where(where, values, np.uint32(0xFFFFFFFF)), starts)
    return lowest < np.maximum.reduceat(np.where(where, values, np.uint32(0)), starts)


def _received_twice(number: Numbers, code: Numbers, groups: int) -> Numbers:
    """Whether somebody had one message, or one business, more than once."""
    got = np.flatnonzero((code & 3) == DELIVERED)
    several = np.bincount(number[got], minlength=groups)[number[got]] > 1
    got = got[several]
    who = (number[got].astype(np.uint64) << np.uint64(16)) | (code[got] & 0xFFF3).astype(np.uint64)
    who.sort()
    twice = np.zeros(groups, bool)
    twice[(who[1:][who[1:] == who[:-1]] >> np.uint64(16)).astype(np.int64)] = True
    return twice


class ChosenHashes:
    """Whether hashes are among those that were chosen: a small table says no to nearly all at once."""

    def __init__(self, hashes: Numbers) -> None:
        self._sorted = np.unique(hashes.astype(np.uint64))
        self._table = np.zeros(1 << 20, bool)
        self._table[(self._sorted & np.uint64(0xFFFFF)).astype(np.int64)] = True

    def among(self, hashes: Numbers) -> Numbers:
        found = self._table[(hashes & np.uint64(0xFFFFF)).astype(np.int64)]
        likely = np.flatnonzero(found)
        if len(likely):
            at = np.minimum(np.searchsorted(self._sorted, hashes[likely]), len(self._sorted) - 1)
            found[likely] = self._sorted[at] == hashes[likely]
        return found
