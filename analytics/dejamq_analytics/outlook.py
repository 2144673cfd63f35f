"""How much of an audit will be Java's work, seen before Java starts: it starts otherwise for little than for much."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dejamq_analytics.commit_log import log_bytes
from dejamq_analytics.journal_files import files_in
from dejamq_analytics.read import local_bytes, local_path

SMALL_BYTES = 256 << 20
HEAD_BYTES = 256 << 10
"""In so much of its journal a consumer has opened most of its queues."""


class _Opened(msgspec.Struct, tag_field="event", tag="PQ_OPEN"):
    source: str = ""


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
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue  # torn by the end of what was read, or another event that names this one
