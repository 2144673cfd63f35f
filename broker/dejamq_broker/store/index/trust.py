"""Whether an index file's header is true of its entries and of the log.

A query chooses files by the times in their headers, and an entry's time counts from the first of them. So one wrong
field would hide all keys of a file. RocketMQ believes any header. Here a file whose header is contradicted counts as
lost, and its content is read from the log again. No rule for such a header could answer as well as a true header.
"""

import msgspec

from dejamq_broker.store.index.file import MAX_SECONDS, IndexFile
from dejamq_broker.store.log.start_point import StoredAt


class KnownLog(msgspec.Struct, frozen=True):
    """The facts of the log at a start: its first offset, its end, and whether the last owner ended well."""

    start: int
    end: int
    clean: bool
    stored_ms: StoredAt


def contradiction(file: IndexFile, log_start: int, stored_ms: StoredAt) -> str:
    """The contradiction in the header; "" without one. Raises OSError."""
    header = file.header
    if header.next_entry <= 1:
        return ""
    first, last = file.entries(1, 2)[0], file.entries(header.next_entry - 1, header.next_entry)[0]
    ends = (int(first["log_offset"]), int(last["log_offset"]))
    if ends != (header.begin_log_offset, header.end_log_offset):
        return f"the header tells other log offsets than those of its first and last entry, {ends}"
    apart = min(max(0, header.end_timestamp_ms - header.begin_timestamp_ms) // 1000, MAX_SECONDS)
    # the seconds of the first entry count from the end of the file before
    if header.next_entry > 2 and last["seconds"] != apart:
        return f"the header's times are {apart} s apart, its last entry says {last['seconds']}"
    return _wrong_time(file, log_start, stored_ms)


def _wrong_time(file: IndexFile, log_start: int, stored_ms: StoredAt) -> str:
    header = file.header
    end_ms = _readable(stored_ms, header.end_log_offset)
    if end_ms not in (None, header.end_timestamp_ms):
        return f"the header's last time is {header.end_timestamp_ms}, that of its record is {end_ms}"
    expired = header.begin_log_offset < log_start
    begin_ms = _readable(stored_ms, max(header.begin_log_offset, log_start))
    if begin_ms is None or begin_ms == header.begin_timestamp_ms or (expired and begin_ms > header.begin_timestamp_ms):
        return ""
    return f"the header's first time is {header.begin_timestamp_ms}, that of the first record left is {begin_ms}"


def _readable(stored_ms: StoredAt, log_offset: int) -> int | None:
    """A bad sector of the log costs no index file."""
    try:
        return stored_ms(log_offset)
    except OSError:
        return None
