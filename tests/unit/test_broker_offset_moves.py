"""Where operators send a group: what is planned, what is moved, and what clients' commits do meanwhile."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_parts import Parts, clock_ms, parts_in
from broker_tables import offset_table
from dejamq_broker.operators.offset_moves import Move, MoveTarget, OffsetMoves, To
from dejamq_broker.paths.rules import PullQuery
from dejamq_broker.tables.offsets import Asker, Position
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.writer import Journal, Level
from journalled import journalled

OPERATOR = Asker("admin", "boot-a", 1)
MEMBER = Asker("c1", "boot-c", 1)


class Ends:
    """Two queues that hold offsets 10 to 20; a message every 100 ms since time 0."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 10

    def max_offset(self, topic: str, queue_id: int) -> int:
        return 20

    def search_offset(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        return max(10, min(20, -(-timestamp_ms // 100)))


class Moved:
    def __init__(self, parts: Parts) -> None:
        self.parts, self.woken = parts, list[tuple[str, int]]()
        self.moves = OffsetMoves(Ends(), parts.topics, parts.groups, parts.offsets, self.woken.extend, lambda: None)
        parts.topics.ensure("orders", 2)
        parts.groups.require("g")

    def at(self, queue_id: int) -> Position:
        return Position("g", "orders", queue_id)

    def reset(self, target: MoveTarget, **more: Any) -> list[Move]:
        return self.moves.reset("g", "orders", target, **({"asker": OPERATOR} | more))

    def committed(self) -> list[int]:
        return [value for _, _, value in self.parts.offsets.of_group("g")]


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[Moved]:
    with parts_in(tmp_path) as parts:
        yield Moved(parts)


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (MoveTarget(To.BEGIN), 10),
        (MoveTarget(To.END), 20),
        (MoveTarget(To.OFFSET, 15), 15),
        (MoveTarget(To.OFFSET, 3), 10),
        (MoveTarget(To.OFFSET, 99), 20),
        (MoveTarget(To.TIME, 1450), 15),
        (MoveTarget(To.TIME, 0), 10),
        (MoveTarget(To.TIME, -1), 20),
    ],
)
def test_a_group_without_progress_goes_wherever_it_is_sent(moved: Moved, target: MoveTarget, after: int) -> None:
    assert [(one.before, one.after) for one in moved.reset(target)] == [(None, after)] * 2
    assert moved.committed() == [after, after]
    assert moved.woken == [("orders", 0), ("orders", 1)]


@pytest.mark.parametrize(
    ("force", "committed", "after"), [(False, 12, 12), (True, 12, 15), (False, 18, 15), (True, 18, 15), (False, 15, 15)]
)
def test_to_a_time_a_group_goes_back_and_forward_only_by_force(
    moved: Moved, force: bool, committed: int, after: int
) -> None:
    moved.parts.offsets.commit(moved.at(0), committed, by="sync")
    (move,) = moved.reset(MoveTarget(To.TIME, 1450, force), queue_ids=[0])
    assert (move.before, move.after) == (committed, after)
    assert move.stays == (after == committed != 15)
    assert moved.committed() == [after]
    assert ("stays" in move.reason) == move.stays


def test_a_plan_changes_nothing(moved: Moved) -> None:
    moved.parts.offsets.commit(moved.at(0), 12, by="sync")
    planned = moved.reset(MoveTarget(To.END), asker=None)
    assert moved.committed() == [12]
    assert moved.woken == []
    assert moved.reset(MoveTarget(To.END)) == planned


@pytest.mark.parametrize(
    ("group", "topic", "target", "queue_ids", "code"),
    [
        ("g", "nowhere", MoveTarget(To.END), [], Code.TOPIC_NOT_EXIST),
        ("nobody", "orders", MoveTarget(To.END), [], Code.SUBSCRIPTION_GROUP_NOT_EXIST),
        ("g", "orders", MoveTarget(To.END), [2], Code.INVALID_PARAMETER),
        ("g", "orders", MoveTarget(To.END), [-1], Code.INVALID_PARAMETER),
        ("g", "orders", MoveTarget(To.OFFSET, -1), [], Code.INVALID_PARAMETER),
    ],
)
def test_what_cannot_be_is_refused(
    moved: Moved, group: str, topic: str, target: MoveTarget, queue_ids: list[int], code: Code
) -> None:
    with pytest.raises(DejamqError) as caught:
        moved.moves.reset(group, topic, target, queue_ids=queue_ids, asker=OPERATOR)
    assert caught.value.code is code
    assert moved.committed() == []


def test_clone_takes_what_the_source_has_and_leaves_the_rest(moved: Moved) -> None:
    offsets = moved.parts.offsets
    moved.parts.groups.require("source")
    offsets.commit(Position("source", "orders", 1), 17, by="sync")
    offsets.commit(moved.at(0), 11, by="sync")
    (move,) = moved.moves.clone("source", "g", "orders", OPERATOR)
    assert (move.at, move.before, move.after) == (moved.at(1), None, 17)
    assert moved.committed() == [11, 17]
    assert moved.woken == [("orders", 1)]


def test_until_somebody_pulls_commits_are_ignored_and_queries_answer_the_reset(moved: Moved) -> None:
    offsets, at = moved.parts.offsets, moved.at(0)
    offsets.commit(at, 18, by="sync", asker=MEMBER)
    moved.reset(MoveTarget(To.BEGIN), queue_ids=[0])
    for by in ("oneway", "sync", "piggyback", "release"):
        offsets.commit(at, 19, by=by, asker=MEMBER)
    assert offsets.get(at) == 10
    assert offsets.query(at, None, MEMBER) == 10  # type: ignore[arg-type]  # a reset asks no queue
    assert offsets.take_reset(at) == 10
    assert offsets.take_reset(at) is None
    offsets.commit(at, 12, by="oneway", asker=MEMBER)
    assert offsets.get(at) == 12
    told = [(line["event"], line["by"], line.get("why")) for line in ignored_and_set(moved)]
    assert told == [
        ("OFF_SET", "sync", None), ("OFF_SET", "reset", None), *[
            ("OFF_IGNORED", by, "reset") for by in ("oneway", "sync", "piggyback", "release")
        ], ("OFF_SET", "oneway", None),
    ]  # fmt: skip


def ignored_and_set(moved: Moved) -> list[dict[str, Any]]:
    lines = journalled(moved.parts.directory / "j.jsonl")
    return [line for line in lines if line["event"] in ("OFF_SET", "OFF_IGNORED")]


def test_without_server_side_resets_the_offset_moves_and_members_that_are_online_may_commit_over_it(
    moved: Moved,
) -> None:
    moved.parts.offsets.serve_resets = False
    moved.reset(MoveTarget(To.BEGIN), queue_ids=[0])
    assert moved.parts.offsets.take_reset(moved.at(0)) is None
    moved.parts.offsets.commit(moved.at(0), 19, by="oneway", asker=MEMBER)
    assert moved.committed() == [19]


def test_the_next_pull_is_sent_to_the_reset_once_and_takes_no_commit_along(moved: Moved) -> None:
    parts = moved.parts
    parts.send("orders", *[b"%d" % number for number in range(6)])
    parts.settle()
    parts.offsets.commit(moved.at(0), 5, by="sync", asker=MEMBER)
    real = OffsetMoves(parts.store, parts.topics, parts.groups, parts.offsets, lambda queues: None, lambda: None)
    real.reset("g", "orders", MoveTarget(To.OFFSET, 2), asker=OPERATOR, queue_ids=[0])
    pull = PullQuery(asker=MEMBER, group="g", topic="orders", queue_id=0, queue_offset=6, commit_offset=6, suspend_ms=9)
    parts.puller.begin(pull, 0, None)
    answer = parts.puller.look(pull, first=True, last=False)
    assert answer is not None
    assert (answer.code, answer.next_offset, answer.remark) == (Code.PULL_OFFSET_MOVED, 2, "OFFSET_RESET")
    assert (answer.min_offset, answer.max_offset, len(answer.sizes)) == (0, 6, 0)
    assert parts.offsets.get(moved.at(0)) == 2
    assert parts.puller.look(pull, first=False, last=False) is None
    assert [line["code"] for line in parts.events("PULL")] == [21]
    again = PullQuery(asker=MEMBER, group="g", topic="orders", queue_id=0, queue_offset=2)
    parts.puller.begin(again, 0, None)
    found = parts.puller.look(again, first=True, last=True)
    assert found is not None
    assert len(found.sizes) == 4
    assert parts.offsets.pulled(moved.at(0)) == 6


def test_another_groups_pull_is_not_sent_anywhere(moved: Moved) -> None:
    moved.reset(MoveTarget(To.BEGIN))
    pull = PullQuery(asker=MEMBER, group="other", topic="orders", queue_id=0, queue_offset=0, suspend_ms=9)
    moved.parts.puller.begin(pull, 0, None)
    assert moved.parts.puller.look(pull, first=True, last=False) is None
    assert moved.parts.offsets.take_reset(moved.at(0)) == 10


def test_a_broker_that_refuses_lower_offsets_keeps_what_its_queue_has(tmp_path: Path) -> None:
    lines = Journal(tmp_path / "j.jsonl", role="broker", process="b", boot_id="x", level=Level.FORENSIC)
    table = offset_table(tmp_path / "o.json", lines, clock_ms, refuse_lower=True, queue_end=lambda *at: 20)
    at = Position("g", "orders", 0)
    table.commit(at, 15, by="sync", asker=MEMBER)
    with pytest.raises(DejamqError, match="refuse_lower_offsets") as refused:
        table.commit(at, 14, by="sync", asker=MEMBER)
    assert refused.value.code is Code.INVALID_PARAMETER
    for by in ("oneway", "piggyback", "release"):
        table.commit(at, 14, by=by, asker=MEMBER)
    assert table.get(at) == 15
    told = journalled(tmp_path / "j.jsonl")[1:]
    assert {(line["event"], line["old"], line["value"], line["why"]) for line in told} == {
        ("OFF_IGNORED", 15, 14, "lower")
    }
    table.move(at, 3, by="reset")
    table.take_reset(at)
    assert table.get(at) == 3, "an operator may"
    table.commit(at, 25, by="sync")
    table.commit(at, 18, by="sync")
    assert table.get(at) == 18, "25 was nothing that the queue has"


async def test_a_topic_or_group_that_ends_takes_its_offsets_along_also_on_disk(tmp_path: Path) -> None:
    lines = Journal(tmp_path / "j.jsonl", role="broker", process="b", boot_id="x", level=Level.FORENSIC)
    table = offset_table(tmp_path / "o.json", lines, clock_ms)
    for group, topic in (("g", "a"), ("g", "b"), ("h", "a")):
        table.commit(Position(group, topic, 0), 5, by="sync")
        table.note_pulled(Position(group, topic, 0), 6)
    table.move(Position("g", "a", 0), 1, by="reset")
    assert table.forget(topic="a") == 2
    assert (list(table.of_group("g")), list(table.of_group("h"))) == ([("b", 0, 5)], [])
    assert table.take_reset(Position("g", "a", 0)) is None
    assert table.pulled(Position("h", "a", 0)) is None
    assert table.forget(group="g") == 1
    await table.flush()
    assert json.loads((tmp_path / "o.json").read_text())["offsetTable"] == {}
    gone = journalled(tmp_path / "j.jsonl")
    assert [(line["topic"], line["old"], line["new"]) for line in gone if line.get("by") == "delete"] == [
        ("a", 1, -1), ("a", 5, -1), ("b", 5, -1),
    ]  # fmt: skip


@pytest.mark.parametrize(("wanted", "answer"), [(True, 0), (False, None)])
def test_a_client_may_ask_not_to_be_sent_to_0_in_a_young_queue(
    tmp_path: Path, wanted: bool, answer: int | None
) -> None:
    class Young:
        def min_offset(self, topic: str, queue_id: int) -> int:
            return 0

        def entry_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
            return True

    lines = Journal(None, role="broker", process="b", boot_id="x", level=Level.OFF)
    table = offset_table(tmp_path / "o.json", lines, clock_ms)
    at = Position("g", "t", 0)
    if answer is not None:
        assert table.query(at, Young(), zero_if_young=wanted) == answer
        return
    with pytest.raises(DejamqError) as caught:
        table.query(at, Young(), zero_if_young=wanted)
    assert caught.value.code is Code.QUERY_NOT_FOUND
