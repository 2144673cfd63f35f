"""Every file and directory name of a store. Nothing else joins paths. Source: RocketMQ ``StorePathConfigHelper``."""

from pathlib import Path

from dejamq_broker.store.errors import StoreError

NAME_DIGITS = 20


class StorePaths:
    """The places in one store directory."""

    def __init__(self, directory: str | Path) -> None:
        self.root = Path(directory)
        self.commit_log = self.root / "commitlog"
        self.consume_queues = self.root / "consumequeue"
        self.checkpoint = self.root / "checkpoint"
        self.abort = self.root / "abort"
        self.lock = self.root / "lock"
        self.progress = self.root / "dispatched.json"
        self.cut = self.root / "cut"

    def consume_queue(self, topic: str, queue_id: int) -> Path:
        """The folder of one queue. Raises StoreError for a topic that is no folder name."""
        if not topic or "/" in topic or "\0" in topic or topic in (".", "..") or len(topic.encode()) > 255:
            raise StoreError(f"topic {topic!r} cannot name a folder; check topic names before storing")
        return self.consume_queues / topic / str(queue_id)

    def cut_file(self, name: str, log_offset: int) -> Path:
        """A place for bytes that recovery cut away from the file ``name``; never an existing one."""
        path = self.cut / f"{name}.cut-{log_offset}"
        number = 1
        while path.exists():
            number += 1
            path = self.cut / f"{name}.cut-{log_offset}.{number}"
        return path


def file_name(start: int) -> str:
    """A data file is named for the offset of its first byte."""
    return f"{start:0{NAME_DIGITS}d}"


def file_start(name: str) -> int | None:
    """The reverse of ``file_name``; None when the name is not of that form."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None
