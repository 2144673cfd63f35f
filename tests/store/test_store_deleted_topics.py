"""Topics that are deleted: their queues go, and no start brings their messages back into them."""

import dataclasses
import random
import shutil
from pathlib import Path

import pytest
from dejamq_broker.store import StoreError
from store_making import SMALL, bodies_of, crashed_copy, fill_queue, mark, open_small, records_of, settle, until

pytestmark = pytest.mark.slow

SYNC = dataclasses.replace(SMALL, flush_disk_type="SYNC_FLUSH")


def test_queues_and_files_go_messages_stay_in_the_log_and_offsets_begin_again(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 120)
    kept = fill_queue(store, 30, topic="U")
    mark(store)
    first = records_of(store)[0]
    store.delete_topic("T")
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 0)
    assert bodies_of(store, "U") == kept
    assert store.record_by_id(first.offset_message_id) is not None
    store.inspect().flusher.mark_soon()
    until(lambda: not (tmp_path / "consumequeue" / "T").exists())
    again = fill_queue(store, 3, first=500)
    settle(store)
    assert [(one.queue_offset, one.body) for one in records_of(store)] == list(enumerate(again))


def test_deleting_what_there_never_was_is_no_error(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.delete_topic("nobody")
    assert store.queues() == []


@pytest.mark.parametrize("lost", ["nothing", "mark", "queues", "both"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("config", [SMALL, SYNC], ids=["async", "sync"])
def test_after_a_start_only_the_later_life_is_there(tmp_path: Path, config: object, clean: bool, lost: str) -> None:
    directory = tmp_path / "store"
    store = open_small(directory, config)  # type: ignore[arg-type]  # a StoreConfig
    fill_queue(store, 120)
    other = fill_queue(store, 20, topic="U")
    mark(store)
    store.delete_topic("T")
    again = fill_queue(store, 7, first=500)
    settle(store)
    if clean:
        store.close()
    else:
        directory = crashed_copy(directory, tmp_path / "crashed")
    if lost in ("mark", "both"):
        (directory / "dispatched.json").unlink()
    if lost in ("queues", "both"):
        shutil.rmtree(directory / "consumequeue")
    store = open_small(directory, config)  # type: ignore[arg-type]
    assert bodies_of(store) == again
    assert bodies_of(store, "U") == other
    more = fill_queue(store, 2, first=900)
    settle(store)
    assert [(one.queue_offset, one.body) for one in records_of(store)] == list(enumerate([*again, *more]))


def test_a_crash_before_the_files_went_shows_nothing_of_them(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    fill_queue(store, 120)
    mark(store)
    before = crashed_copy(tmp_path / "store", tmp_path / "before")
    store.delete_topic("T")
    shutil.copy(tmp_path / "store" / "deleted.json", before)
    found = open_small(before)
    assert bodies_of(found) == []
    again = fill_queue(found, 3)
    settle(found)
    assert bodies_of(found) == again


def test_a_list_that_cannot_be_written_leaves_the_topic_as_it_was(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    sent = fill_queue(store, 5)
    settle(store)
    (tmp_path / "deleted.json").mkdir()
    with pytest.raises(StoreError, match=r"deleted\.json cannot be written"):
        store.delete_topic("T")
    assert bodies_of(store) == sent
    more = fill_queue(store, 1, first=5)
    settle(store)
    assert bodies_of(store) == [*sent, *more]


def copied(source: Path, target: Path) -> None:
    """A copy of a store that runs: what a thread deletes meanwhile is copied again without it."""
    try:
        crashed_copy(source, target)
    except shutil.Error:
        shutil.rmtree(target)
        crashed_copy(source, target)


class Model:
    """What is to be seen of two topics, whatever is done to the store."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.rng, self.lives, self.sent = directory, random.Random(seed), 0, 0
        self.wanted: dict[str, list[bytes]] = {"T": [], "U": []}
        self.store = open_small(directory / "0", self.rng.choice((SMALL, SYNC)))

    def step(self) -> None:
        topic = self.rng.choice("TU")
        action = self.rng.choices((self.append, self.delete, self.restart, self.mark), (6, 2, 1, 1))[0]
        action(topic)
        for name, bodies in self.wanted.items():
            assert [(one.queue_offset, one.body) for one in records_of(self.store, name)] == list(enumerate(bodies))

    def append(self, topic: str) -> None:
        count = self.rng.randrange(1, 80)
        self.wanted[topic] += fill_queue(self.store, count, topic=topic, first=self.sent)
        self.sent += count
        settle(self.store)

    def delete(self, topic: str) -> None:
        self.store.delete_topic(topic)
        self.wanted[topic] = []

    def mark(self, topic: str) -> None:
        mark(self.store)

    def restart(self, topic: str) -> None:
        """After a clean stop or a crash, with or without what is derived from the log."""
        self.lives += 1
        target = self.directory / str(self.lives)
        if self.rng.random() < 0.5:
            self.store.close()
            shutil.copytree(self.directory / str(self.lives - 1), target)
        else:
            copied(self.directory / str(self.lives - 1), target)
        for name in ("dispatched.json", "consumequeue"):
            if self.rng.random() < 0.25 and (target / name).exists():
                (shutil.rmtree if name == "consumequeue" else Path.unlink)(target / name)
        self.store = open_small(target, self.rng.choice((SMALL, SYNC)))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_done_a_topic_has_the_messages_of_its_last_life(tmp_path: Path, seed: int) -> None:
    model = Model(tmp_path, seed)
    for _ in range(40):
        model.step()
