"""What several groups had of one topic is counted, and only the first message that both had is taken."""

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from dejamq_analytics.sources.overlap import Overlap, Spot
from dejamq_analytics.survey.overlap import KnownDeliveries, overlap
from dejamq_analytics.survey.places import STORED, Block
from dejamq_proto.journal.events import Deliver
from journals import TOPIC, History
from plain_runs import RUN, RUNS, opening, run_of, write_remade, write_shared
from surveyed import Line, everything, taken

Pair = tuple[str, str, str]
Place = tuple[str, str, int, int]


def had(lines: list[Line]) -> dict[Place, dict[str, tuple[Any, ...]]]:
    """When each group was first given each place: (time, start, line, position)."""
    found: dict[Place, dict[str, tuple[Any, ...]]] = {}
    for line in lines:
        if line["event"] == "DELIVER":
            for position, offset in enumerate(line["queue_offsets"]):
                place = line["broker_name"], line["topic"], line["queue_id"], offset
                when = line["wall_us"], line["boot_id"], line["seq"], position
                groups = found.setdefault(place, {})
                groups[line["group"]] = min(groups.get(line["group"], when), when)
    return found


def told(lines: list[Line]) -> tuple[Counter[Pair], dict[Pair, Place]]:
    """For each group and the first by name that had the same: how many messages, and where the first one stands."""
    counts, firsts = Counter[Pair](), dict[Pair, tuple[Any, Place]]()
    for place, groups in had(lines).items():
        for second in sorted(groups)[1:]:
            pair = min(groups), second, place[1]
            counts[pair] += 1
            firsts[pair] = min(firsts.get(pair, (groups[second], place)), (groups[second], place))
    return counts, {pair: place for pair, (_, place) in firsts.items()}


@pytest.mark.parametrize("number", range(25))
def test_the_count_is_that_of_all_messages_and_the_first_one_is_taken(number: int, seed: int, tmp_path: Path) -> None:
    write_shared(History(tmp_path, "shared"), random.Random(f"{seed} {number}"), runs=40)
    counts, firsts = told(everything(tmp_path))
    found = taken(tmp_path)
    assert found.overlap.counts == counts
    there, whole = had(found.lines), had(everything(tmp_path))
    for place in firsts.values():
        assert place in at(found.overlap.first)
        assert there[place] == whole[place]


def test_two_groups_that_read_the_same_leave_one_line_of_each(tmp_path: Path) -> None:
    write_in_order(History(tmp_path, "same"), {"a": range(RUNS), "b": range(RUNS)})
    lines = taken(tmp_path).lines
    assert [line["queue_offsets"][0] for line in lines if line["event"] == "DELIVER"] == [0, 0]
    done = [line for line in lines if line["event"] == "RESULT" and line["queue_offsets"][0] == 0]
    assert {line["group"] for line in done} == {"a", "b"}


def test_all_of_a_topic_is_taken_where_an_operator_gave_some_of_it_to_a_member(tmp_path: Path) -> None:
    history = History(tmp_path, "same")
    write_in_order(history, {"a": range(RUNS), "b": range(RUNS)})
    again = run_of(history, 3, group="a")[1]
    again.kind, again.delivery_ids = "direct", [1 << 40 | one for one in again.delivery_ids]
    write_more(tmp_path, "same", again)
    found = taken(tmp_path)
    assert found.overlap == Overlap()
    assert len([line for line in found.lines if line["event"] == "DELIVER"]) == 2 * RUNS + 1


def test_a_message_that_came_late_does_not_hide_the_one_that_came_before_it(tmp_path: Path) -> None:
    """In the piece of the runs 0 and 2 the lowest that both had is of run 1, which came afterwards."""
    history = History(tmp_path, "late")
    write_in_order(history, {"a": [1, 2], "b": [0, 2, 1]})
    assert first_of(tmp_path, "a", "b") == 2 * RUN


def test_of_a_line_in_no_order_the_first_message_counts(tmp_path: Path) -> None:
    history = History(tmp_path, "mixed")
    write_in_order(history, {"a": [0], "b": []})
    deliver = run_of(history, 0, group="b")[1]
    for name in ("queue_offsets", "log_offsets", "unique_keys"):
        setattr(deliver, name, getattr(deliver, name)[::-1])
    write_more(tmp_path, "mixed", deliver)
    assert first_of(tmp_path, "a", "b") == RUN - 1


def test_places_that_had_two_messages_are_looked_at(tmp_path: Path) -> None:
    write_remade(History(tmp_path, "remade"))
    found = taken(tmp_path)
    assert found.overlap.counts == {}
    [(_, _, _, first, last)] = found.overlap.uncounted
    assert (first, last) == (0, 1023)
    assert len([line for line in found.lines if line["event"] == "DELIVER"]) == 5


def test_without_a_brokers_journal_only_groups_that_had_the_same_are_counted(tmp_path: Path) -> None:
    (tmp_path / "same").mkdir()
    write_in_order(History(tmp_path / "same", "same"), {"a": [0, 1], "b": [0, 1]}, brokers=False)
    assert [*taken(tmp_path / "same").overlap.counts.values()] == [2 * RUN]
    (tmp_path / "other").mkdir()
    write_in_order(History(tmp_path / "other", "other"), {"a": [0, 1], "b": [1]}, brokers=False)
    found = taken(tmp_path / "other")
    assert (found.overlap.counts, len(found.overlap.uncounted)) == ({}, 1)


def test_offsets_that_no_broker_gave_cost_no_time(tmp_path: Path) -> None:
    history = History(tmp_path, "absurd")
    deliver = run_of(history, 0, group="b")[1]
    deliver.queue_offsets = [*deliver.queue_offsets[:-1], 1 << 62]
    write_in_order(history, {"a": [0], "b": [0]})
    write_more(tmp_path, "absurd", deliver)
    assert taken(tmp_path).overlap.topics == {TOPIC}


@pytest.mark.parametrize(("ended", "counted"), [(False, 1), (True, 0)])
def test_after_a_log_that_ended_a_place_is_counted_only_where_all_had_the_same_of_it(ended: bool, counted: int) -> None:
    two, one = Block(2, 8, b"\xc0" + bytes(127)), Block(1, 3, b"\x80" + bytes(127))
    blocks = {("q", STORED): {0: two}, ("q", "a"): {0: two}, ("q", "b"): {0: one}}
    known = KnownDeliveries({"q": ("broker", "t", 0)}, {"t"}, {"broker"} if ended else set())
    assert len(overlap(blocks, [], known).counts) == counted
    assert len(overlap(blocks, [], known).uncounted) == 1 - counted


def first_of(directory: Path, *pair: str) -> int:
    """The offset of the first message that both had, which is among those that were taken."""
    overlap = taken(directory).overlap
    counts, firsts = told(everything(directory))
    assert overlap.counts == counts
    [place] = [place for (*groups, _), place in firsts.items() if groups == [*pair]]
    assert place in at(overlap.first)
    return place[3]


def at(spots: Iterable[Spot]) -> set[Place]:
    return {(broker, topic, queue, at) for broker, topic, queue, first, last in spots for at in range(first, last + 1)}


def write_in_order(history: History, runs: dict[str, Iterable[int]], *, brokers: bool = True) -> None:
    """To each group these runs of those that a broker stored, one group after the other."""
    if brokers:
        broker = history.broker()
        for number in range(RUNS):
            broker.write(run_of(history, number)[0])
    for group, numbers in runs.items():
        consumer = history.consumer(group)
        consumer.write(opening(history, group, 0))
        for number in numbers:
            for event in run_of(history, number, group=group)[1:]:
                consumer.write(event)
    history.end()


def write_more(directory: Path, name: str, deliver: Deliver) -> None:
    """By another member, after all else of the history with this name."""
    history = History(directory, name)
    history.consumer("another").write(deliver)
    history.end()
