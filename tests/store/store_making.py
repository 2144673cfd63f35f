"""What the store's tests have in common: small files, runs, and reading everything back."""

import itertools
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from dejamq_broker.store import AppendRun, MessageStore, StoreConfig
from dejamq_proto.records.record import Outgoing, Record, decode, encode_properties, tags_code
from dejamq_proto.records.run import parse

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
SMALL = StoreConfig(
    mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, max_hash_slot_num=97, max_index_num=300
)
HOST = (0x7F000001, 10911)
START_MS = 1_700_000_000_000

OPENED: list[MessageStore] = []

Message = tuple[str, int, bytes]
"""Topic, queue id, body."""


def ticking(start_ms: int = START_MS) -> Callable[[], int]:
    """A clock that goes on by one millisecond with each look."""
    return itertools.count(start_ms).__next__


def open_small(directory: Path, config: StoreConfig = SMALL, **more: object) -> MessageStore:
    """A store that the fixture ``stores_end`` closes when its test did not come to it."""
    store = MessageStore.open(directory, config, **{"clock_ms": ticking(), **more})  # type: ignore[arg-type]  # test only
    OPENED.append(store)
    return store


def run_of(messages: list[Message], *, tag: str | None = None, sys_flag: int = 0) -> AppendRun:
    """A run as a broker makes one of checked bytes."""
    properties = encode_properties({"TAGS": tag} if tag else {})
    records = [
        Outgoing.to(topic, sys_flag=sys_flag).encode(queue_id, 5, body, properties)
        for topic, queue_id, body in messages
    ]
    keys = sorted({(topic, queue_id) for topic, queue_id, _ in messages})
    return AppendRun(
        run=parse(b"".join(records), np.array([len(record) for record in records])),
        keys=keys,
        key_index=np.array([keys.index((topic, queue_id)) for topic, queue_id, _ in messages], np.int64),
        tags_codes=np.full(len(messages), tags_code(tag), np.int64),
        born_host=HOST,
        store_host=HOST,
    )


def bodies(count: int, size: int = 100, *, first: int = 0) -> list[bytes]:
    return [f"{number:08d}".encode().ljust(size, b".") for number in range(first, first + count)]


def fill_queue(store: MessageStore, count: int, *, topic: str = "T", queue_id: int = 0, first: int = 0) -> list[bytes]:
    sent = bodies(count, first=first)
    for start in range(0, count, 50):
        store.append_run(run_of([(topic, queue_id, body) for body in sent[start : start + 50]]))
    return sent


def settle(store: MessageStore) -> None:
    """Wait until everything appended is in its queue."""
    until(lambda: store.dispatched == store.log_max)


def mark(store: MessageStore) -> None:
    """Have everything appended on disk, with a mark that covers it.

    By themselves the last pages get there after ten seconds or sixty, or earlier, as the threads' turns happen to fall.
    """
    settle(store)
    store.inspect().flusher.mark_soon()
    until(lambda: store.inspect().flusher.marked == store.log_max)


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


def records_of(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """Every message of a queue, read as a consumer reads."""
    found: list[Record] = []
    at = store.min_offset(topic, queue_id)
    while at < store.max_offset(topic, queue_id):
        result = store.read(topic, queue_id, at, max_messages=100, max_bytes=1 << 20)
        place = 0
        for size in result.sizes:
            found.append(decode(result.records, place))
            place += size
        assert result.next_offset > at
        at = result.next_offset
    return found


def bodies_of(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in records_of(store, topic, queue_id)]


def crashed_copy(source: Path, target: Path) -> Path:
    """The directory as SIGKILL would leave it: written bytes are there, the process is not.

    Without half-written temporary files: the store that still runs may rename them away under the copy. It may also
    take a file back that it had made in advance; then the copy is made anew.
    """
    while True:
        try:
            return Path(shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.tmp")))
        except shutil.Error as error:
            if any(Path(name).exists() for name, _, _ in error.args[0]):
                raise
            shutil.rmtree(target)


def log_files(directory: Path) -> list[Path]:
    return sorted((directory / "commitlog").iterdir())


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
