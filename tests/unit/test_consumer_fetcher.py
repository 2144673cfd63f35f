import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import FakeLink, Seen, a_fetcher, answer, context, owned_queue, stored, until
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.fetcher import Fetcher, GivingUp
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.receiving.received import ReceivedMessage
from dejamq_proto.codes import BrokerUnavailable, Code
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.wire.messages import PullAnswer
from journalled import journalled


class Sink(list[ReceivedMessage]):
    """Stands for the dispatcher."""

    def submit(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        self += messages


@asynccontextmanager
async def fetching(
    link: FakeLink,
    owned: OwnedQueue,
    *,
    directory: Path | None = None,
    level: str = "forensic",
    wires: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Fetcher, Sink]]:
    made, sink = context(link, directory, level, **settings), Sink()
    deliveries = Deliveries(made)
    fetcher = a_fetcher(made, deliveries, RemoteOffsetStore(made, deliveries), sink.submit, **(wires or {}))
    task = asyncio.create_task(fetcher.run(owned))
    try:
        yield fetcher, sink
    finally:
        task.cancel()
        await asyncio.wait((task,))
        made.journal.close()
        assert task.cancelled() or task.exception() is None


async def test_it_pulls_on_from_the_next_offset() -> None:
    link, owned = FakeLink(), owned_queue()
    link.records = [stored(offset) for offset in range(25)]
    async with fetching(link, owned, pull_batch_size=10) as (_, sink):
        await until(lambda: len(sink) == 25)
        await until(lambda: len(link.pulls) > 3)
    assert [message.queue_offset for message in sink] == list(range(25))
    assert [request.queue_offset for request in link.pulls[:4]] == [0, 10, 20, 25]
    assert (link.pulls[0].group, link.pulls[0].max_messages, link.pulls[0].suspend_ms) == ("g", 10, 15_000)


class Asked(FakeLink):
    """Notes what it is asked when it is asked, as a link does that sends; after ``most`` pulls it knows no broker."""

    def __init__(self, order: list[str], then: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._order, self._then, self.most = order, then, 100
        self.records = [stored(offset) for offset in range(4)]

    def pull(self, request: PullRequest) -> Any:
        if len(self.pulls) == self.most:
            raise BrokerUnavailable("no route to it")
        self._order.append(f"asked from {request.queue_offset}")
        return self._answered(request)

    async def _answered(self, request: PullRequest) -> PullAnswer:
        answered = await super().pull(request)
        self._then()
        return answered


async def first_steps() -> list[str]:
    """What a fetcher does first, of a queue of which each pull brings two messages."""
    order: list[str] = []
    link, owned = Asked(order), owned_queue()
    async with fetching(link, owned, pull_batch_size=2) as (fetcher, _):
        fetcher._submit = lambda owned, messages: order.append(f"handed over {messages[0].queue_offset}")
        await until(lambda: len(order) == 5)
    return order


async def test_the_next_pull_is_asked_before_handlers_get_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dejamq.receiving.fetcher.HANDLED_FIRST", 2)
    assert await first_steps() == ["asked from 0", "asked from 2", "handed over 0", "asked from 4", "handed over 2"]


async def test_a_few_messages_are_handled_before_the_next_pull_is_asked() -> None:
    assert await first_steps() == ["asked from 0", "handed over 0", "asked from 2", "handed over 2", "asked from 4"]


async def test_a_queue_that_is_lost_while_a_few_are_handled_is_not_pulled_again() -> None:
    link, owned = Asked([]), owned_queue()

    def lose(owned: Any, messages: Any) -> None:
        owned.process_queue.dropped = True

    async with fetching(link, owned, pull_batch_size=2) as (fetcher, _):
        fetcher._submit = lose
        await until(lambda: owned.dropped)
        for _ in range(5):
            await asyncio.sleep(0)
    assert len(link.pulls) == 1


@pytest.mark.parametrize("why", ["suspended", "not locked", "pull_interval_ms", "no route"])
async def test_what_came_is_handed_over_also_when_nothing_more_may_be_asked(why: str) -> None:
    stops: list[Callable[[], object]] = []
    link, owned = Asked([], lambda: stops[0]()), owned_queue()
    link.most = 1 if why == "no route" else 100
    interval_ms = 60_000 if why == "pull_interval_ms" else 0
    locks = [owned]
    wires = {"locked": lambda owned: owned in locks} if why == "not locked" else {}
    limits: dict[str, Any] = {"pull_batch_size": 2, "pull_interval_ms": interval_ms}
    async with fetching(link, owned, wires=wires, **limits) as (fetcher, sink):
        doing = {"suspended": fetcher.suspend, "not locked": locks.clear}
        stops.append(doing.get(why, lambda: None))
        await until(lambda: len(sink) == 2)
        assert len(link.pulls) == 1


async def test_a_pull_carries_the_commit_along_once_there_is_one(tmp_path: Path) -> None:
    link, owned = FakeLink(), owned_queue()
    link.records = [stored(0), stored(1)]
    async with fetching(link, owned, directory=tmp_path) as (_, sink):
        await until(lambda: len(sink) == 2)
        owned.process_queue.finish(0)
        await until(lambda: link.pulls[-1].commit_offset == 1)
        owned.process_queue.finish(1)
        await until(lambda: link.pulls[-1].commit_offset == 2)
    assert not link.pulls[0].HasField("commit_offset")
    persists = journalled(tmp_path, "PERSIST")
    assert {(line["reason"], line["value"]) for line in persists} == {("piggyback", 1), ("piggyback", 2)}
    seqs = {request.caller.seq for request in link.pulls if request.HasField("commit_offset")}
    assert {line["request_seq"] for line in persists} == seqs


async def test_nothing_is_pulled_above_the_limits_until_there_is_room() -> None:
    link, owned = FakeLink(), owned_queue()
    link.records = [stored(offset) for offset in range(30)]
    async with fetching(link, owned, pull_batch_size=10, pull_threshold_for_queue=5) as (_, sink):
        await until(lambda: len(sink) == 10)
        await asyncio.sleep(0.03)
        assert len(link.pulls) == 1
        for offset in range(4):
            owned.process_queue.finish(offset)
        await asyncio.sleep(0.03)
        assert len(link.pulls) == 1
        owned.process_queue.finish(4)
        await until(lambda: len(sink) == 20)


async def test_room_is_noticed_without_waiting_for_the_interval() -> None:
    link, owned = FakeLink(), owned_queue()
    link.records = [stored(offset) for offset in range(30)]
    limits: dict[str, Any] = {"pull_batch_size": 10, "pull_threshold_for_queue": 5, "flow_control_interval_ms": 60_000}
    async with fetching(link, owned, **limits) as (_, sink):
        await until(lambda: owned.process_queue.on_room)
        for offset in range(10):
            owned.process_queue.finish(offset)
        await until(lambda: len(sink) == 20)


async def test_bytes_held_by_all_queues_together_stop_every_one_of_them() -> None:
    link, owned, held = FakeLink(), owned_queue(), 10 << 20
    link.records = [stored(0)]
    async with fetching(link, owned, max_cached_bytes=1 << 20, broker_suspend_max_time_ms=1) as (fetcher, _):
        fetcher.cached_bytes = lambda: held
        await asyncio.sleep(0.03)
        before = len(link.pulls)
        await asyncio.sleep(0.03)
        assert len(link.pulls) == before
        held = 0
        await until(lambda: len(link.pulls) > before)


async def test_a_queue_that_is_lost_while_it_waits_for_room_is_not_pulled_again() -> None:
    """Another member may have it by now, and the pull would carry a commit along."""
    link, owned, held = FakeLink(), owned_queue(), 10 << 20
    async with fetching(link, owned, max_cached_bytes=1 << 20) as (fetcher, _):
        fetcher.cached_bytes = lambda: held
        await until(lambda: owned.in_line)
        before, owned.process_queue.dropped, held = len(link.pulls), True, 0
        await until(lambda: not owned.in_line)
        await asyncio.sleep(0)
        assert len(link.pulls) == before


def test_whether_there_is_more_is_not_known_for_long() -> None:
    owned = owned_queue()
    assert owned.has_more(0) is None
    owned.next_offset, owned.max_offset, owned.told_s = 5, 5, 100.0
    assert [owned.has_more(now_s) for now_s in (100.5, 101.5)] == [False, None]
    owned.max_offset = 6
    assert owned.has_more(101.5) is True


async def test_bytes_held_are_summed_up_only_when_they_may_have_become_too_many() -> None:
    link, owned, sums = FakeLink(), owned_queue(), list[int]()
    link.records = [stored(offset, body=b"ten bytes.") for offset in range(50)]

    def held() -> int:
        sums.append(owned.process_queue.cached_bytes)
        return sums[-1]

    async with fetching(link, owned, max_cached_bytes=300, pull_batch_size=10) as (fetcher, sink):
        fetcher.cached_bytes = held
        await until(lambda: len(sums) > 1)
        assert (sums[:2], len(sink)) == ([0, 400], 40), "the third pull filled it, the fourth went beyond it"
        owned.process_queue.finish_all(range(10))
        await until(lambda: len(sink) == 50)


async def test_while_the_next_messages_are_waited_for_nothing_of_the_last_answer_is_kept() -> None:
    """With hundreds of queues it was a MiB for each."""

    class Once(FakeLink):
        async def pull(self, request: PullRequest) -> PullAnswer:
            self.pulls.append(request)
            if len(self.pulls) > 1:
                await asyncio.Event().wait()
            whole = Seen.of(answer([stored(0)], 1))
            kept.append(weakref.ref(whole))
            return whole

    kept: list[weakref.ref[PullAnswer]] = []
    link, owned = Once(), owned_queue()
    async with fetching(link, owned) as (_, sink):
        await until(lambda: sink and len(link.pulls) > 1)
        assert kept[0]() is None


async def test_a_broker_that_is_away_is_asked_again_until_it_is_back() -> None:
    link, owned = FakeLink(), owned_queue()
    link.records = [stored(0)]
    link.refuse["pull"] = BrokerUnavailable("gone")
    async with fetching(link, owned) as (_, sink):
        await until(lambda: len(link.pulls) > 2)
        link.refuse.clear()
        await until(lambda: sink)


async def test_an_error_code_and_bytes_that_are_no_records_are_failures_too() -> None:
    link, owned = FakeLink(), owned_queue()
    link.answers = [PullAnswer(code=Code.SYSTEM_ERROR, remark="odd"), answer([b"\0" * 100], 1)]
    link.records = [stored(0)]
    async with fetching(link, owned) as (_, sink):
        await until(lambda: sink)
    assert [request.queue_offset for request in link.pulls[:3]] == [0, 0, 0]


async def test_an_answer_that_never_comes_is_given_up() -> None:
    class Mute(FakeLink):
        async def pull(self, request: Any) -> PullAnswer:
            if not self.pulls:
                self.pulls.append(request)
                await asyncio.Event().wait()
            return await super().pull(request)

    link, owned = Mute(), owned_queue()
    link.records = [stored(0)]
    async with fetching(link, owned, consumer_timeout_when_suspend_ms=10) as (_, sink):
        await until(lambda: sink)


async def test_an_empty_stretch_moves_the_commit() -> None:
    link, owned = FakeLink(), owned_queue(100)
    link.answers = [PullAnswer(code=Code.PULL_RETRY_IMMEDIATELY, next_offset=120)]
    async with fetching(link, owned):
        await until(lambda: len(link.pulls) > 1)
    assert (link.pulls[1].queue_offset, link.pulls[1].commit_offset) == (120, 120)


async def test_a_corrected_offset_ends_this_ownership() -> None:
    """Cause O16: the queue is opened anew where the broker says."""
    link, owned, told = FakeLink(), owned_queue(500), []
    link.answers = [PullAnswer(code=Code.PULL_OFFSET_MOVED, next_offset=20)]
    async with fetching(link, owned, wires={"moves": GivingUp(lambda: told.append(True))}):
        await until(lambda: told)
    assert (owned.dropped, owned.corrected_offset, owned.process_queue.low_water) == (True, 20, 500)
    assert len(link.pulls) == 1


async def test_tags_with_the_same_hash_are_told_apart_here() -> None:
    link, owned = FakeLink(), owned_queue()
    owned.expression, owned.tags = "Aa", frozenset({"Aa"})
    link.records = [stored(0, TAGS="BB"), stored(1, TAGS="Aa"), stored(2, TAGS="BB")]
    async with fetching(link, owned) as (_, sink):
        await until(lambda: len(link.pulls) > 1)
        assert [message.queue_offset for message in sink] == [1]
        owned.process_queue.finish(1)
    assert owned.process_queue.commit_offset == 3
    assert link.pulls[0].expression == "Aa"


@pytest.mark.parametrize(
    ("post", "lite", "registered"), [(True, False, False), (False, False, True), (False, True, False)]
)
async def test_a_pull_brings_its_filter_or_leaves_it_to_the_heartbeats(
    post: bool, lite: bool, registered: bool
) -> None:
    """RocketMQ: postSubscriptionWhenPull, which lite pull consumers do not look at."""
    link, owned = FakeLink(), owned_queue()
    owned.expression, owned.expression_type, owned.subscription_version = "a > 5", "SQL92", 7
    async with fetching(link, owned, wires={"lite": lite}, post_subscription_when_pull=post):
        await until(lambda: link.pulls)
        before = len(link.pulls)
        await until(lambda: len(link.pulls) > before)
    asked = link.pulls[-1]
    assert (asked.expression, asked.expression_type, asked.subscription_version) == ("a > 5", "SQL92", 7)
    assert (asked.registered, asked.lite) == (registered, lite)


async def test_a_suspended_consumer_pulls_nothing_and_goes_on_when_resumed() -> None:
    link, owned = FakeLink(), owned_queue()
    async with fetching(link, owned) as (fetcher, sink):
        await until(lambda: link.pulls)
        fetcher.suspend()
        await asyncio.sleep(0.03)
        before, link.records = len(link.pulls), [stored(0)]
        await asyncio.sleep(0.03)
        assert len(link.pulls) == before
        fetcher.resume()
        await until(lambda: sink)


async def test_a_run_that_reaches_the_process_queue_is_journalled(tmp_path: Path) -> None:
    link, owned = FakeLink(), owned_queue()
    link.records = [stored(0), stored(1)]
    async with fetching(link, owned, directory=tmp_path) as (_, sink):
        await until(lambda: sink)
    (handout,) = (line for line in journalled(tmp_path, "HANDOUT"))
    assert (handout["first_offset"], handout["last_offset"], handout["count"]) == (0, 1, 2)


async def test_without_a_journal_nothing_is_written(tmp_path: Path) -> None:
    link, owned = FakeLink(), owned_queue()
    link.records = [stored(0)]
    async with fetching(link, owned, directory=tmp_path, level="off") as (_, sink):
        await until(lambda: sink)
    assert not journalled(tmp_path)
