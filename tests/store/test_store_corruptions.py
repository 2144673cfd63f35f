"""A table of harm done to the log, each row with what a start must find, report and keep; then the store goes on."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from dejamq_broker.store import MessageStore, StoreDamaged
from harm import (
    COUNT,
    END,
    FILE,
    LAST,
    PER_FILE,
    SIZE,
    UNSEEN,
    Harm,
    all_of,
    at,
    copy_of_the_last_record_behind_it,
    drop_last,
    empty_last,
    expected,
    flip,
    lose_mark,
    lose_queues,
    place,
    served,
    touch,
)
from store_making import START_MS, log_files, open_small, run_of, settle

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Row:
    """One harm. ``lost`` are the numbers of the records that are not served afterwards."""

    name: str
    harm: Harm
    end: int = END
    lost: range = range(0)
    damages: tuple[tuple[int, int], ...] = ()
    cuts: tuple[tuple[int, int], ...] = ()
    reason: str = ""
    rebuilt: bool = False
    """The queues are made again. A log that contradicts itself has them made again until that is 64 records ago."""


def torn(name: str, harm: Harm, reason: str) -> Row:
    """The last record is not good any more: it goes, alone."""
    return Row(name, harm, LAST, range(COUNT - 1, COUNT), cuts=((LAST, SIZE - UNSEEN),), reason=reason)


# Position of each field in a record of version 1 with a body of 100 bytes and a topic of one.
TORN_FIELDS = {
    "size": (0, "a record of"),
    "magic": (4, "magic"),
    "body CRC": (8, "CRC"),
    "log offset": (28, "belongs"),
    "body length": (84, "body length"),
    "body": (100, "CRC"),
    "topic length": (188, "length"),
}
UNSEEN_FIELDS = {
    "flag": 16,
    "system flag": 36,
    "born time": 40,
    "born host": 48,
    "store host": 64,
    "reconsume times": 72,
    "store time": 56,
    "queue offset": 20,
    "prepared transaction offset": 76,
}

LOG_ROWS = [
    Row("nothing is wrong", lambda directory: None),
    *(torn(f"last record, a bit of its {name}", flip(LAST + where), why) for name, (where, why) in TORN_FIELDS.items()),
    torn("last record, the host width bit of its system flag", flip(LAST + 39, 0x10), ""),
    *(Row(f"last record, a bit of its {name}", flip(LAST + where)) for name, where in UNSEEN_FIELDS.items()),
    Row("last record, a bit of its properties length", flip(LAST + 190), LAST, range(COUNT - 1, COUNT),
        cuts=((LAST, SIZE - 1),), reason="properties"),
    Row("last record, its queue id another", flip(LAST + 15, 1), lost=range(899, 900), rebuilt=True),
    Row("last record, its queue offset another", flip(LAST + 27, 1), lost=range(899, 900), rebuilt=True),
    Row("last record, its topic another", flip(LAST + 189, 1)),
    Row("last record overwritten", at(LAST, b"\xff" * SIZE), LAST, range(COUNT - 1, COUNT), cuts=((LAST, SIZE),),
        reason="magic"),
    Row("last record zeroed", at(LAST, bytes(SIZE)), LAST, range(COUNT - 1, COUNT)),
    Row("last record zeroed but for its end", at(LAST, bytes(150)), LAST, range(COUNT - 1, COUNT), cuts=((LAST, 190),)),
    Row("garbage behind the end", at(END, b"garbage"), cuts=((END, 7),), reason="cannot be"),
    Row("garbage a page behind the end, no mark", all_of(at(END + 8192, b"garbage"), lose_mark), cuts=((END, 8199),)),
    Row("a record of another place behind the end", copy_of_the_last_record_behind_it, cuts=((END, 190),)),
    Row("a damaged record in the middle", flip(place(800) + 100), lost=range(800, 801),
        damages=((place(800), place(801)),), reason="CRC"),
    Row("zeros in the middle", at(place(700), bytes(4 * SIZE)), lost=range(700, 704),
        damages=((place(700), place(704)),), reason="zeros"),
    Row("the first record of the last file", flip(2 * FILE + 100), lost=range(682, 683),
        damages=((2 * FILE, 2 * FILE + SIZE),), reason="CRC"),
    Row("a damaged record in the first file, queues deleted", all_of(flip(100), lose_queues), lost=range(1),
        damages=((0, SIZE),), rebuilt=True),
    Row("the blank of the first file, queues deleted", all_of(flip(PER_FILE * SIZE + 4), lose_queues),
        damages=((PER_FILE * SIZE, FILE),), rebuilt=True),
    Row("an empty file behind the last", touch(f"{3 * FILE:020d}")),
    Row("the last file emptied", empty_last, 2 * FILE, range(682, COUNT)),
    Row("the last file gone", drop_last, 2 * FILE, range(682, COUNT)),
]  # fmt: skip


def check_log(store: MessageStore, row: Row, *, clean: bool) -> None:
    report = store.recovery
    assert store.log_max == report.log_end == row.end
    assert [(damage.log_offset, damage.end) for damage in report.damages] == list(row.damages)
    assert [(cut.log_offset, cut.size) for cut in report.cuts] == list(row.cuts)
    reasons = [*(damage.reason for damage in report.damages), *(cut.reason for cut in report.cuts)]
    assert all(row.reason in reason for reason in reasons)
    assert [Path(cut.kept).stat().st_size for cut in report.cuts] == [size for _, size in row.cuts]
    # without a mark and without knowing what was flushed, RocketMQ's checkpoint says nothing of so young records
    assert report.queues_rebuilt == (row.rebuilt or ("no mark" in row.name and not clean))


def check_it_goes_on(directory: Path, store: MessageStore, row: Row) -> None:
    """Appends follow without a gap, in time too, and another start finds nothing more to do."""
    before = served(store)
    next_offsets = [store.max_offset(*key) for key in (("T", 0), ("T", 1), ("U", 3))]
    appended = store.append_run(run_of([("T", 0, b"next" * 30), ("T", 1, b"next" * 30), ("U", 3, b"next" * 30)]))
    assert appended.queue_offsets.tolist() == next_offsets
    assert appended.store_timestamp_ms >= store.recovery.last_store_timestamp_ms >= START_MS
    settle(store)
    store.close()
    again = open_small(directory)
    assert again.clean_start
    assert not again.recovery.cuts
    assert again.recovery.queues_rebuilt <= row.rebuilt
    assert len(served(again)) == len(before) + 3
    assert [body for body in served(again) if body != b"next" * 30] == before
    again.close()


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("row", LOG_ROWS, ids=lambda row: row.name)
def test_harm_to_the_log(row: Row, clean: bool, whole: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "store"))
    row.harm(directory)
    if not clean:
        (directory / "abort").write_text("1")
    store = open_small(directory)
    assert store.clean_start == clean
    check_log(store, row, clean=clean)
    assert served(store) == expected(set(row.lost))
    check_it_goes_on(directory, store, row)


# Log files that are not as they must be stop the start, and nothing is touched.

REFUSED: dict[str, tuple[Harm, str]] = {
    "the last file short": (lambda d: log_files(d)[2].write_bytes(bytes(1000)), "has 1000 bytes instead of 65536"),
    "the last file long": (lambda d: log_files(d)[2].write_bytes(bytes(FILE + 1)), "has 65537 bytes instead of 65536"),
    "a file in the middle short": (lambda d: log_files(d)[1].write_bytes(bytes(FILE - 1)), "has 65535 bytes"),
    "a file in the middle empty": (lambda d: log_files(d)[1].write_bytes(b""), "has 0 bytes"),
    "a file in the middle gone": (lambda d: log_files(d)[1].unlink(), f"{FILE:020d} is missing"),
    "a foreign file": (touch("readme.txt"), "readme.txt is not a file of this store"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_log_file_that_is_not_as_it_must_be_stops_the_start(name: str, whole: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "store"))
    harm, text = REFUSED[name]
    harm(directory)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with pytest.raises(StoreDamaged, match=text) as refused:
        open_small(directory)
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
