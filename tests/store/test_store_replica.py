"""A slave's store: it takes its master's bytes, whole records only, and can be cut back to what both have."""

import random
from pathlib import Path
from unittest import mock

import pytest
from dejamq_broker.store import MessageStore, StoreClosed, StoreError, StoreFull
from dejamq_broker.store.files.errors import StoreFollows
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.index.query import KeyQuery
from dejamq_broker.store.replica.incoming import BadCopy
from dejamq_proto.records.record import Record, encode_properties
from replica_making import assert_same, copy_all, open_replica, slices
from store_making import SMALL, bodies_of, fill_queue, log_files, open_small, overwrite, run_of, settle

pytestmark = pytest.mark.slow


@pytest.fixture
def master(tmp_path: Path) -> MessageStore:
    """A log of several files with three queues, records of many sizes, some without an entry."""
    store = open_small(tmp_path / "master")
    rng = random.Random(7)
    for number in range(60):
        bodies = [(rng.choice("TU"), rng.randrange(2), bytes(rng.randrange(1, 9000))) for _ in range(rng.randint(1, 9))]
        store.append_run(run_of(bodies, tag=rng.choice([None, "red"])))
        if number % 20 == 0:
            store.append_run(run_of([("T", 0, b"half")], sys_flag=4))
            store.put(Record("T", 1, b"keyed", encode_properties({"KEYS": f"k{number}"})))
    return store


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_in_pieces_of_any_size_is_the_same_log_with_the_same_queues(
    tmp_path: Path, master: MessageStore, seed: int
) -> None:
    slave = open_replica(tmp_path / "slave")
    copy_all(master, slave, seed)
    assert len(log_files(tmp_path / "slave")) > 3
    assert_same(master, slave)


def test_a_record_in_two_pieces_enters_the_log_when_it_is_whole(tmp_path: Path) -> None:
    master, slave = open_small(tmp_path / "master"), open_replica(tmp_path / "slave")
    master.append_run(run_of([("T", 0, b"first"), ("T", 0, b"second")]))
    data = bytes(master.copy.recent(0, 1 << 20))
    slave.begin_copy()
    slave.take_copy(0, data[:-1])
    assert (slave.log_max, slave.max_offset("T", 0)) == (len(data) // 2, 1)
    slave.take_copy(len(data) - 1, data[-1:])
    assert bodies_of(slave) == [b"first", b"second"]


def test_a_new_stream_begins_at_the_last_whole_record(tmp_path: Path, master: MessageStore) -> None:
    slave = open_replica(tmp_path / "slave")
    rng = random.Random(1)
    while slave.log_max < master.log_max:
        pieces = slices(master, slave.begin_copy(), rng)
        for _ in range(rng.randint(1, 40)):
            for log_offset, data in pieces:
                slave.take_copy(log_offset, data)
                break
    assert_same(master, slave)


def test_a_copy_goes_on_after_a_clean_stop_and_after_a_kill(tmp_path: Path, master: MessageStore) -> None:
    slave = open_replica(tmp_path / "slave")
    pieces = list(slices(master, slave.begin_copy(), random.Random(3)))
    for log_offset, data in pieces[: len(pieces) // 2]:
        slave.take_copy(log_offset, data)
    slave.close()
    slave = open_replica(tmp_path / "slave")
    assert slave.clean_start
    copy_all(master, slave)
    assert_same(master, slave)


@pytest.mark.parametrize("file_end", [False, True])
def test_a_log_that_ends_with_a_file_closes_cleanly(tmp_path: Path, master: MessageStore, file_end: bool) -> None:
    slave = open_replica(tmp_path / "slave")
    slave.begin_copy()
    slave.take_copy(0, bytes(master.copy.recent(0, 1 << 20)) if file_end else b"")
    assert slave.log_max == (SMALL.mapped_file_size_commit_log if file_end else 0)
    settle(slave)
    slave.close()
    slave = open_replica(tmp_path / "slave")
    assert slave.clean_start
    copy_all(master, slave)
    assert_same(master, slave)


def test_bytes_that_are_no_record_end_the_copy_before_them(tmp_path: Path, master: MessageStore) -> None:
    slave = open_replica(tmp_path / "slave")
    data = bytearray(master.copy.recent(0, 20_000))
    data[11_000] ^= 1
    slave.begin_copy()
    with pytest.raises(BadCopy) as bad:
        slave.take_copy(0, bytes(data))
    assert bad.value.log_offset == slave.log_max <= 11_000
    copy_all(master, slave)
    assert_same(master, slave)


def test_zeros_are_no_record(tmp_path: Path) -> None:
    slave = open_replica(tmp_path / "slave")
    slave.begin_copy()
    with pytest.raises(BadCopy):
        slave.take_copy(0, bytes(500))


def test_bytes_from_elsewhere_are_not_taken(tmp_path: Path, master: MessageStore) -> None:
    slave = open_replica(tmp_path / "slave")
    slave.begin_copy()
    with pytest.raises(BadCopy, match="from 0 on"):
        slave.take_copy(100, bytes(master.copy.recent(100, 100)))
    assert slave.log_max == 0


def test_damage_that_the_master_vouches_for_is_copied_as_it_is(tmp_path: Path, master: MessageStore) -> None:
    master.close()
    overwrite(log_files(tmp_path / "master")[-1], 9_000, b"\xff" * 3000)
    (tmp_path / "master" / "dispatched.json").unlink()
    master = open_small(tmp_path / "master")
    (damage,) = master.recovery.damages
    slave = open_replica(tmp_path / "slave")
    with pytest.raises(BadCopy) as bad:
        copy_all(master, slave)
    assert bad.value.log_offset == damage.log_offset
    copy_all(master, slave, damaged=[(damage.log_offset, damage.end)])
    assert slave.log_max == master.log_max
    assert slave.copy.from_disk(damage.log_offset, 3000) == master.copy.from_disk(damage.log_offset, 3000)


def test_a_master_looks_for_damage_where_a_slave_suspects_it(tmp_path: Path, master: MessageStore) -> None:
    overwrite(log_files(tmp_path / "master")[0], 9_000, b"\xff" * 3000)
    slave = open_replica(tmp_path / "slave")
    with pytest.raises(BadCopy) as bad:
        copy_all(master, slave)
    assert master.copy.damages_from(slave.log_max) == []
    (damage,) = master.copy.damages_from(slave.log_max, bad.value.log_offset)
    copy_all(master, slave, damaged=[(damage.log_offset, damage.end)])
    assert slave.log_max == master.log_max


def test_a_slave_stores_nothing_of_its_own(tmp_path: Path) -> None:
    slave = open_replica(tmp_path / "slave")
    with pytest.raises(StoreFollows, match="send to the master"):
        slave.append_run(run_of([("T", 0, b"x")]))
    with pytest.raises(StoreFollows):
        slave.put(Record("T", 0, b"x"))
    assert slave.log_max == 0


def test_a_full_disk_ends_the_copy_at_a_record_and_it_goes_on_when_there_is_room(
    tmp_path: Path, master: MessageStore
) -> None:
    slave = open_replica(tmp_path / "slave")
    with (
        mock.patch.object(type(slave.inspect().log), "make_room", side_effect=OSError(28, "No space left on device")),
        pytest.raises(StoreFull),
    ):
        copy_all(master, slave)
    copy_all(master, slave)
    assert_same(master, slave)


def boundaries(store: MessageStore) -> list[int]:
    """Where records end, read from the queues."""
    ends = {0}
    for key in store.queues():
        queue = store.inspect().queues.get(key)
        assert queue is not None
        entries = queue.entries(queue.min_offset, queue.max_offset - queue.min_offset)
        ends |= set((entries["log_offset"] + entries["size"]).tolist())
    return sorted(ends)


@pytest.mark.parametrize("part", [0.05, 0.5, 0.83, 0.99])
def test_a_store_is_cut_back_to_a_record_and_what_is_cut_is_kept(
    tmp_path: Path, master: MessageStore, part: float
) -> None:
    slave = open_replica(tmp_path / "slave")
    copy_all(master, slave)
    ends = boundaries(slave)
    place = ends[int(len(ends) * part)]
    behind = b"".join(data for _, data in slices(master, place, random.Random(0)))
    cuts = slave.cut_back(place, "the master has not what follows")
    assert slave.log_max == place
    assert all("cut" in cut.kept and cut.reason == "the master has not what follows" for cut in cuts)
    kept = b"".join(Path(cut.kept).read_bytes() for cut in cuts)
    assert kept.replace(b"\0", b"") == behind.replace(b"\0", b"")  # zeros at file ends are not kept
    for key in slave.queues():
        queue = slave.inspect().queues.get(key)
        assert queue is not None
        entries = queue.entries(queue.min_offset, queue.max_offset - queue.min_offset)
        assert (entries["log_offset"] < place).all()
    slave.query(KeyQuery("T", "k0"))
    copy_all(master, slave)
    assert_same(master, slave)
    slave.close()
    assert open_replica(tmp_path / "slave").clean_start


def test_a_cut_that_failed_half_way_is_made_again(tmp_path: Path, master: MessageStore) -> None:
    slave = open_replica(tmp_path / "slave")
    copy_all(master, slave)
    place = boundaries(slave)[len(boundaries(slave)) // 2]
    with (
        mock.patch.object(MappedFile, "clear", side_effect=OSError(28, "No space left on device")),
        pytest.raises(StoreError, match="make room"),
    ):
        slave.cut_back(place, "test")
    assert not slave.is_open
    with pytest.raises(StoreClosed):
        slave.read("T", 0, 0)
    slave.reopen()
    slave.cut_back(min(place, slave.log_max), "test")
    copy_all(master, slave)
    assert_same(master, slave)


def test_an_empty_log_begins_where_it_is_told(tmp_path: Path, master: MessageStore) -> None:
    slave = open_replica(tmp_path / "slave")
    last = master.log_max - master.log_max % SMALL.mapped_file_size_commit_log
    slave.begin_at(last)
    assert (slave.log_min, slave.log_max, slave.begin_copy()) == (last, last, last)
    copy_all(master, slave)
    assert_same(master, slave)
    slave.close()
    slave = open_replica(tmp_path / "slave")
    fill_queue(master, 300)
    copy_all(master, slave)
    assert_same(master, slave)
    with pytest.raises(StoreError, match="not empty"):
        slave.begin_at(0)


def test_the_place_between_two_records_is_found(tmp_path: Path, master: MessageStore) -> None:
    ends = boundaries(master)
    for place in ends[1::17]:
        assert master.copy.boundary(place) == place
        assert master.copy.boundary(place + 50) == place
        assert master.copy.boundary(place - 1) < place


def test_digests_tell_logs_apart_and_say_how_much_there_was(tmp_path: Path, master: MessageStore) -> None:
    slave = open_replica(tmp_path / "slave")
    copy_all(master, slave)
    assert slave.copy.digest(100, 99_999) == master.copy.digest(100, 99_999)
    assert slave.copy.digest(100, 99_999)[1] != slave.copy.digest(101, 99_999)[1]
    assert master.copy.digest(master.log_max - 10, 99)[0] == 10
    assert master.copy.digest(master.log_max, 99) == (0, 0)


def test_a_topic_that_was_deleted_in_what_is_cut_off_keeps_what_comes_instead(
    tmp_path: Path, master: MessageStore
) -> None:
    slave = open_replica(tmp_path / "slave")
    copy_all(master, slave)
    slave.delete_topic("T")
    place = boundaries(slave)[len(boundaries(slave)) // 2]
    slave.cut_back(place, "test")
    copy_all(master, slave)
    before = slave.max_offset("U", 0), bodies_of(slave, "T", 0)
    assert before[1]
    slave.close()
    slave = open_replica(tmp_path / "slave")
    assert (slave.max_offset("U", 0), bodies_of(slave, "T", 0)) == before
