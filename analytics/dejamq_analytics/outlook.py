"""How much of an audit will be Java's work, seen before Java starts: it starts otherwise for little than for much."""

from collections import defaultdict
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
    group: str = ""
    broker_name: str = ""
    topic: str = ""


def little_for_java(journals: Sequence[str], stores: Sequence[str]) -> bool:
    """Small inputs; and local journals of any size whose topics have one group each: of these ``survey``, which is
    Python, leaves little. A guess, by which only the time differs.
    """
    if local_bytes(journals, SMALL_BYTES) + log_bytes(stores) < SMALL_BYTES:
        return True
    folders = [local_path(journal) for journal in journals]
    return not stores and None not in folders and not _shared(folder for folder in folders if folder is not None)


def _shared(folders: Iterator[Path]) -> bool:
    """Whether consumers of two groups open queues of one topic."""
    groups = defaultdict[tuple[str, str], set[str]](set)
    for journal in (journal for folder in folders for journal in files_in(folder)):
        for opened in _openings(journal):
            groups[opened.broker_name, opened.topic].add(opened.group)
    return any(len(several) > 1 for several in groups.values())


def _openings(journal: Path) -> Iterator[_Opened]:
    decode = msgspec.json.Decoder(_Opened).decode
    with journal.open("rb") as file:
        for line in file.read(HEAD_BYTES).split(b"\n"):
            if b'"PQ_OPEN"' in line:
                try:
                    yield decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue  # torn by the end of what was read, or another event that names this one
