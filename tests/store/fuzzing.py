"""Stores with bytes changed at random: whatever is in the files, opening one ends, and ends with an answer."""

import random
import shutil
from pathlib import Path

from dejamq_broker.store import MessageStore, StoreError
from dejamq_broker.store.dump import dump
from dejamq_broker.store.files.paths import StorePaths
from dejamq_proto.codes import DejamqError
from dejamq_proto.records.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from store_making import GOLDEN, SMALL, bodies, run_of, ticking
from wreck import standing_still, unsynced

SPECIAL = [
    (magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK, 0, -1, 1 << 31, 91, 1 << 20)
]
MOST_READS = 1000


def spoiled(folder: Path, seed: int) -> Path:
    """A store directory of a RocketMQ or of ours, some of its bytes, lengths or files changed."""
    rng = random.Random(seed)
    directory = folder / f"spoiled-{seed}"
    source = rng.choice(("clean", "crash", "ours"))
    if source == "ours":
        _ours(directory, rng)
    else:
        shutil.copytree(GOLDEN / source / "store", directory)
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.stat().st_size)
    weights = [8 if "commitlog" in path.parts else 1 for path in files]
    for path in rng.choices(files, weights, k=rng.choice((1, 1, 2, 5))):
        if path.exists() and path.stat().st_size:
            _spoil(path, rng)
    for name in ("abort", "dispatched.json", "checkpoint"):
        if rng.random() < 0.2:
            (directory / name).unlink(missing_ok=True)
    return directory


def survives(directory: Path) -> str:
    """Open, read everything, append, close, dump. Answers how it ended; any other exception is a failure."""
    with standing_still(), unsynced():
        try:
            store = MessageStore.open(directory, SMALL, clock_ms=ticking())
        except DejamqError as refused:
            ended = f"refused: {type(refused).__name__}" + " in many lines" * ("\n" in str(refused))
        else:
            ended = _used(store)
    try:
        for _ in dump(StorePaths(directory)):
            pass
    except (StoreError, OSError):
        pass
    return ended


def _used(store: MessageStore) -> str:
    try:
        for topic, queue_id in store.queues():
            at = store.min_offset(topic, queue_id)
            for _ in range(MOST_READS):
                try:
                    result = store.read(topic, queue_id, at)
                except StoreError:
                    break  # an entry that points nowhere says so
                if result.next_offset <= at:
                    break
                at = result.next_offset
            store.search_offset(topic, queue_id, 1_700_000_000_000)
        appended = store.append_run(run_of([("fuzz", 0, b"after")]))
        assert store.record_at(int(appended.log_offsets[0])) is not None
        store.inspect().reput.dispatch()
        assert store.max_offset("fuzz", 0) > 0
    except DejamqError as error:
        return f"opened, then {type(error).__name__}"
    finally:
        store.close()
    return "opened"


def _ours(directory: Path, rng: random.Random) -> None:
    with standing_still(), unsynced():
        store = MessageStore.open(directory, SMALL, clock_ms=ticking())
        for body in bodies(rng.choice((3, 200, 700))):
            store.append_run(run_of([("T", rng.randrange(2), body)], tag="red"))
        store.inspect().flusher.turn(rng.choice((0, 1 << 30)))
        if rng.random() < 0.5:
            store.close()
        else:
            store.inspect().lock.release()


def _spoil(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    used = len(bytes(data).rstrip(b"\0")) or 1
    kind = rng.choice(("flip", "flip", "special", "special", "block", "zeros", "copy", "short", "empty", "gone"))
    at, size = rng.randrange(min(used + 8, len(data))), rng.choice((1, 4, 20, 500, 5000))
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "special":
        data[at : at + 4] = rng.choice(SPECIAL)
    elif kind == "block":
        data[at : at + size] = rng.randbytes(size)
    elif kind == "zeros":
        data[at : at + size] = bytes(size)
    elif kind == "copy":
        source = rng.randrange(used)
        data[at : at + size] = data[source : source + size]
    if kind == "gone":
        path.unlink()
    else:
        length = {"short": at, "empty": 0}.get(kind, path.stat().st_size)
        path.write_bytes(bytes(data[:length]).ljust(length, b"\0"))
