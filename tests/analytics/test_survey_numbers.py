"""What the survey remembers of messages, and what it concludes from that: plain numbers, without Spark."""

import random

import numpy as np
import pytest
from dejamq_analytics.survey import keys, order, places, wholly
from dejamq_analytics.survey.keys import COUNTS, DELIVERED, ODD, SENT, STORED, ChosenHashes
from dejamq_analytics.survey.note import LineExtent
from dejamq_analytics.survey.order import Pieces, QueuePiece
from dejamq_analytics.survey.places import Blocks

WHERE = "broker|orders|0"


def entries(*told: tuple[str, int, int, int]) -> keys.Numbers:
    """Of (key, place, log offset, code)."""
    names, where, logs, codes = zip(*told, strict=True)
    at = keys.at(keys.hashed(names) * np.uint64(0), np.array(where))
    return keys.entries(keys.hashed(names), at, np.array(logs), np.array(codes, np.uint32))


IN_A, IN_B = DELIVERED | COUNTS | keys.receiver("a"), DELIVERED | COUNTS | keys.receiver("b")
PLAIN = [("k", 1, 100, SENT), ("k", 1, 100, STORED | COUNTS), ("k", 1, 100, IN_A), ("k", 1, 100, IN_B)]


@pytest.mark.parametrize(
    ("told", "matters"),
    [
        (PLAIN, False),
        ([*PLAIN, ("k", 1, 100, IN_A)], True),
        ([*PLAIN, ("k", 1, 100, STORED)], True),
        ([*PLAIN, ("k", 1, 100, SENT)], True),
        ([*PLAIN[:3], ("k", 2, 100, IN_B)], True),
        ([*PLAIN[:3], ("k", 1, 101, IN_B)], True),
        ([*PLAIN[:3], ("k", 1, 100, IN_B | ODD)], True),
        (PLAIN[:1], True),
        (PLAIN[1:2], False),
        (PLAIN[2:3], False),
    ],
    ids=["once", "delivered twice", "stored twice", "sent twice", "another place", "another log offset", "odd",
         "never stored", "only stored", "only delivered"],
)  # fmt: skip
def test_a_message_is_a_candidate_unless_it_came_once(told: list[tuple[str, int, int, int]], matters: bool) -> None:
    other = [("other", 9, 900, STORED | COUNTS), ("other", 9, 900, IN_A)]
    found = keys.candidates(entries(*told, *other), brokers_known=True)
    assert found.keys.tolist() == (keys.hashed(["k"]).tolist() if matters else [])
    assert found.messages == 1 + any(code & COUNTS for _, _, _, code in told)


@pytest.mark.parametrize("shuffled", range(5))
def test_candidates_among_many_that_came_once_are_found_in_any_order(shuffled: int) -> None:
    chance = random.Random(shuffled)
    plain = [(f"p{n}", n, 100 + n, code) for n in range(300) for code in (STORED | COUNTS, IN_A)]
    odd = [("o1", 900, 7, STORED | COUNTS), ("o1", 900, 7, IN_A | ODD), ("o2", 901, 7, STORED), ("o2", 902, 7, IN_A),
           ("o3", 903, 7, STORED), ("o3", 903, 8, IN_A), ("o4", 904, 7, IN_A), ("o4", 904, 7, IN_A),
           ("o5", 905, 7, STORED), ("o5", 905, 7, STORED), ("o6", 906, 7, SENT), ("o6", 906, 7, IN_A)]  # fmt: skip
    told = [*plain, *odd, ("once", 907, 7, IN_A), ("unasked", 908, 7, STORED)]
    chance.shuffle(told)
    found = keys.candidates(entries(*told), brokers_known=True)
    assert sorted(found.keys.tolist()) == sorted(keys.hashed([f"o{n}" for n in range(1, 7)]).tolist())
    assert found.messages == len({key for key, _, _, code in told if code & COUNTS})
    there = entries(*[one for one in odd if one[3] & 3 != SENT])
    assert set(found.places.tolist()) == set(there["place"].tolist())


def test_one_business_in_two_messages_makes_candidates_of_both() -> None:
    made = entries(("k1", 1, 1, IN_A), ("k2", 2, 2, IN_A), ("k3", 3, 3, IN_A), ("k4", 4, 4, IN_B))
    found = keys.same_business(keys.of_business(keys.hashed(["order", "order", "another", "another"]), made))
    assert sorted(found.keys.tolist()) == sorted(keys.hashed(["k1", "k2"]).tolist())


def test_buckets_hold_every_entry_once_and_those_of_one_key_together() -> None:
    made = entries(*[(f"k{number % 300}", number, number, IN_A) for number in range(900)])
    parts = {bucket: np.frombuffer(data, keys.ENTRY) for bucket, data in keys.by_bucket(made)}
    assert sum(map(len, parts.values())) == 900
    homes = [{bucket for bucket, part in parts.items() if key in part["key"]} for key in np.unique(made["key"])]
    assert all(len(home) == 1 for home in homes)


def test_what_was_chosen_is_found_and_nothing_else() -> None:
    some = keys.hashed([f"k{number}" for number in range(2000)])
    assert ChosenHashes(some[::2]).among(some).tolist() == [number % 2 == 0 for number in range(2000)]
    assert not ChosenHashes(some[:0]).among(some).any()


def blocks(stored: range, given: dict[str, list[int]]) -> Blocks:
    made: Blocks = {}
    for side, offsets in {places.STORED: list(stored), **given}.items():
        if offsets:
            places.count(made, (WHERE, side), np.array(offsets), keys.hashed([f"k{offset}" for offset in offsets]))
    return made


@pytest.mark.parametrize(
    ("stored", "given", "found"),
    [
        (range(3000), {"a": [*range(3000)]}, set()),
        (range(3000), {"a": [*range(3000), 5, 6]}, set()),
        (range(3000), {"a": [*range(2000), *range(2001, 3000)]}, {1}),
        (range(3000), {"a": [*range(2500)]}, {2}),
        (range(3000), {"a": [*range(3000)], "b": [*range(7)]}, set()),
        (range(0), {"a": [*range(3000)]}, set()),
        (range(0), {"a": [*range(3000), 5]}, {0}),
        (range(0), {"a": [*range(3000)], "b": [*range(3000)]}, set()),
        (range(0), {"a": [*range(3000)], "b": [*range(2000)]}, {1}),
        (range(100, 3000), {"a": [*range(100, 3000)]}, set()),
    ],
)
def test_a_block_is_looked_at_where_not_what_was_stored_was_given(
    stored: range, given: dict[str, list[int]], found: set[int]
) -> None:
    assert places.uneven(blocks(stored, given), {(WHERE, "a"): 0}) == ({WHERE: found} if found else {})


def test_a_group_is_given_nothing_that_was_stored_before_it_began() -> None:
    made = blocks(range(3000), {"a": [*range(1500, 3000)]})
    assert places.uneven(made, {(WHERE, "a"): 1500}) == {}
    assert places.uneven(made, {(WHERE, "a"): 1499}) == {WHERE: {1}}


def piece(boot: str, seq: int, at_us: int, lowest: int, highest: int) -> QueuePiece:
    return QueuePiece(WHERE, "a", boot, at_us, seq, at_us, seq, lowest, highest, highest - lowest + 1)


def test_pieces_that_follow_one_another_are_one_and_nothing_disagrees() -> None:
    pieces = Pieces()
    for number in range(50):
        pieces.add(piece("c1", number, number * 10, number * 8, number * 8 + 7), True)
    made = pieces.end()
    assert len(made) == 1
    assert order.disagreeing(made) == []


def test_a_queue_that_goes_back_is_looked_at_only_up_to_where_it_had_been() -> None:
    pieces = Pieces()
    pieces.add(piece("c1", 1, 10, 0, 1000), True)
    for number in range(20):
        pieces.add(piece("c2", number + 1, 100 + number, 900 + number * 64, 900 + number * 64 + 63), True)
    found = order.disagreeing(pieces.end())
    assert [(one.boot_id, one.below, one.reached) for one in found] == [("c2", 1000, 1000)]


@pytest.mark.parametrize("seed", range(20))
def test_the_lines_looked_at_tell_all_that_is_out_of_order(seed: int) -> None:
    """Against a plain reading of every line, with lines of one or two messages of two owners."""
    chance = random.Random(seed)
    pieces, lines, seqs = Pieces(), [], {"c1": 0, "c2": 0}
    reached = {"c1": 0, "c2": 0}
    for at_us in range(60):
        boot = chance.choice(["c1", "c2"])
        seqs[boot] += 1
        reached[boot] = max(0, reached[boot] + chance.choice([1, 1, 1, 2, -3]))
        lowest = reached[boot]
        highest = reached[boot] = lowest + chance.randrange(2)
        lines.append((at_us, boot, seqs[boot], lowest, highest))
        pieces.add(piece(boot, seqs[boot], at_us, lowest, highest), True)
    found = order.disagreeing(pieces.end())

    def turned(some: list[tuple[int, str, int, int, int]]) -> dict[tuple[str, int, int], int]:
        most, told = -1, {}
        for _, boot, seq, low, high in some:
            before = [one.reached for one in found if one.boot_id == boot and one.first_seq <= seq <= one.last_seq]
            for offset in range(low, high + 1):
                known = max([most, *before]) if some is not lines else most
                if offset < known:
                    told[boot, seq, offset] = known
                most = max(most, offset)
        return told

    taken = [
        line for line in lines
        if any(one.boot_id == line[1] and one.first_seq <= line[2] <= one.last_seq and line[3] < one.below
               for one in found)
    ]  # fmt: skip
    assert turned(taken) == turned(lines), seed


def test_holes_are_what_no_extent_has() -> None:
    extents = [LineExtent("b", "r", "p", first, last, 0, 0) for first, last in ((3, 5), (6, 9), (12, 20))]
    assert wholly.holes(extents) == [(1, 2), (10, 11)]
