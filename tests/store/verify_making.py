"""What the tests of verify have in common: one whole store of several files, and hands to harm a copy of it."""

import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dejamq_broker.store import MessageStore
from dejamq_broker.store.dump import dump
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.offline.verify import VerifyReport, verify
from dejamq_proto.names import SCHEDULE_TOPIC
from dejamq_proto.records.record import SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK, Record, encode_properties
from store_making import SMALL, overwrite, ticking

HOST = ("127.0.0.1", 10911)
COUNT = 640
LOG_FILE = 65_536
I32, I64 = struct.Struct(">i"), struct.Struct(">q")
SIZE_AT, MAGIC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, LOG_OFFSET_AT, STORE_TIME_AT, BODY_AT = 0, 4, 12, 20, 28, 56, 88
BODY_SIZE = 150
TOPIC_AT = BODY_AT + BODY_SIZE + 1


@dataclass(frozen=True)
class Made:
    """A whole store of several files, and what is in it."""

    directory: Path
    records: list[dict[str, Any]]
    end: int

    def patch(self, number: int, at: int, data: bytes) -> None:
        """Overwrite a part of a record."""
        self.overwrite(self.records[number]["log_offset"] + at, data)

    def overwrite(self, log_offset: int, data: bytes) -> None:
        overwrite(
            self.directory / "commitlog" / f"{log_offset // LOG_FILE * LOG_FILE:020d}", log_offset % LOG_FILE, data
        )

    def entry(self, queue_offset: int, at: int, data: bytes, queue: str = "T/0") -> None:
        """Overwrite a part of a queue entry."""
        place = queue_offset * 20
        overwrite(self.queue_file(place // 1000 * 1000, queue), place % 1000 + at, data)

    def queue_file(self, start: int, queue: str = "T/0") -> Path:
        return self.directory / "consumequeue" / queue / f"{start:020d}"

    def index_file(self, number: int) -> Path:
        return sorted((self.directory / "index").iterdir())[number]

    def index_entry(self, file: int, entry: int, at: int, data: bytes) -> None:
        overwrite(self.index_file(file), 40 + 97 * 4 + entry * 20 + at, data)

    def blank(self) -> int:
        """Log offset of the first file's blank."""
        last = max(
            (each for each in self.records if each["log_offset"] < LOG_FILE), key=lambda each: each["log_offset"]
        )
        return int(last["log_offset"] + last["store_size"])


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number} shared"}
        if number % 3:
            properties["TAGS"] = f"Tag{number % 3}"
        store.put(
            Record("T", number % 2, b"." * BODY_SIZE, encode_properties(properties), born_host=HOST, store_host=HOST)
        )
        if number % 100 == 0:
            delayed = encode_properties(
                {"UNIQ_KEY": f"{number:031X}d", "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "0"}
            )
            store.put(Record(SCHEDULE_TOPIC, 2, b"later", delayed, born_host=HOST, store_host=HOST))
    for kind in (SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK):
        raw = encode_properties({"UNIQ_KEY": f"{kind:032X}"})
        store.put(Record("T", 0, b"half", raw, sys_flag=kind, born_host=HOST, store_host=HOST))


def make_whole(directory: Path) -> Made:
    """Closed cleanly, with settings files such as RocketMQ writes."""
    store = MessageStore.open(directory, SMALL, clock_ms=ticking())
    fill(store, COUNT)
    store.close()
    (directory / "config").mkdir()
    (directory / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{},"SCHEDULE_TOPIC_XXXX":{}}}')
    (directory / "config" / "delayOffset.json").write_text('{"offsetTable":{1:13,2:6\n}}')
    *records, last = dump(StorePaths(directory))
    return Made(directory, records, last["summary"]["log_end"])


def copied(whole: Made, directory: Path) -> Made:
    shutil.copytree(whole.directory, directory)
    return Made(directory, whole.records, whole.end)


def verified(directory: Path) -> VerifyReport:
    return verify(StorePaths(directory), lambda done, in_all: None)


def kinds(report: VerifyReport) -> set[str]:
    return {finding.kind for finding in report.findings}


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
