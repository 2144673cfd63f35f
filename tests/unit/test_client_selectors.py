"""Selectors for ``queue=``: the same key to the same queue, any queue, a queue of one machine room."""

from collections import Counter
from itertools import groupby

import pytest
from dejamq import Message, MessageQueue, select_by_hash, select_machine_room, select_random
from dejamq.selectors import (
    CROWD,
    CROWD_PAUSE_S,
    CROWD_PIECE,
    EVEN_CROWDS,
    FLOOD_PIECE,
    FLOOD_S,
    Rotation,
    by_hash,
    by_sharding_key,
)
from hypothesis import given
from hypothesis import strategies as st

QUEUES = [MessageQueue("t", name, number) for name in ("east@a", "east@b", "west@c") for number in range(4)]
MESSAGE = Message("t", b"x")


@given(st.text(max_size=30), st.integers(1, 12))
def test_one_key_has_one_queue_while_the_queues_stay_the_same(key: str, number: int) -> None:
    queues = QUEUES[:number]
    assert select_by_hash(key)(queues, MESSAGE) == by_hash(queues, key)
    assert select_by_hash(key)(tuple(queues), MESSAGE) in queues


@pytest.mark.parametrize(
    ("key", "java_hash"), [("", 0), ("a", 97), ("user-1", -836031825), ("polygenelubricants", -(1 << 31))]
)
def test_the_queue_of_a_key_is_the_size_of_javas_hash_modulo_the_number_of_queues(key: str, java_hash: int) -> None:
    assert by_hash(QUEUES, key) == QUEUES[abs(java_hash) % 12]


def test_a_sharding_key_chooses_as_the_hash_selector_does() -> None:
    message = Message("t", b"x", sharding_key="user-7")
    assert by_sharding_key(QUEUES, message) == select_by_hash("user-7")(QUEUES, message)


def test_random_choices_reach_every_queue_and_one_seed_repeats_them() -> None:
    select, again = select_random(seed=7), select_random(seed=7)
    choices = [select(QUEUES, MESSAGE) for _ in range(500)]
    assert choices == [again(QUEUES, MESSAGE) for _ in range(500)]
    assert set(Counter(choices)) == set(QUEUES)


def test_a_machine_room_is_what_stands_before_the_at_sign_of_a_broker_name() -> None:
    select = select_machine_room({"east"}, seed=1)
    assert {select(QUEUES, MESSAGE).broker_name for _ in range(200)} == {"east@a", "east@b"}


def test_several_rooms_may_be_given_and_brokers_without_a_room_are_in_none() -> None:
    queues = [*QUEUES, MessageQueue("t", "east", 0)]
    select = select_machine_room(["east", "west"], seed=1)
    assert {select(queues, MESSAGE).broker_name for _ in range(300)} == {"east@a", "east@b", "west@c"}


def test_no_queue_in_the_room_is_said_with_its_name() -> None:
    with pytest.raises(LookupError, match="north"):
        select_machine_room({"north"})(QUEUES, MESSAGE)


def test_a_rotation_stops_after_one_round_without_a_wanted_broker() -> None:
    rotation = Rotation(QUEUES, start=0)
    assert rotation.next_where(lambda name: name == "nowhere") is None
    assert rotation.next() == QUEUES[0]


def test_a_restarted_rotation_goes_on_anywhere_among_its_queues() -> None:
    rotation = Rotation(QUEUES, start=0)
    seen = set()
    for _ in range(300):
        rotation.restart()
        seen.add(rotation.next())
    assert seen == set(QUEUES)


def test_the_messages_of_one_turn_take_turns() -> None:
    rotation = Rotation(QUEUES, start=1)
    assert rotation.take(5, 0.0) == [QUEUES[(1 + number) % len(QUEUES)] for number in range(5)]


def crowds(rotation: Rotation, count: int, apart_s: float) -> list[list[MessageQueue]]:
    """Each as large as there are queues."""
    size = len(QUEUES)
    assert size >= CROWD
    return [rotation.take(size, number * apart_s) for number in range(count)]


def test_crowds_are_spread_evenly_until_they_are_a_stream_then_each_keeps_together() -> None:
    taken = crowds(Rotation(QUEUES, start=0), EVEN_CROWDS + 4, 0.01)
    for crowd in taken[:EVEN_CROWDS]:
        assert set(crowd) == set(QUEUES)
    together = taken[EVEN_CROWDS:]
    assert all(len(set(crowd)) == 1 for crowd in together)
    assert len({crowd[0] for crowd in together}) == len(together)


def test_crowds_with_pauses_between_them_are_no_stream() -> None:
    for crowd in crowds(Rotation(QUEUES, start=0), 2 * EVEN_CROWDS, CROWD_PAUSE_S):
        assert set(crowd) == set(QUEUES)


def test_a_few_messages_take_turns_in_a_stream_as_well() -> None:
    rotation = Rotation(QUEUES, start=0)
    crowds(rotation, 2 * EVEN_CROWDS, 0.0)
    assert len(set(rotation.take(CROWD - 1, 0.0))) == CROWD - 1


def streaming(start: int = 0) -> Rotation:
    """One on which crowds come in a stream already."""
    rotation = Rotation(QUEUES, start=start)
    crowds(rotation, EVEN_CROWDS + 1, 0.0)
    return rotation


def pieces(queues: list[MessageQueue]) -> list[int]:
    """How many stand together each time."""
    return [len(list(piece)) for _, piece in groupby(queues)]


def test_a_large_crowd_of_a_stream_keeps_together_in_pieces_only() -> None:
    taken = streaming().take(3 * CROWD_PIECE + 1, 0.0)
    assert pieces(taken) == [CROWD_PIECE] * 3 + [1]


def test_a_flood_of_large_crowds_keeps_to_a_queue_for_a_while() -> None:
    rotation = streaming()
    crowd = FLOOD_PIECE // 8
    taken = [queue for turn in range(31) for queue in rotation.take(crowd, turn * FLOOD_S / 1000)]
    assert pieces(taken) == [CROWD_PIECE] * (crowd // CROWD_PIECE) + [FLOOD_PIECE] * 3 + [6 * crowd]


def test_a_slow_flood_goes_on_with_the_next_queue_when_its_time_is_over() -> None:
    rotation = streaming()
    taken = [rotation.take(CROWD_PIECE, turn * FLOOD_S / 4)[0] for turn in range(17)]
    assert pieces(taken) == [1, 4, 4, 4, 4]


def test_large_crowds_that_come_apart_are_no_flood() -> None:
    rotation = streaming()
    for turn in range(5):
        assert pieces(rotation.take(2 * CROWD_PIECE, turn * FLOOD_S)) == [CROWD_PIECE] * 2


@pytest.mark.parametrize("sizes", [(4,), (100,), (1000, 4), (CROWD_PIECE, 4, 4, 4), (300, 5), (FLOOD_PIECE, 4)])
def test_a_stream_of_crowds_is_even_over_the_queues_in_the_end(sizes: tuple[int, ...]) -> None:
    rotation, counts = streaming(), Counter[MessageQueue]()
    for number, size in enumerate(sizes * (6000 // len(sizes))):
        counts.update(rotation.take(size, number * FLOOD_S / 10))
    fair = counts.total() / len(QUEUES)
    assert all(0.5 * fair < counts[queue] < 1.5 * fair for queue in QUEUES), counts
