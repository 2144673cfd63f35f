"""What is held back is in the log and in no queue, until the bound moves or the store ends."""

from pathlib import Path

from store_making import fill_queue, open_small, records_of, settle


def test_nobody_reads_what_is_behind_the_bound(tmp_path: Path) -> None:
    arrived: list[tuple[str, int]] = []
    store = open_small(tmp_path, on_arrival=arrived.extend)
    first = fill_queue(store, 3)
    settle(store)
    end = store.log_max
    bound = [end]
    store.hold_back(lambda: bound[0])
    later = fill_queue(store, 2, first=3)
    assert store.dispatched == end
    assert store.max_offset("T", 0) == 3
    assert len(arrived) == 1
    bound[0] = store.log_max
    store.look_again()
    settle(store)
    assert [record.body for record in records_of(store)] == first + later
    assert len(arrived) == 2


def test_a_store_that_ends_with_records_held_back_ends_whole(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.hold_back(lambda: 0)
    sent = fill_queue(store, 3)
    store.close()
    store = open_small(tmp_path)
    assert store.clean_start
    assert [record.body for record in records_of(store)] == sent
