"""Two store directories that were closed, compared by the bytes of their files."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from dejamq_broker.store.queues.entry_files import ENTRY, FILLER_SIZE


def assert_same_files(master: Path, slave: Path) -> None:
    """Log and queues of the slave are the master's, from where the slave's begin.

    Zeros at the end of the last file, and a prepared file that one of them has, do not count.
    """
    begin, mine = _joined(slave / "commitlog")
    origin, theirs = _joined(master / "commitlog")
    assert begin >= origin
    assert mine.rstrip(b"\0") == theirs[begin - origin :].rstrip(b"\0"), "the logs differ"
    queues = {path.relative_to(master) for path in (master / "consumequeue").glob("*/*")}
    assert {path.relative_to(slave) for path in (slave / "consumequeue").glob("*/*")} <= queues
    for queue in queues:
        _assert_same_queue(master / queue, slave / queue, begin)


def _assert_same_queue(master: Path, slave: Path, log_min: int) -> None:
    theirs, mine = _entries(master, log_min), _entries(slave, log_min)
    assert (theirs == mine).all() if theirs.shape == mine.shape else False, f"{slave} has not the entries of {master}"


def _entries(folder: Path, log_min: int) -> npt.NDArray[np.int64]:
    """The entries of records from this log offset on, each with its queue offset before it."""
    begin, data = _joined(folder) if folder.is_dir() else (0, b"")
    entries = np.frombuffer(data[: len(data) - len(data) % ENTRY.itemsize], ENTRY)
    real = (entries["size"] > 0) & (entries["size"] != FILLER_SIZE) & (entries["log_offset"] >= log_min)
    numbers = np.flatnonzero(real) + begin // ENTRY.itemsize
    columns = [numbers, *(entries[name][real].astype(np.int64) for name in ("log_offset", "size", "tags_code"))]
    return np.stack(columns)


def _joined(folder: Path) -> tuple[int, bytes]:
    """Where the first file begins, and the bytes of all."""
    files = sorted(folder.iterdir())
    return int(files[0].name) if files else 0, b"".join(file.read_bytes() for file in files)
