"""A disk that fills: what is refused and what goes on, up to the last byte of a real one."""

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dejamq_broker.store import ASYNC_FLUSH, SYNC_FLUSH, KeyQuery, MessageStore, StoreConfig, StoreError, StoreFull
from dejamq_broker.store.files.checkpoint import Checkpoint, DispatchProgress
from dejamq_broker.store.files.disk import Disk, DiskLimits, DiskState, DiskUse, judge, used_percent
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.index.file import IndexFile
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_proto.codes import Code
from dejamq_proto.records.record import Record, encode_properties
from store_making import (
    OPENED,
    bodies,
    bodies_of,
    crashed_copy,
    fill_queue,
    log_files,
    open_small,
    run_of,
    settle,
    until,
)

pytestmark = pytest.mark.slow

FILE_SIZE = 65_536
LIMITS = DiskLimits(clean=75, forced=85, full=90)


def small(**settings: object) -> StoreConfig:
    base: dict[str, object] = {
        "mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 1000,
        "flush_interval_commit_log_ms": 5, "flush_interval_consume_queue_ms": 5, "flush_consume_queue_least_pages": 1,
        "max_hash_slot_num": 100, "max_index_num": 1000,
    }  # fmt: skip
    return StoreConfig(**(base | settings))  # type: ignore[arg-type]  # names and types are the settings' own


LOOKING = small(disk_check_delay_ms=5, clean_resource_interval_ms=5, clean_resource_delay_ms=5)
"""Looks at the disk all the time."""


# What a disk use means.


@pytest.mark.parametrize(
    ("log", "queues", "state"),
    [
        (75, 75, DiskState()),
        (76, 10, DiskState(clean=True)),
        (10, 76, DiskState(clean=True)),
        (85, 85, DiskState(clean=True)),
        (86, 10, DiskState(clean=True, clean_now=True)),
        (10, 86, DiskState(clean=True, clean_now=True)),
        (90, 90, DiskState(clean=True, clean_now=True)),
        (91, 91, DiskState(full=True, clean=True, clean_now=True)),
        (91, 10, DiskState(full=True, clean=True, clean_now=True)),
        (10, 91, DiskState(full=True, clean=True, clean_now=True)),
    ],
)
def test_each_disk_use_has_its_meaning(log: int, queues: int, state: DiskState) -> None:
    assert judge(DiskUse(log, queues), LIMITS) == state


@pytest.mark.parametrize(
    ("asked", "kept"), [((75, 85, 90), (75, 85, 90)), ((99, 99, 99), (95, 85, 90)), ((1, 1, 1), (10, 30, 35))]
)
def test_limits_stay_within_rocketmqs_bounds(asked: tuple[int, int, int], kept: tuple[int, int, int]) -> None:
    clean, forced, full = asked
    config = StoreConfig(
        disk_max_used_space_ratio=clean, disk_space_clean_forcibly_ratio=forced, disk_space_warning_level_ratio=full
    )
    assert DiskLimits.of(config) == DiskLimits(*kept)


def test_disk_use_is_what_df_says(tmp_path: Path) -> None:
    said = subprocess.run(["df", "--output=pcent", tmp_path], capture_output=True, text=True, check=True).stdout
    assert abs(used_percent(tmp_path) - int(said.split()[1].rstrip("%"))) <= 1  # somebody else may write meanwhile


def test_a_disk_that_cannot_be_measured_counts_as_before(tmp_path: Path) -> None:
    watched = Disk(StorePaths(tmp_path), StoreConfig(), None)
    watched.used_percent = lambda folder: 95
    assert watched.look().full
    watched.used_percent = raising(OSError(5, "Input/output error"))  # type: ignore[assignment]  # never returns
    assert watched.look().full


def raising(error: OSError) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


NO_SPACE = OSError(28, "No space left on device")


# What a store does at it.


def at_use(store: MessageStore, percent: int) -> None:
    store.inspect().disk.used_percent = lambda folder: percent
    store.inspect().disk.look()


def test_above_nine_tenths_writes_are_refused_and_reads_go_on(tmp_path: Path) -> None:
    store = open_small(tmp_path, small())
    sent = fill_queue(store, 10)
    settle(store)
    at_use(store, 91)
    with pytest.raises(StoreFull) as refused:
        store.append_run(run_of([("T", 0, b"x")]))
    assert (refused.value.code, refused.value.definite, refused.value.retriable) == (
        Code.SERVICE_NOT_AVAILABLE, True, True,
    )  # fmt: skip
    assert str(refused.value) == (
        f"the disk of the log in {tmp_path} is 91 % full, writes are refused above 90 % "
        "(disk_space_warning_level_ratio): make room; reads go on"
    )
    assert bodies_of(store) == sent
    at_use(store, 90)
    assert store.append_run(run_of([("T", 0, b"x")])).queue_offsets.tolist() == [10]


def test_a_full_disk_of_the_queues_alone_refuses_too(tmp_path: Path) -> None:
    store = open_small(tmp_path, small())
    fill_queue(store, 10)
    until(lambda: (tmp_path / "consumequeue").is_dir())
    store.inspect().disk.used_percent = lambda folder: 91 if folder.name == "consumequeue" else 10
    store.inspect().disk.look()
    with pytest.raises(StoreFull, match="disk of the queues"):
        store.append_run(run_of([("T", 0, b"x")]))


def test_a_store_notices_a_full_disk_and_room_by_itself(tmp_path: Path) -> None:
    store = open_small(tmp_path, LOOKING)
    store.inspect().disk.used_percent = lambda folder: 91
    until(lambda: store.inspect().disk.refusal() is not None)
    store.inspect().disk.used_percent = lambda folder: 90
    until(lambda: store.inspect().disk.refusal() is None)


def test_how_full_the_disk_is_may_be_left_out_of_account(tmp_path: Path) -> None:
    store = open_small(tmp_path, small(disk_check_enable=False))
    at_use(store, 99)
    store.append_run(run_of([("T", 0, b"x")]))
    assert store.inspect().disk.state == DiskState()


def with_holes(store: MessageStore, directory: Path) -> Path:
    """A copy of a closed store whose last log file has no blocks behind its records, as a RocketMQ makes them."""
    used = store.log_max % FILE_SIZE
    store.close()
    last = log_files(directory)[-1]
    os.truncate(last, used)
    os.truncate(last, FILE_SIZE)
    return last


def test_a_log_file_with_holes_gets_its_blocks_at_the_start(tmp_path: Path) -> None:
    store = open_small(tmp_path, small())
    sent = fill_queue(store, 10)
    last = with_holes(store, tmp_path)
    assert last.stat().st_blocks * 512 < FILE_SIZE
    again = open_small(tmp_path, small())
    assert last.stat().st_blocks * 512 >= FILE_SIZE
    assert bodies_of(again) == sent


def test_without_room_for_those_blocks_writes_are_refused_until_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write into a hole of a mapped file on a full disk would kill the process."""
    store = open_small(tmp_path, small())
    sent = fill_queue(store, 10)
    with_holes(store, tmp_path)
    monkeypatch.setattr(MappedFile, "reserve", raising(NO_SPACE))
    again = open_small(tmp_path, LOOKING)
    with pytest.raises(StoreFull, match="make room"):
        again.append_run(run_of([("T", 0, b"x")]))
    assert bodies_of(again) == sent
    monkeypatch.undo()
    until(lambda: again.inspect().disk.refusal() is None)
    assert again.append_run(run_of([("T", 0, b"x")])).queue_offsets.tolist() == [10]


# No room at one step.


class Sent:
    """Sends numbered messages and remembers those that were acknowledged."""

    def __init__(self, store: MessageStore) -> None:
        self.store, self.acknowledged = store, list[bytes]()

    def send(self) -> bool:
        (body,) = bodies(1, 1000, first=len(self.acknowledged))
        try:
            appended = self.store.append_run(run_of([("T", 0, body)]))
        except StoreFull:
            return False
        if self.store._config.sync_flush:
            self.store.durable(appended.end_log_offset).result(timeout=10)
        self.acknowledged.append(body)
        return True

    def until_refused(self) -> None:
        while self.send():
            pass


@pytest.mark.parametrize("flush_disk_type", [ASYNC_FLUSH, SYNC_FLUSH])
@pytest.mark.parametrize(
    ("owner", "step"),
    [(MappedFile, "create"), (ConsumeQueue, "write_out"), (DispatchProgress, "save"), (Checkpoint, "save")],
)
def test_no_room_at_a_step_refuses_writes_loses_nothing_and_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, flush_disk_type: str
) -> None:
    store = open_small(tmp_path / "live", small(flush_disk_type=flush_disk_type))
    sent = Sent(store)
    for _ in range(100):
        sent.send()
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, raising(NO_SPACE))
        sent.until_refused()
        settle(store)
        assert bodies_of(store) == sent.acknowledged
        crashed = crashed_copy(tmp_path / "live", tmp_path / "crashed")
    assert bodies_of(open_small(crashed, small())) == sent.acknowledged
    until(sent.send)
    settle(store)
    store.close()
    again = open_small(tmp_path / "live", small())
    assert again.clean_start
    assert bodies_of(again) == sent.acknowledged


def test_no_room_for_the_index_stops_neither_writes_nor_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(key: str) -> int:
        appended = store.put(Record("T", 0, key.encode(), encode_properties({"KEYS": key})))
        return int(appended.log_offsets[0])

    store = open_small(tmp_path, small())
    with monkeypatch.context() as patch:
        patch.setattr(IndexFile, "create", raising(NO_SPACE))
        send("first")
        with pytest.raises(OSError, match="No space"):
            store.inspect().late.catch_up()
        second = send("second")
        settle(store)
        assert bodies_of(store) == [b"first", b"second"]
    assert store.inspect().late.catch_up()
    assert store.inspect().index.newest[1] == second


def test_a_tail_that_cannot_be_kept_is_not_cut(tmp_path: Path) -> None:
    """Recovery keeps what it cuts off. Without room for that it changes nothing and says so."""
    store = open_small(tmp_path / "live", small())
    sent = fill_queue(store, 10)
    settle(store)
    crashed = crashed_copy(tmp_path / "live", tmp_path / "crashed")
    log = log_files(crashed)[0]
    with log.open("r+b") as file:
        file.seek(store.log_max)
        file.write(b"\x5a" * 100)
    torn = log.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", opening_without_room(Path.open))
        with pytest.raises(StoreError, match="No space left"):
            open_small(crashed, small())
    assert log.read_bytes() == torn
    again = open_small(crashed, small())
    assert bodies_of(again) == sent
    assert [cut.size for cut in again.recovery.cuts] == [100]


def opening_without_room(real: Callable[..., object]) -> Callable[..., object]:
    def open_file(path: Path, mode: str = "r", *more: object) -> object:
        if path.parent.name == "cut" and mode != "r":
            raise NO_SPACE
        return real(path, mode, *more)

    return open_file


# A real disk of one mebibyte.


@pytest.fixture
def tiny_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of its own in memory. Only root may make one."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root, to mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "dejamq-test", folder], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"cannot mount a small file system: {made.stderr.strip()}")
    monkeypatch.setattr("dejamq_broker.store.files.disk.used_percent", used_percent)
    try:
        yield folder
    finally:
        for store in OPENED:
            store.close()
        subprocess.run(["umount", "--lazy", folder], check=True)


def filler(folder: Path, *, leave: int = 0) -> Path:
    """Somebody else's file, which takes all the room there is but ``leave`` bytes."""
    path = folder / "filler"
    with path.open("wb") as file:
        until(lambda: filled(file.fileno(), leave))
    return path


def filled(descriptor: int, leave: int) -> bool:
    """False when a store took some of the room at the same moment."""
    space = os.fstatvfs(descriptor)
    try:
        os.posix_fallocate(descriptor, 0, max(1, space.f_bavail * space.f_frsize - leave))
    except OSError:
        return False
    return True


def test_a_disk_filled_by_the_store_itself_refuses_and_everything_acknowledged_stays(tiny_disk: Path) -> None:
    store = open_small(tiny_disk / "store", small(disk_check_enable=False))
    sent = Sent(store)
    sent.until_refused()
    assert len(sent.acknowledged) > 300
    settle(store)
    assert bodies_of(store) == sent.acknowledged
    store.close()
    subprocess.run(["mount", "-o", "remount,size=2m", tiny_disk], check=True)
    again = open_small(tiny_disk / "store", small(disk_check_enable=False))
    assert bodies_of(again) == sent.acknowledged


def test_a_disk_filled_by_somebody_else_is_written_again_when_there_is_room(tiny_disk: Path, tmp_path: Path) -> None:
    store = open_small(tiny_disk / "store", small(disk_check_enable=False))
    sent = Sent(store)
    for _ in range(50):
        sent.send()
    other = filler(tiny_disk)
    sent.until_refused()
    settle(store)
    assert bodies_of(store) == sent.acknowledged
    crashed = crashed_copy(tiny_disk / "store", tmp_path / "crashed")
    assert bodies_of(open_small(crashed, small())) == sent.acknowledged
    other.unlink()
    until(sent.send)
    settle(store)
    store.close()
    again = open_small(tiny_disk / "store", small())
    assert again.clean_start
    assert bodies_of(again) == sent.acknowledged


def test_a_store_looks_at_its_own_disk(tiny_disk: Path) -> None:
    store = open_small(tiny_disk / "store", LOOKING)
    fill_queue(store, 10)
    other = filler(tiny_disk, leave=80_000)
    until(lambda: store.inspect().disk.refusal() is not None)
    with pytest.raises(StoreFull, match=r"is 9\d % full"):
        store.append_run(run_of([("T", 0, b"x")]))
    other.unlink()
    until(lambda: store.inspect().disk.refusal() is None)
    store.append_run(run_of([("T", 0, b"x")]))


ROOMY = 4000
"""Bytes of a queue file that fill a block, as large ones have no more blocks than their bytes need."""


def test_a_store_lives_on_a_small_disk_by_giving_up_its_oldest_messages(tiny_disk: Path) -> None:
    config = dataclasses.replace(LOOKING, delete_commit_log_files_interval_ms=1, mapped_file_size_consume_queue=ROOMY)
    store = open_small(tiny_disk / "store", config)
    sent = 0
    while store.log_max < 3 << 20:
        until(lambda first=sent: stored(store, *bodies(20, first=first)))  # type: ignore[misc]  # binds the loop's value
        sent += 20
    settle(store)
    store.inspect().retention.stop()
    assert store.min_offset("T", 0) > 0
    left = bodies_of(store)
    assert left == bodies(len(left), first=sent - len(left))


def test_a_disk_that_is_filled_before_the_first_mark_has_room_for_one(tiny_disk: Path) -> None:
    """Or no file could ever be deleted: nothing goes that no mark covers."""
    never_by_itself = small(
        flush_interval_consume_queue_ms=60_000, disk_space_clean_forcibly_ratio=50, mapped_file_size_consume_queue=ROOMY
    )
    store = open_small(tiny_disk / "store", never_by_itself)
    sent = 0
    while stored(store, *bodies(20, first=sent)):
        sent += 20
    assert store.inspect().flusher.marked == 0

    def cleaned() -> bool:
        store.inspect().disk.look()
        return store.inspect().retention.clean(0) > 0

    until(cleaned)
    left = bodies_of(store)
    assert 0 < len(left) < sent
    assert left == bodies(len(left), first=sent - len(left))
    until(lambda: stored(store, b"next"))


def stored(store: MessageStore, *texts: bytes) -> bool:
    try:
        store.append_run(run_of([("T", 0, body) for body in texts]))
    except StoreFull:
        return False
    return True


@pytest.mark.parametrize("clean", [True, False])
def test_a_store_on_a_full_disk_can_be_opened_and_read_and_then_makes_room(tiny_disk: Path, clean: bool) -> None:
    """Or one that filled its disk could never be started again, and nothing of it would ever expire."""
    directory = tiny_disk / "store"
    store = open_small(directory, small())
    sent = fill_queue(store, 1300)
    settle(store)
    until(lambda: store.inspect().flusher.marked >= FILE_SIZE)  # what no mark covers may not go
    if not clean:
        crashed_copy(directory, tiny_disk / "crashed")
    store.close()
    if not clean:
        shutil.rmtree(directory)
        directory = tiny_disk / "crashed"
    filler(tiny_disk)
    again = open_small(directory, small(message_index_enable=False))
    assert again.clean_start == clean
    assert bodies_of(again) == sent
    # a crash after such a start is one to the next, too
    lost = open_small(crashed_copy(directory, directory.parents[1] / "lost"), small())
    assert not lost.clean_start
    assert bodies_of(lost) == sent
    again.close()
    looking = open_small(directory, LOOKING)
    until(lambda: looking.min_offset("T", 0) > 0)
    until(lambda: stored(looking, b"next"))
    settle(looking)
    assert bodies_of(looking)[-1] == b"next"


def test_an_index_mark_that_cannot_be_replaced_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left as it is, it would vouch for records that the log is to have later."""
    store = open_small(tmp_path, small())
    store.put(Record("T", 0, b"x", encode_properties({"KEYS": "k"})))
    store.close()
    mark = tmp_path / "indexed.json"
    mark.write_text(mark.read_text().replace(":2}", ":7}"))
    with monkeypatch.context() as patch:
        patch.setattr("dejamq_broker.store.index.index.atomic_write", raising(NO_SPACE))
        again = open_small(tmp_path, small())
        assert not mark.exists()
    assert len(again.query(KeyQuery("T", "k")).records) == 1


def test_what_cannot_be_opened_without_room_says_so(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dejamq_broker.store.recovery.mark_open", raising(NO_SPACE))
        with pytest.raises(StoreError, match="No space left on device; make room on its disk"):
            open_small(tmp_path, small())


def test_holes_on_a_full_disk_refuse_writes_instead_of_killing_the_process(tiny_disk: Path) -> None:
    directory = tiny_disk / "store"
    store = open_small(directory, small())
    sent = fill_queue(store, 10)
    with_holes(store, directory)
    other = filler(tiny_disk, leave=40_000)
    again = open_small(directory, LOOKING)
    with pytest.raises(StoreFull, match="make room"):
        again.append_run(run_of([("T", 0, b"x" * 60_000)]))
    assert bodies_of(again) == sent
    other.unlink()
    until(lambda: again.inspect().disk.refusal() is None)
    assert again.append_run(run_of([("T", 0, b"x" * 60_000)])).queue_offsets.tolist() == [10]
