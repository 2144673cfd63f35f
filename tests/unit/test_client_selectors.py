"""Selectors for ``queue=``: the same key to the same queue, any queue, a queue of one machine room."""

from collections import Counter

import pytest
from dejamq import Message, MessageQueue, select_by_hash, select_machine_room, select_random
from dejamq.values.selectors import by_hash, by_sharding_key
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
