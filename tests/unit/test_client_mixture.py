"""Which queues messages get that go to several topics in one turn of the loop."""

import random
from collections import Counter
from itertools import cycle, islice

import pytest
from dejamq.encoding import Template, template
from dejamq.message import MessageQueue
from dejamq.mixture import KEPT_S, Mixture
from dejamq.selectors import CROWD_PAUSE_S, CROWD_PIECE, Rotation
from dejamq.window import WINDOW_RECORDS

TOPICS = [f"topic-{number}" for number in range(20)]
STEP_S = KEPT_S / 100


def mixture() -> tuple[Mixture, dict[str, Rotation]]:
    """With rotations over four queues of each topic, all beginning at the first."""
    rotations = {
        topic: Rotation([MessageQueue(topic, "broker-a", number) for number in range(4)], 0) for topic in TOPICS
    }
    return Mixture(rotations), rotations


def in_turn(count: int, tags: str | None = None) -> list[Template]:
    return [template(topic, 0, tags) for topic in islice(cycle(TOPICS), count)]


def take(mixed: Mixture, commons: list[Template], now: float) -> list[MessageQueue]:
    return mixed.take(commons, set(commons), now)


def flood(mixed: Mixture, turns: int, count: int, *, begin: float = 100.0, step_s: float = STEP_S) -> list[set[int]]:
    """The queue ids that the first topic gets in each turn."""
    taken = [take(mixed, in_turn(count), begin + number * step_s) for number in range(turns)]
    return [{queue.queue_id for queue in queues if queue.topic == TOPICS[0]} for queues in taken]


def test_the_messages_of_one_turn_go_to_the_queues_of_their_topics_in_turn() -> None:
    queues = take(mixture()[0], in_turn(80), 100.0)
    assert [queue.topic for queue in queues] == [common.topic for common in in_turn(80)]
    assert Counter((queue.topic, queue.queue_id) for queue in queues) == {
        (topic, number): 1 for topic in TOPICS for number in range(4)
    }


def test_in_a_flood_each_topic_keeps_to_a_queue_for_a_while() -> None:
    first, *others = flood(mixture()[0], 50, CROWD_PIECE)
    assert len(first) > 1
    assert len(set().union(*others)) == 1


def test_in_a_flood_a_topic_keeps_to_one_queue_whatever_the_tags() -> None:
    mixed, _ = mixture()
    flood(mixed, 2, CROWD_PIECE)
    queues = take(mixed, in_turn(CROWD_PIECE) + in_turn(CROWD_PIECE, "a") + in_turn(CROWD_PIECE, "b"), 100 + 2 * STEP_S)
    assert len(set(queues)) == len(TOPICS)


def test_a_flood_goes_on_with_the_next_queues_when_its_time_is_over() -> None:
    turns = flood(mixture()[0], round(3 * KEPT_S / STEP_S), CROWD_PIECE)[1:]
    assert all(len(ids) == 1 for ids in turns)
    assert len(set().union(*turns)) == 3


def test_a_flood_goes_on_with_the_next_queues_after_so_many_messages() -> None:
    turns = flood(mixture()[0], 4, WINDOW_RECORDS)[1:]
    assert [len(ids) for ids in turns] == [1, 1, 1]
    assert len(set().union(*turns)) == 3


@pytest.mark.parametrize(("count", "step_s"), [(80, STEP_S), (2 * CROWD_PIECE, 2 * CROWD_PAUSE_S)])
def test_small_or_rare_crowds_are_no_flood(count: int, step_s: float) -> None:
    assert all(len(ids) == 4 for ids in flood(mixture()[0], 10, count, step_s=step_s))


def test_a_flood_is_even_over_the_queues_in_the_end() -> None:
    random.seed(1126)
    mixed, _ = mixture()
    given: Counter[int] = Counter()
    for number in range(round(80 * KEPT_S / STEP_S)):
        given.update(queue.queue_id for queue in take(mixed, in_turn(CROWD_PIECE), 100 + number * STEP_S))
    assert max(given.values()) < 1.1 * min(given.values())


def test_a_rhythm_of_large_and_small_crowds_does_not_give_one_queue_the_large_ones() -> None:
    random.seed(1126)
    mixed, _ = mixture()
    given: Counter[int] = Counter()
    for number in range(4000):
        count = 3000 if number % 8 == 0 else 140
        given.update(queue.queue_id for queue in take(mixed, in_turn(count), 100 + number * 0.09))
    assert max(given.values()) < 1.5 * min(given.values())


def test_queues_that_have_gone_are_not_kept() -> None:
    mixed, rotations = mixture()
    flood(mixed, 2, CROWD_PIECE)
    other = MessageQueue(TOPICS[0], "broker-b", 0)
    rotations[TOPICS[0]] = Rotation([other])
    mixed.forget()
    assert other in take(mixed, in_turn(CROWD_PIECE), 100 + 2 * STEP_S)


def test_a_topic_without_queues_is_told() -> None:
    mixed, rotations = mixture()
    flood(mixed, 2, CROWD_PIECE)
    del rotations[TOPICS[0]]
    mixed.forget()
    with pytest.raises(KeyError):
        take(mixed, in_turn(CROWD_PIECE), 100 + 2 * STEP_S)
