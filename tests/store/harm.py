"""Harm done to store directories, for tests of what a start makes of it.

The store that most of it is done to: 900 records of 192 bytes in three log files, the first twenty in a queue that gets
no others.
"""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from dejamq_broker.store import MessageStore
from dejamq_broker.store.log.batch import QueueKey
from store_making import SMALL, bodies, bodies_of, log_files, overwrite, run_of, settle, ticking

SIZE = 192
FILE = 65_536
PER_FILE = 341
COUNT = 900
END = 2 * FILE + (COUNT - 2 * PER_FILE) * SIZE
LAST = END - SIZE
UNSEEN = 2
"""Bytes of zeros at the end of each record: it has no properties, and their length is 0."""
Harm = Callable[[Path], object]


def place(number: int) -> int:
    """Where the record of this number is in the log."""
    return number // PER_FILE * FILE + number % PER_FILE * SIZE


def queue_of(number: int) -> QueueKey:
    return ("U", 3) if number < 20 else ("T", number % 2)


SENT = bodies(COUNT)


def make_whole(directory: Path) -> None:
    """That store, closed cleanly."""
    store = MessageStore.open(directory, SMALL, clock_ms=ticking())
    for start in range(0, COUNT, 50):
        store.append_run(run_of([(*queue_of(number), SENT[number]) for number in range(start, start + 50)]))
    settle(store)
    assert store.log_max == END
    store.close()


def served(store: MessageStore) -> list[bytes]:
    """All bodies, in the order of the queues T/0, T/1 and U/3."""
    return [body for topic, queue_id in (("T", 0), ("T", 1), ("U", 3)) for body in bodies_of(store, topic, queue_id)]


def expected(lost: set[int]) -> list[bytes]:
    keys = (("T", 0), ("T", 1), ("U", 3))
    return [SENT[number] for key in keys for number in range(COUNT) if queue_of(number) == key and number not in lost]


# Harm to the log.


def at(log_offset: int, data: bytes) -> Harm:
    return lambda directory: overwrite(log_files(directory)[log_offset // FILE], log_offset % FILE, data)


def flip(log_offset: int, bit: int = 0x80) -> Harm:
    """Turn one bit."""

    def harm(directory: Path) -> None:
        path = log_files(directory)[log_offset // FILE]
        overwrite(path, log_offset % FILE, bytes([path.read_bytes()[log_offset % FILE] ^ bit]))

    return harm


def all_of(*harms: Harm) -> Harm:
    def harm(directory: Path) -> None:
        for each in harms:
            each(directory)

    return harm


def lose_mark(directory: Path) -> None:
    (directory / "dispatched.json").unlink()


def lose_queues(directory: Path) -> None:
    shutil.rmtree(directory / "consumequeue")


def copy_of_the_last_record_behind_it(directory: Path) -> None:
    path = log_files(directory)[2]
    overwrite(path, END % FILE, path.read_bytes()[LAST % FILE : END % FILE])


def touch(name: str) -> Harm:
    return lambda directory: (directory / "commitlog" / name).touch()


def empty_last(directory: Path) -> None:
    log_files(directory)[2].write_bytes(b"")


def drop_last(directory: Path) -> None:
    log_files(directory)[2].unlink()


# Harm to the queues and to the marks.


def queue_files(directory: Path, topic: str = "T", queue_id: int = 0) -> list[Path]:
    return sorted((directory / "consumequeue" / topic / str(queue_id)).iterdir())


def drop(*names: str) -> Harm:
    def harm(directory: Path) -> None:
        target = directory.joinpath(*names)
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return harm


def drop_file(number: int) -> Harm:
    return lambda directory: queue_files(directory)[number].unlink()


def resize_file(number: int, size: int) -> Harm:
    def harm(directory: Path) -> None:
        path = queue_files(directory)[number]
        path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])

    return harm


def fill_file(number: int, data: bytes) -> Harm:
    return lambda directory: queue_files(directory)[number].write_bytes(data)


def entry(number: int, data: bytes, part: int = 0) -> Harm:
    """Overwrite a part of an entry, counted from the end of queue T/0."""

    def harm(directory: Path) -> None:
        at_byte = (440 + number) * 20 + part
        overwrite(queue_files(directory)[at_byte // 1000], at_byte % 1000, data)

    return harm


def mark(**fields: object) -> Harm:
    def harm(directory: Path) -> None:
        path = directory / "dispatched.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return harm


def write(name: str, data: bytes) -> Harm:
    def harm(directory: Path) -> None:
        (directory / name).write_bytes(data)

    return harm


def checkpoint(time_ms: int) -> Harm:
    return write("checkpoint", struct.pack(">5q", *[time_ms] * 3, 0, 0).ljust(4096, b"\0"))


QUEUE_HARMS: dict[str, Harm] = {
    "all queues gone": lose_queues,
    "one topic gone": drop("consumequeue", "U"),
    "one queue gone": drop("consumequeue", "T", "1"),
    "an empty folder": all_of(drop("consumequeue", "T", "1"), lambda d: (d / "consumequeue/T/1").mkdir()),
    "the first file of a queue gone": drop_file(0),
    "a file in the middle gone": drop_file(4),
    "the last file gone": drop_file(-1),
    "the first file short": resize_file(0, 500),
    "the first file empty": resize_file(0, 0),
    "a file in the middle long": resize_file(4, 2000),
    "the last file short, its entries there": resize_file(-1, 810),
    "the last file short": resize_file(-1, 790),
    "the last file empty": resize_file(-1, 0),
    "the last file zeroed": fill_file(-1, bytes(1000)),
    "the last file garbage": fill_file(-1, b"\x7e" * 1000),
    "the file before the last zeroed": fill_file(-2, bytes(1000)),
    "a file of another name": lambda d: queue_files(d)[0].rename(queue_files(d)[0].with_name(f"{10:020d}")),
    "a foreign file": lambda d: (d / "consumequeue/T/0/readme.txt").write_text("mine"),
    "a foreign folder": lambda d: (d / "consumequeue/T/mine").mkdir(),
    "the last entry zeroed": entry(-1, bytes(20)),
    "the last entry torn": entry(-1, bytes(10), 10),
    "the last entry elsewhere": entry(-1, struct.pack(">qi", 0, 192)),
    "the last entry behind the log": entry(-1, struct.pack(">q", 1 << 40)),
    "an entry of the last files elsewhere": entry(-100, struct.pack(">q", 5)),
    "an entry of the last files far behind": entry(-100, struct.pack(">q", 1 << 61)),
    "an entry of the last files too long": entry(-100, struct.pack(">i", 1 << 20), 8),
    "an entry of the last files with an address for a tag": entry(-100, struct.pack(">q", -(1 << 62)), 12),
    "an entry more": entry(0, struct.pack(">qiq", LAST, 192, 0)),
    "a garbage entry more": entry(0, b"\x11" * 20),
    "checkpoint gone": drop("checkpoint"),
    "checkpoint short": write("checkpoint", b"\0\0\1"),
    "checkpoint garbage": write("checkpoint", b"\xfe" * 4096),
    "checkpoint from the future": checkpoint(1 << 62),
    "mark gone": lose_mark,
    "mark garbage": write("dispatched.json", b"{'"),
    "mark not UTF-8": write("dispatched.json", b'{"queues":{"\xff":{}}}'),
    "mark negative": mark(log_offset=-1),
    "mark of impossible names": mark(queues={"../x": {"0": 1}}),
    "mark older": mark(log_offset=place(500), flushed=place(500), queues={"T": {0: 240, 1: 240}, "U": {3: 20}}),
    "mark of nothing": mark(log_offset=0, flushed=0, queues={}),
    "mark of another life, between records": mark(log_offset=place(500) + 7, flushed=0),
    "mark of another life, behind the log": mark(log_offset=1 << 40, flushed=1 << 40),
    "mark of another life, shorter queues": mark(log_offset=END, queues={"T": {0: 10, 1: 10}}),
    "mark of another life, longer queues": mark(queues={"T": {0: 10_000}}),
}
