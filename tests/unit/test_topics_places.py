"""Arithmetic of offsets for the Spark source of topics."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the source needs the extra 'analytics'")

from dejamq_analytics.topics.places import Piece, TopicQueue, limited, of_json, pieces, to_json

QUEUES = st.builds(
    TopicQueue, st.sampled_from(["t", "u"]), st.sampled_from(["broker-a", "broker-b"]), st.integers(0, 9)
)
PLACES = st.dictionaries(QUEUES, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=12)
A, B = TopicQueue("t", "broker-a", 0), TopicQueue("t", "broker-b", 10)


def test_offsets_are_nested_as_an_option_and_a_checkpoint_have_them() -> None:
    assert to_json({B: 3, A: 1}) == {"t": {"broker-a": {"0": 1}, "broker-b": {"10": 3}}}


@settings(max_examples=40)
@given(PLACES)
def test_offsets_come_back_from_json(places: dict[TopicQueue, tuple[int, int]]) -> None:
    begun = {queue: start for queue, (start, _) in places.items()}
    assert of_json(to_json(begun)) == begun


@settings(max_examples=40)
@given(PLACES, st.integers(1, 3000))
def test_a_limited_batch_takes_as_much_as_it_may_and_no_more(
    places: dict[TopicQueue, tuple[int, int]], most: int
) -> None:
    start = {queue: begin for queue, (begin, _) in places.items()}
    end = {queue: last for queue, (_, last) in places.items()}
    to = limited(start, end, most)
    there = sum(max(0, end[queue] - start[queue]) for queue in end)
    assert sum(max(0, to[queue] - start[queue]) for queue in to) == min(there, most)
    assert all(start[queue] <= to[queue] <= end[queue] for queue in end if end[queue] >= start[queue])
    assert all(to[queue] == end[queue] for queue in end if end[queue] < start[queue])


def test_a_limited_batch_takes_of_each_queue_by_what_waits_there() -> None:
    assert limited({A: 0, B: 100}, {A: 30, B: 110}, 20) == {A: 15, B: 105}


@settings(max_examples=40)
@given(PLACES, st.one_of(st.none(), st.integers(1, 300)))
def test_pieces_cover_everything_once_and_in_order(places: dict[TopicQueue, tuple[int, int]], most: int | None) -> None:
    start = {queue: begin for queue, (begin, _) in places.items()}
    end = {queue: last for queue, (_, last) in places.items()}
    cut = list(pieces(start, end, most))
    assert all(0 < piece.end - piece.start <= (most or 1000) for piece in cut)
    covered = [(piece.queue, offset) for piece in cut for offset in range(piece.start, piece.end)]
    assert covered == [(queue, offset) for queue in sorted(end) for offset in range(start[queue], end[queue])]


def test_a_large_queue_is_cut_into_several_pieces() -> None:
    assert list(pieces({A: 5, B: 0}, {A: 10, B: 0}, 2)) == [Piece(A, 5, 7), Piece(A, 7, 9), Piece(A, 9, 10)]
