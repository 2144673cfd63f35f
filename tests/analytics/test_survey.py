"""Large journals are read twice and only a part of them is audited: what is left out is in no finding."""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from journals import History
from plain_runs import RUN, RUNS, write_runs
from surveyed import Line, everything, taken


def each(line: Line) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Key and place of every message that a line of DELIVER or APPEND names."""
    for number, key in enumerate(line["unique_keys"]):
        if line["event"] == "APPEND":
            at = line["queue_index"][number]
            queue = line["topics"][at], line["queue_ids"][at]
        else:
            queue = line["topic"], line["queue_id"]
        place = (line["broker_name"], *queue, line["queue_offsets"][number], line["log_offsets"][number])
        yield key or str(place), place


def told_of(lines: list[Line]) -> dict[str, Counter[Any]]:
    """How often each key was sent, stored at a place, and delivered to a group at a place."""
    found = defaultdict[str, Counter[Any]](Counter)
    for line in lines:
        if line["event"] == "SEND_TRY":
            for key in line["unique_keys"]:
                found[key]["sent"] += 1
        elif line["event"] in ("APPEND", "DELIVER"):
            for key, place in each(line):
                found[key][line.get("group", "") if line["event"] == "DELIVER" else "stored", place] += 1
    return found


def is_plain(told: Counter[Any]) -> bool:
    """Once each, and at one place."""
    places = {place for what, place in (one for one in told if one != "sent")}
    groups = [what for what, _ in (one for one in told if one != "sent")]
    return len(places) < 2 and len(set(groups)) == len(groups) and max(told.values()) == 1


def test_of_all_stories_only_messages_that_came_once_are_left_out(stories: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(stories, tmp_path / "journals"))
    write_runs(History(directory, "plain-runs"), again=3)
    every, some = everything(directory), taken(directory)
    whole, part = told_of(every), told_of(some.lines)
    left_out = {key for key in whole if whole[key] != part[key]}
    assert len([key for key in left_out if key.startswith("plain-runs-")]) == RUNS * RUN - RUN
    assert [key for key in left_out if not is_plain(whole[key])] == []
    # a message that was stored is left out together with its deliveries: else it would look unseen
    halved = [key for key in left_out if any("stored" in one for one in part[key]) and part[key] != whole[key]]
    assert halved == []
    rare = {"DELIVER", "RESULT", "APPEND", "SEND_TRY", "SEND_RESULT", "SEND_END", "PULL", "HANDOUT", "PERSIST",
            "OFF_SET"}  # fmt: skip
    kept = {(line["boot_id"], line["seq"]) for line in some.lines if line["event"] != "SEEN"}
    assert [line for line in every if line["event"] not in rare and (line["boot_id"], line["seq"]) not in kept] == []


def delivered(lines: list[Line]) -> Counter[int]:
    """How often each run of 64 is among the lines."""
    return Counter(line["queue_offsets"][0] // RUN for line in lines if line["event"] == "DELIVER")


def test_messages_that_came_once_are_counted_and_not_taken(tmp_path: Path) -> None:
    write_runs(History(tmp_path, "plain"))
    found = taken(tmp_path)
    assert not delivered(found.lines)
    assert found.messages == RUNS * RUN
    assert sum(note.counts.get("plain", 0) for note in found.notes) == RUNS * RUN


def test_so_are_they_where_no_broker_kept_a_journal(tmp_path: Path) -> None:
    write_runs(History(tmp_path, "plain"), brokers=False)
    found = taken(tmp_path)
    assert not delivered(found.lines)
    assert found.messages == RUNS * RUN


def test_a_run_that_came_twice_is_taken_with_its_results_and_its_records(tmp_path: Path) -> None:
    write_runs(History(tmp_path, "plain"), again=3)
    lines = taken(tmp_path).lines
    assert delivered(lines) == {3: 2}
    stored = [line["queue_offsets"] for line in lines if line["event"] == "APPEND"]
    assert stored == [list(range(3 * RUN, 4 * RUN))]
    done = {line["queue_offsets"][0] // RUN for line in lines if line["event"] == "RESULT"}
    assert done == {3, RUNS - 1}  # the last one has the highest low-water mark


def test_where_something_is_unseen_its_block_of_the_queue_is_taken(tmp_path: Path) -> None:
    write_runs(History(tmp_path, "plain"), unseen=7)
    lines = taken(tmp_path).lines
    assert set(delivered(lines)) == set(range(RUNS)) - {7}
    stored = {line["queue_offsets"][0] // RUN for line in lines if line["event"] == "APPEND"}
    assert stored == set(range(RUNS))
