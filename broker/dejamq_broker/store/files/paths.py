"""Every file and directory name of a store. Nothing else joins paths. Source: RocketMQ ``StorePathConfigHelper``."""

from datetime import datetime, timedelta
from pathlib import Path

from dejamq_broker.store.files.errors import StoreError

NAME_DIGITS = 20
INDEX_NAME_DIGITS = 17
LONGEST_NAME, MOST_QUEUE_ID = 255, (1 << 31) - 1


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
        self.deleted = self.root / "deleted.json"
        self.cut = self.root / "cut"
        self.slave = self.root / "slave"
        self.slave_note = self.root / "slaveNote.json"
        self.topics = self.root / "config" / "topics.json"
        self.consume_queues_ext = self.root / "consumequeue_ext"
        self.batch_consume_queues = self.root / "batchconsumequeue"
        self.index = self.root / "index"
        self.index_mark = self.root / "indexed.json"
        self.timer_wheel = self.root / "timerwheel"
        self.timer_log = self.root / "timerlog"

    def consume_queue(self, topic: str, queue_id: int) -> Path:
        """The folder of one queue. Raises StoreError for a topic that is no folder name."""
        if not is_folder_name(topic):
            raise StoreError(f"topic {topic!r} cannot name a folder; check topic names before storing")
        return self.consume_queues / topic / str(queue_id)

    def queue_folders(self) -> list[tuple[str, int, Path]]:
        """Topic, queue id and folder of every queue on disk, in order. Names that no broker made are passed over."""
        topics = self.consume_queues.iterdir() if self.consume_queues.is_dir() else []
        return sorted(
            (topic.name, int(folder.name), folder)
            for topic in topics
            if _is_text(topic.name) and topic.is_dir()
            for folder in topic.iterdir()
            if _is_number(folder.name) and folder.is_dir()
        )

    def cut_file(self, name: str, log_offset: int) -> Path:
        """A place for bytes that recovery cut away from the file ``name``; never an existing one."""
        path = self.cut / f"{name}.cut-{log_offset}"
        number = 1
        while path.exists():
            number += 1
            path = self.cut / f"{name}.cut-{log_offset}.{number}"
        return path


def may_be_queue(topic: str, queue_id: int) -> bool:
    """Whether a record that was read may be of a queue of this name: headers have no checksum, so it may be garbled."""
    return queue_id >= 0 and "\ufffd" not in topic and is_folder_name(topic)


def is_folder_name(topic: str) -> bool:
    """Whether it can be the name of a folder, and of no other than one of its own."""
    if not topic or {"/", "\0"} & set(topic) or topic in (".", ".."):
        return False
    return _is_text(topic) and len(topic.encode()) <= LONGEST_NAME


def _is_text(name: str) -> bool:
    """Whether it is UTF-8, which names on disk need not be."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def _is_number(name: str) -> bool:
    """Whether it is as a number is written: ``01`` would be another folder of queue 1."""
    return name.isascii() and name.isdigit() and name == str(int(name)) and int(name) <= MOST_QUEUE_ID


def file_name(start: int) -> str:
    """A data file is named for the offset of its first byte."""
    return f"{start:0{NAME_DIGITS}d}"


def file_start(name: str) -> int | None:
    """The reverse of ``file_name``; None when the name is not of that form."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None


def index_name(now_ms: int, *, after: str) -> str:
    """An index file is named for the local time at which it was made, yyyyMMddHHmmssSSS.

    Names give the order. So a time that is not later than the one of the file before becomes the millisecond after it.
    That happens when a clock was put back, or two files are of one millisecond.
    """
    name = _index_name(datetime.fromtimestamp(now_ms // 1000) + timedelta(milliseconds=now_ms % 1000))
    if name > after:
        return name
    return _index_name(datetime.strptime(after, "%Y%m%d%H%M%S%f") + timedelta(milliseconds=1))


def _index_name(time: datetime) -> str:
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


def is_index_name(name: str) -> bool:
    """Whether ``index_name`` may have made it."""
    if len(name) != INDEX_NAME_DIGITS or not name.isascii() or not name.isdigit():
        return False
    try:
        datetime.strptime(name, "%Y%m%d%H%M%S%f")
    except ValueError:
        return False
    return True
