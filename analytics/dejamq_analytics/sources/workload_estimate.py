"""How much work and memory an audit will need, seen before it starts. Engine and Java's start are chosen by it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from dejamq_proto.loose_json import BAD_JSON

from dejamq_analytics.sources.commit_log import log_bytes
from dejamq_analytics.sources.journal_files import files_in
from dejamq_analytics.sources.journals import local_bytes
from dejamq_analytics.sources.paths import local_path

SMALL_BYTES = 256 << 20
HEAD_BYTES = 256 << 10
"""Within this many bytes of its journal a consumer has opened most of its queues."""
DUCKDB_FACTOR = 17
"""DuckDB keeps all deliveries in memory: so many times the size of journals of level ``audit``, 5 of ``forensic``."""
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


class _Opened(msgspec.Struct, tag_field="event", tag="PQ_OPEN"):
    source: str = ""


def fits_duckdb(journal_bytes: int) -> bool:
    """Whether DuckDB can keep what it makes of these journals: below 256 MB, or by the memory that is free now."""
    return journal_bytes < SMALL_BYTES or journal_bytes * DUCKDB_FACTOR <= free_memory_bytes()


def free_memory_bytes() -> int:
    """Of this machine, or of the container that this is; half of all memory where the system does not tell."""
    try:
        lines = MEMINFO.read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    try:
        limit, used = ((CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no container of today's kernels
        return free
    return free if limit == "max" else min(free, int(limit) - int(used))


def little_for_java(journals: Sequence[str], stores: Sequence[str]) -> bool:
    """Small inputs; and local journals of any size without broadcasting groups: of these ``survey``, which is Python,
    leaves little. A guess, by which only the time differs.
    """
    if local_bytes(journals, SMALL_BYTES) + log_bytes(stores) < SMALL_BYTES:
        return True
    folders = [local_path(journal) for journal in journals]
    return not stores and None not in folders and not _broadcasting(folder for folder in folders if folder is not None)


def _broadcasting(folders: Iterator[Path]) -> bool:
    """Whether a consumer keeps offsets of its own."""
    journals = (journal for folder in folders for journal in files_in(folder))
    return any(opened.source.startswith("local") for journal in journals for opened in _openings(journal))


def _openings(journal: Path) -> Iterator[_Opened]:
    decode = msgspec.json.Decoder(_Opened).decode
    with journal.open("rb") as file:
        for line in file.read(HEAD_BYTES).split(b"\n"):
            if b'"PQ_OPEN"' in line:
                try:
                    yield decode(line)
                except BAD_JSON:
                    continue  # torn by the end of what was read, or another event that names this one
