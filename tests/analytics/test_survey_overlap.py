"""What several groups had of one topic is counted, and only the first message that both had is taken."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dejamq_analytics.survey.survey import overlap_of
from journals import History
from plain_runs import RUN, RUNS, opening, run_of, write_shared
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
    overlap = overlap_of(found.notes)
    assert overlap.counts == counts
    there = had(found.lines)
    for place in firsts.values():
        assert place in overlap.places
        assert there[place] == had(everything(tmp_path))[place]


def test_two_groups_that_read_the_same_leave_one_line_of_each(tmp_path: Path) -> None:
    history = History(tmp_path, "same")
    write_groups(history, "a", "b")
    lines = taken(tmp_path).lines
    assert [line["queue_offsets"][0] for line in lines if line["event"] == "DELIVER"] == [0, 0]
    done = [line for line in lines if line["event"] == "RESULT" and line["queue_offsets"][0] == 0]
    assert {line["group"] for line in done} == {"a", "b"}


def test_all_of_a_topic_is_taken_where_an_operator_gave_some_of_it_to_a_member(tmp_path: Path) -> None:
    history = History(tmp_path, "same")
    write_groups(history, "a", "b", direct=3)
    found = taken(tmp_path)
    assert overlap_of(found.notes).counts == {}
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
    deliver.queue_offsets = deliver.queue_offsets[::-1]
    history = History(tmp_path, "mixed")
    consumer = history.consumer("b-again")
    consumer.write(deliver)
    history.end()
    assert first_of(tmp_path, "a", "b") == RUN - 1


def first_of(directory: Path, *pair: str) -> int:
    """The offset of the first message that both had, which is among those that were taken."""
    overlap = overlap_of(taken(directory).notes)
    counts, firsts = told(everything(directory))
    assert overlap.counts == counts
    [place] = [place for (*groups, _), place in firsts.items() if groups == [*pair]]
    assert place in overlap.places
    return place[3]


def write_in_order(history: History, runs: dict[str, list[int]]) -> None:
    """To each group these runs, one group after the other."""
    for group, numbers in runs.items():
        consumer = history.consumer(group)
        consumer.write(opening(history, group, 0))
        for number in numbers:
            consumer.write(run_of(history, number, group=group)[1])
    history.end()


def write_groups(history: History, *groups: str, direct: int | None = None) -> None:
    """All runs to each group, and one of them to the first once more, as ``consumeMessageDirectly`` does."""
    broker = history.broker()
    for number in range(RUNS):
        broker.write(run_of(history, number)[0])
    for group in groups:
        consumer = history.consumer(group)
        consumer.write(opening(history, group, 0))
        for number in range(RUNS):
            for event in run_of(history, number, group=group)[1:]:
                consumer.write(event)
        if direct is not None and group == groups[0]:
            again = run_of(history, direct, group=group)[1]
            again.kind, again.delivery_ids = "direct", [1 << 40 | one for one in again.delivery_ids]
            consumer.write(again)
    history.end()
