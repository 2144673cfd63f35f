from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import FakeLink, context, owned_queue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq_proto.codes import BrokerUnavailable, SendTimeout
from journalled import journalled


def offset_store(link: FakeLink, directory: Path) -> RemoteOffsetStore:
    made = context(link, directory)
    return RemoteOffsetStore(made, Deliveries(made))


def persists(directory: Path) -> list[tuple[Any, ...]]:
    return [(line["value"], line["reason"], line.get("outcome", "sent")) for line in journalled(directory)]


async def test_absent_is_none_and_failure_is_an_exception(tmp_path: Path) -> None:
    link, owned = FakeLink(), owned_queue()
    store = offset_store(link, tmp_path)
    assert await store.load(owned.queue) is None
    link.committed["orders", 0] = 7
    assert await store.load(owned.queue) == 7
    link.refuse["query_offset"] = BrokerUnavailable("gone")
    with pytest.raises(BrokerUnavailable):
        await store.load(owned.queue)


async def test_the_low_water_mark_is_what_is_committed(tmp_path: Path) -> None:
    link, owned = FakeLink(), owned_queue()
    owned.process_queue.put([0, 1, 2], [1, 1, 1])
    owned.process_queue.finish(0)
    owned.process_queue.finish(2)
    await offset_store(link, tmp_path).commit(owned, "drop")
    assert link.committed["orders", 0] == 1
    assert persists(tmp_path) == [(1, "drop", "sent")]


async def test_before_anything_is_known_nothing_is_committed(tmp_path: Path) -> None:
    link, owned = FakeLink(), owned_queue(50)
    store = offset_store(link, tmp_path)
    store.commit_oneway([owned])
    await store.commit(owned, "shutdown")
    assert store.piggyback(owned, 1) is None
    assert (link.committed, persists(tmp_path)) == ({}, [])


async def test_the_timer_commits_every_round_whether_changed_or_not(tmp_path: Path) -> None:
    """A broker that lost its table hears the offsets again."""
    link, owned = FakeLink(), owned_queue()
    owned.process_queue.advance(9)
    store = offset_store(link, tmp_path)
    store.commit_oneway([owned])
    link.committed.clear()
    store.commit_oneway([owned])
    assert link.committed["orders", 0] == 9
    assert persists(tmp_path) == [(9, "timer", "sent")] * 2


async def test_the_timer_leaves_dropped_queues_alone(tmp_path: Path) -> None:
    link, owned = FakeLink(), owned_queue()
    owned.process_queue.advance(9)
    owned.process_queue.dropped = True
    offset_store(link, tmp_path).commit_oneway([owned])
    assert not link.committed


@pytest.mark.parametrize(
    ("error", "outcome"), [(BrokerUnavailable("gone", definite=True), "failed"), (SendTimeout("late"), "indefinite")]
)
async def test_a_commit_that_fails_is_told_to_the_journal_and_hurts_nobody(
    tmp_path: Path, error: Exception, outcome: str
) -> None:
    link, owned = FakeLink(), owned_queue()
    owned.process_queue.advance(9)
    link.refuse["update_offset"] = error  # type: ignore[assignment]  # both are DejamqErrors
    await offset_store(link, tmp_path).commit(owned, "drop")
    assert persists(tmp_path) == [(9, "drop", "sent"), (9, "drop", outcome)]
