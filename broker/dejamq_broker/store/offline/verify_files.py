"""Verify's look at the small files: checkpoint, our marks, settings, and the process that has the store open."""

from collections.abc import Iterator
from pathlib import Path

from dejamq_proto.loose_json import loads_loose

from dejamq_broker.store.files.checkpoint import CHECKPOINT_SIZE, Checkpoint, DispatchProgress
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.index.index import IndexMark
from dejamq_broker.store.offline.findings import Severity, StoreFinding
from dejamq_broker.store.queues.deleted import read_ends

DELETE = "delete it: the next start does without it, only slower"


def check_owner(paths: StorePaths, *, lives: bool) -> Iterator[StoreFinding]:
    """Whether the store is open, was closed, or lost its owner."""
    if lives:
        what = "a running process has the store open: what it has not written yet seems to be missing"
        yield StoreFinding("in-use", "lock", what, "stop it and verify again to be sure", severity=Severity.NOTE)
    elif paths.abort.exists():
        what = f"the last owner ({_word(paths.abort)}) was killed: its end was not written in order"
        yield StoreFinding("killed", "abort", what, "the next start repairs what it left", severity=Severity.NOTE)


def _word(path: Path) -> str:
    text = path.read_bytes()[:20].decode("ascii", "replace").strip()
    return f"process {text}" if text.isdigit() else "process unknown"


def check_checkpoint(path: Path, last_store_timestamp_ms: int) -> Iterator[StoreFinding]:
    """RocketMQ's ``checkpoint``; the time is the store time of the newest record."""
    if not path.exists():
        what = "there is none: after a kill a RocketMQ reads the whole log"
        yield StoreFinding("checkpoint", "checkpoint", what, severity=Severity.NOTE)
        return
    size = path.stat().st_size
    if size != CHECKPOINT_SIZE:
        what = f"{size} bytes instead of {CHECKPOINT_SIZE}"
        yield StoreFinding("checkpoint", "checkpoint", what, DELETE)
        return
    checkpoint = Checkpoint.load(path)
    times = {
        "log": checkpoint.log_timestamp_ms, "queues": checkpoint.queue_timestamp_ms,
        "index": checkpoint.index_timestamp_ms,
    }  # fmt: skip
    for name, time_ms in times.items():
        if not 0 <= time_ms <= last_store_timestamp_ms:
            what = f"the time of the {name} is {time_ms}, the newest record's {last_store_timestamp_ms}"
            yield StoreFinding("checkpoint", "checkpoint", what, DELETE)


def check_marks(paths: StorePaths, log_end: int) -> Iterator[StoreFinding]:
    """Our marks: they say how far queues and index are complete. A start believes them only where they fit."""
    marks: list[tuple[Path, DispatchProgress | IndexMark | None]] = [
        (paths.progress, DispatchProgress.load(paths.progress)),
        (paths.index_mark, IndexMark.load(paths.index_mark)),
    ]
    for path, mark in marks:
        if not path.exists():
            continue
        if mark is None:
            yield StoreFinding("mark", path.name, "it cannot be read", DELETE)
            continue
        reached = mark.durable_log if isinstance(mark, DispatchProgress) else mark.log_offset
        if reached > log_end:
            what = f"it speaks of log offset {reached}, the log ends at {log_end}"
            yield StoreFinding("mark", path.name, what, DELETE)
        if isinstance(mark, IndexMark) and mark.files and not any((paths.index / name).exists() for name in mark.files):
            what = f"none of the files is there that were when the index was marked, the first {min(mark.files)}"
            yield StoreFinding("index-file", "index", what, "start the broker: the index is built again")


def check_deletions(path: Path, log_end: int, *, killed: bool) -> Iterator[StoreFinding]:
    """Our list of deleted topics, which nothing else in a store tells: without it, consumers may see earlier messages
    again.
    """
    if not path.exists():
        return
    ends = read_ends(path)
    if ends is None:
        what = "it cannot be read: queues that are made again from the log show messages of deleted topics"
        yield StoreFinding("mark", path.name, what, "move it away; delete a topic again that shows former messages")
        return
    topic, end = max(ends.items(), key=lambda item: item[1], default=("", 0))
    if end > log_end:
        what = f"it says that {topic} was deleted at log offset {end}, the log ends at {log_end}"
        do = "the next start takes the log's end for it"
        severity = Severity.RECOVERS if killed else Severity.DAMAGE
        yield StoreFinding("mark", path.name, what, do, severity=severity)


def check_config(folder: Path) -> Iterator[StoreFinding]:
    """Every settings file parses; RocketMQ keeps the generation before as ``.bak``."""
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        trouble = _unreadable(path)
        if trouble:
            backup = path.with_name(path.name + ".bak")
            reads = backup.exists() and not _unreadable(backup) and backup.stat().st_size > 0
            do = "its .bak is read instead" if reads else "repair it, or move it away to start without what it held"
            yield StoreFinding("config", f"config/{path.name}", trouble, do)
    for path in sorted(folder.glob("*.json.bak")) if folder.is_dir() else []:
        trouble = _unreadable(path)
        if trouble:
            yield StoreFinding("config", f"config/{path.name}", trouble, "it is replaced with the next change")


def _unreadable(path: Path) -> str:
    """Why a file is no JSON object; "" when it is one."""
    try:
        text = path.read_text(encoding="utf-8")
        if not text.strip():
            return "it is empty: what it held is lost"
        if not isinstance(loads_loose(text), dict):
            return "it holds no JSON object"
    except ValueError as error:
        return f"it is no JSON: {error}"
    return ""


def topics_of(path: Path) -> set[str] | None:
    """The names in ``topics.json``; None when there is no such file or it cannot be read."""
    try:
        return set(loads_loose(path.read_text(encoding="utf-8"))["topicConfigTable"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
