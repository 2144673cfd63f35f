"""Which queues the messages of one turn of the loop get, that go to one topic or to several."""

import random
from collections import Counter
from itertools import cycle, groupby, islice

import pytest
from dejamq.sending.encoding import Template, template
from dejamq.sending.queue_choice import (
    CROWD,
    CROWD_PAUSE_S,
    CROWD_PIECE,
    EVEN_CROWDS,
    FLOOD_PIECE,
    FLOOD_S,
    KEPT_S,
    WINDOW_RECORDS,
    Rotation,
    TopicRotations,
)
from dejamq.values.message import MessageQueue

QUEUES = [MessageQueue("t", name, number) for name in ("east@a", "east@b", "west@c") for number in range(4)]
TOPICS = [f"topic-{number}" for number in range(20)]
STEP_S = KEPT_S / 100


# --- one topic


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
    """Of random starts 187 decide here, so one of 20 seeds is more uneven than this; without them one queue has all."""
    random.seed(1)
    rotation, counts = streaming(), Counter[MessageQueue]()
    for number, size in enumerate(sizes * (6000 // len(sizes))):
        counts.update(rotation.take(size, number * FLOOD_S / 10))
    fair = counts.total() / len(QUEUES)
    assert all(0.5 * fair < counts[queue] < 1.5 * fair for queue in QUEUES), counts


# --- several topics


def rotations_of_topics() -> tuple[TopicRotations, dict[str, Rotation]]:
    """With rotations over four queues of each topic, all beginning at the first."""
    rotations = {
        topic: Rotation([MessageQueue(topic, "broker-a", number) for number in range(4)], 0) for topic in TOPICS
    }
    return TopicRotations(rotations), rotations


def in_turn(count: int, tags: str | None = None) -> list[Template]:
    return [template(topic, 0, tags) for topic in islice(cycle(TOPICS), count)]


def take(several: TopicRotations, commons: list[Template], now: float) -> list[MessageQueue]:
    return several.take(commons, set(commons), now)


def flood(
    several: TopicRotations, turns: int, count: int, *, begin: float = 100.0, step_s: float = STEP_S
) -> list[set[int]]:
    """The queue ids that the first topic gets in each turn."""
    taken = [take(several, in_turn(count), begin + number * step_s) for number in range(turns)]
    return [{queue.queue_id for queue in queues if queue.topic == TOPICS[0]} for queues in taken]


def test_the_messages_of_one_turn_go_to_the_queues_of_their_topics_in_turn() -> None:
    queues = take(rotations_of_topics()[0], in_turn(80), 100.0)
    assert [queue.topic for queue in queues] == [common.topic for common in in_turn(80)]
    assert Counter((queue.topic, queue.queue_id) for queue in queues) == {
        (topic, number): 1 for topic in TOPICS for number in range(4)
    }


def test_in_a_flood_each_topic_keeps_to_a_queue_for_a_while() -> None:
    first, *others = flood(rotations_of_topics()[0], 50, CROWD_PIECE)
    assert len(first) > 1
    assert len(set().union(*others)) == 1


def test_in_a_flood_a_topic_keeps_to_one_queue_whatever_the_tags() -> None:
    several, _ = rotations_of_topics()
    flood(several, 2, CROWD_PIECE)
    queues = take(
        several, in_turn(CROWD_PIECE) + in_turn(CROWD_PIECE, "a") + in_turn(CROWD_PIECE, "b"), 100 + 2 * STEP_S
    )
    assert len(set(queues)) == len(TOPICS)


def test_a_flood_goes_on_with_the_next_queues_when_its_time_is_over() -> None:
    turns = flood(rotations_of_topics()[0], round(3 * KEPT_S / STEP_S), CROWD_PIECE)[1:]
    assert all(len(ids) == 1 for ids in turns)
    assert len(set().union(*turns)) == 3


def test_a_flood_goes_on_with_the_next_queues_after_so_many_messages() -> None:
    turns = flood(rotations_of_topics()[0], 4, WINDOW_RECORDS)[1:]
    assert [len(ids) for ids in turns] == [1, 1, 1]
    assert len(set().union(*turns)) == 3


@pytest.mark.parametrize(("count", "step_s"), [(80, STEP_S), (2 * CROWD_PIECE, 2 * CROWD_PAUSE_S)])
def test_small_or_rare_crowds_are_no_flood(count: int, step_s: float) -> None:
    assert all(len(ids) == 4 for ids in flood(rotations_of_topics()[0], 10, count, step_s=step_s))


def test_a_flood_is_even_over_the_queues_in_the_end() -> None:
    random.seed(1126)
    several, _ = rotations_of_topics()
    given: Counter[int] = Counter()
    for number in range(round(80 * KEPT_S / STEP_S)):
        given.update(queue.queue_id for queue in take(several, in_turn(CROWD_PIECE), 100 + number * STEP_S))
    assert max(given.values()) < 1.1 * min(given.values())


def test_a_rhythm_of_large_and_small_crowds_does_not_give_one_queue_the_large_ones() -> None:
    random.seed(1126)
    several, _ = rotations_of_topics()
    given: Counter[int] = Counter()
    for number in range(4000):
        count = 3000 if number % 8 == 0 else 140
        given.update(queue.queue_id for queue in take(several, in_turn(count), 100 + number * 0.09))
    assert max(given.values()) < 1.5 * min(given.values())


def test_queues_that_have_gone_are_not_kept() -> None:
    several, rotations = rotations_of_topics()
    flood(several, 2, CROWD_PIECE)
    other = MessageQueue(TOPICS[0], "broker-b", 0)
    rotations[TOPICS[0]] = Rotation([other])
    several.forget()
    assert other in take(several, in_turn(CROWD_PIECE), 100 + 2 * STEP_S)


def test_a_topic_without_queues_is_told() -> None:
    several, rotations = rotations_of_topics()
    flood(several, 2, CROWD_PIECE)
    del rotations[TOPICS[0]]
    several.forget()
    with pytest.raises(KeyError):
        take(several, in_turn(CROWD_PIECE), 100 + 2 * STEP_S)
