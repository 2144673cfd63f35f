import pytest
from dejamq.receiving.process_queue import FlowLimits, ProcessQueue
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule


def filled(*offsets: int, size: int = 10) -> ProcessQueue:
    queue = ProcessQueue(offsets[0] if offsets else 0)
    queue.put(offsets, [size] * len(offsets))
    return queue


def test_nothing_is_to_be_committed_before_anything_is_known() -> None:
    assert ProcessQueue(7).commit_offset is None
    assert ProcessQueue(7).low_water == 7


def test_the_smallest_unfinished_offset_holds_the_commit_back() -> None:
    queue = filled(5, 6, 7)
    queue.finish(6)
    queue.finish(7)
    assert queue.commit_offset == 5
    queue.finish(5)
    assert queue.commit_offset == 8


def test_finishing_twice_counts_once() -> None:
    queue = filled(5, 6)
    assert queue.finish(5)
    assert not queue.finish(5)
    assert (len(queue), queue.cached_bytes) == (1, 10)


def test_a_message_held_already_is_not_counted_again() -> None:
    queue = filled(5, 6)
    queue.put([6, 7], [10, 10])
    assert (len(queue), queue.cached_bytes) == (3, 30)


def test_an_empty_pull_moves_the_commit_over_what_was_filtered_out() -> None:
    queue = filled(5)
    queue.advance(9)
    assert queue.commit_offset == 5
    queue.finish(5)
    assert queue.commit_offset == 9


def test_limits_are_exceeded_by_more_than_their_value() -> None:
    queue = filled(0, 1, 2)
    assert not queue.excess(FlowLimits(count=3, size_bytes=30, span=2))
    assert "3 messages" in queue.excess(FlowLimits(count=2))
    assert "30 bytes" in queue.excess(FlowLimits(size_bytes=29))
    assert "span 2" in queue.excess(FlowLimits(span=1))


def test_who_waits_for_room_hears_of_every_finished_message() -> None:
    queue, heard = filled(0, 1), []
    queue.on_room = lambda: heard.append(len(queue))
    queue.finish(1)
    queue.finish(0)
    assert heard == [1, 0]


@given(st.permutations(range(30)))
def test_in_whatever_order_handlers_end_the_commit_never_passes_an_unfinished_message(ends: list[int]) -> None:
    queue = filled(*range(30))
    unfinished = set(range(30))
    for offset in ends:
        queue.finish(offset)
        unfinished.discard(offset)
        assert queue.low_water == min(unfinished, default=30)


class AgainstASortedMap(RuleBasedStateMachine):
    """The queue against RocketMQ's sorted map, kept naively."""

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.model, self.end = ProcessQueue(100), dict[int, int](), 100

    @rule(steps=st.lists(st.integers(1, 3), min_size=1, max_size=8), size=st.integers(0, 5))
    def pull(self, steps: list[int], size: int) -> None:
        offsets = []
        for step in steps:
            self.end += step
            offsets.append(self.end - 1)
        self.queue.put(offsets, [size] * len(offsets))
        self.model |= dict.fromkeys(offsets, size)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), size=st.integers(0, 5))
    def pull_again(self, data: st.DataObject, size: int) -> None:
        offset = data.draw(st.sampled_from(sorted(self.model)))
        self.queue.put([offset], [size])
        self.model[offset] = size

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.model)))
        assert self.queue.finish(offset)
        del self.model[offset]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def finish_a_stretch(self, data: st.DataObject) -> None:
        held = sorted(self.model)
        first = data.draw(st.integers(0, len(held) - 1))
        stretch = held[first : first + data.draw(st.integers(1, 8))]
        self.queue.finish_all(stretch)
        for offset in stretch:
            del self.model[offset]

    @rule(by=st.integers(0, 4))
    def skip(self, by: int) -> None:
        self.end += by
        self.queue.advance(self.end)

    @invariant()
    def they_agree(self) -> None:
        model = self.model
        assert len(self.queue) == len(model)
        assert all(offset in self.queue for offset in model)
        assert self.queue.cached_bytes == sum(model.values())
        assert self.queue.low_water == min(model, default=self.end)
        assert self.queue.span == (max(model) - min(model) if model else 0)


TestAgainstASortedMap = pytest.mark.slow(AgainstASortedMap.TestCase)


def test_finishing_many_at_once_is_like_finishing_each() -> None:
    one, all_at_once, rooms = ProcessQueue(0), ProcessQueue(0), []
    all_at_once.on_room = lambda: rooms.append(len(all_at_once))
    for held in (one, all_at_once):
        held.put(range(6), [10] * 6)
    for offset in (1, 0, 3):
        one.finish(offset)
    all_at_once.finish_all((1, 0, 3))
    for held in (one, all_at_once):
        assert (len(held), held.cached_bytes, held.low_water, held.commit_offset, held.span) == (3, 30, 2, 2, 3)
    assert rooms == [3]


def test_of_messages_that_are_all_finished_nothing_is_kept() -> None:
    """A client may own hundreds of queues that had a thousand messages each and get no more for hours."""
    for finish in (lambda queue: queue.finish_all([5, 6]), lambda queue: [queue.finish(6), queue.finish(5)]):
        queue = filled(5, 6)
        finish(queue)
        assert (queue._offsets, queue._sizes, queue.commit_offset, queue.ends) == ([], [], 7, None)
        queue.put([9], [10])
        assert (queue.low_water, len(queue), queue.cached_bytes) == (9, 1, 10)
