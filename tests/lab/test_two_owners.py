"""Name servers and brokers that disagree: who owned which queue meanwhile, as the journals tell it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dejamq_lab.scenario.play import Play
from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.script.text import catalogue
from dejamq_lab.scenario.stage.process import ProcessStage
from journalled import Line, journalled

A, B = ([f"broker-{letter}:{number}" for number in range(3)] for letter in "ab")


def told(directory: Path) -> list[Line]:
    """What was journaled of the scenario's topic and group, and the faults, in the order of the clock."""
    return sorted(_lines(directory), key=lambda line: line["wall_us"])


def _lines(directory: Path) -> Iterator[Line]:
    for line in journalled(directory / "cluster" / "journal"):
        if line.get("topic", "orders") == "orders" and line.get("group", "g") == "g":
            yield line


def between_cut_and_heal(lines: list[Line]) -> list[Line]:
    return lines[faults(lines, "cut")[-1] : faults(lines, "heal")[0]]


def faults(lines: list[Line], kind: str) -> list[int]:
    """The numbers of these lines."""
    return [number for number, line in enumerate(lines) if line["event"] == "FAULT" and line["kind"] == kind]


def rounds(lines: list[Line], client: str) -> list[Line]:
    return [line for line in lines if line["event"] == "ASSIGN" and line["client_id"] == client]


def owned_twice(lines: list[Line]) -> set[str]:
    """Queues that a member kept in a round since the cut though another one had opened them.

    Before the cut a member may do so too, for a moment: it asked a broker that had not heard of the new one yet.
    """
    cut = faults(lines, "cut")[-1]
    held: dict[tuple[str, int], Line] = {}
    twice = set()
    for number, line in enumerate(lines):
        holder = (line["boot_id"], line.get("pq_id", 0))
        if line["event"] == "PQ_OPEN":
            held[holder] = line
        elif line["event"] == "PQ_DROP":
            held.pop(holder, None)
        elif line["event"] == "ASSIGN" and number > cut:
            twice |= _kept_from_others(line, list(held.values()))
    return twice


def _kept_from_others(turn: Line, held: list[Line]) -> set[str]:
    """Queues of this round that its member has already and that another one opened since."""
    own = {_queue(one): one for one in held if one["boot_id"] == turn["boot_id"]}
    others = [one for one in held if one["boot_id"] != turn["boot_id"]]
    return {
        _queue(one)
        for one in others
        if _queue(one) in turn["queues"] and _queue(one) in own and one["wall_us"] > own[_queue(one)]["wall_us"]
    }


def _queue(line: Line) -> str:
    return f"{line['broker_name']}:{line['queue_id']}"


@pytest.mark.timeout(600)
def test_with_name_servers_that_disagree_one_queue_has_two_owners_and_three_have_none(
    outcomes: dict[str, ScenarioOutcome],
) -> None:
    lines = told(Path(outcomes["R1"].directory))
    apart = between_cut_and_heal(lines)
    first, second = rounds(apart, "c1")[-1], rounds(apart, "c2")[-1]
    assert (first["members"], second["members"]) == (["c1", "c2"], ["c1", "c2"])
    assert (first["queues"], second["queues"]) == (A, A[2:])
    assert first["route_digest"] != second["route_digest"]
    assert owned_twice(lines) == {A[2]}

    routes = [line for line in apart if line["event"] == "ROUTE"]
    assert {line["process"] for line in routes if len(line["brokers"]) == 2} == {"namesrv-0"}
    healed = [rounds(lines, client)[-1] for client in ("c1", "c2")]
    assert (healed[0]["queues"], healed[1]["route_digest"]) == (A, first["route_digest"])


def test_a_hand_over_before_the_cut_is_nobodys_double_ownership() -> None:
    opened = {"event": "PQ_OPEN", "pq_id": 1, "broker_name": "b", "queue_id": 0}
    kept = {"event": "ASSIGN", "boot_id": "c1", "queues": ["b:0"]}
    cut = {"event": "FAULT", "boot_id": "lab", "kind": "cut"}
    both = [opened | {"boot_id": "c1", "wall_us": 1}, opened | {"boot_id": "c2", "wall_us": 2}]
    assert owned_twice([*both, kept, cut]) == set()
    assert owned_twice([*both, cut, kept]) == {"b:0"}


@pytest.mark.timeout(120)
async def test_with_only_the_master_cut_both_share_out_the_same_queues(tmp_path: Path) -> None:
    async with ProcessStage(catalogue()["R1-control"], tmp_path) as stage:
        await Play(stage, lambda text: None).run()
    lines = told(tmp_path)
    apart = between_cut_and_heal(lines)
    short = [line for line in apart if line["event"] == "ROUTE" and len(line["brokers"]) == 3]
    assert {line["process"] for line in short} == {"namesrv-0"}, "the master has left that route"
    digests = {turn["route_digest"] for client in ("c1", "c2") for turn in rounds(apart, client)}
    assert len(digests) == 1
    assert owned_twice(lines) == set()


@pytest.mark.timeout(600)
def test_a_member_that_one_broker_does_not_know_shares_its_queues_with_the_other(
    outcomes: dict[str, ScenarioOutcome],
) -> None:
    lines = told(Path(outcomes["R2"].directory))
    apart = between_cut_and_heal(lines)
    apart = apart[next(number for number, line in enumerate(apart) if line["event"] == "MEMBER") :]
    assert (apart[0]["broker_name"], apart[0]["client_id"], apart[0]["reason"]) == ("broker-b", "c1", "close")
    alone = [turn for turn in rounds(apart, "c2") if turn["broker_name"] == "broker-b"]
    assert {(*turn["members"],) for turn in alone} == {("c2",)}
    assert all(turn["queues"] == [*A, *B] for turn in alone)
    together = [turn for turn in rounds(apart, "c2") if turn["broker_name"] == "broker-a"]
    assert all((turn["members"], turn["queues"]) == (["c1", "c2"], B) for turn in together)
    assert {(turn["broker_name"], *turn["queues"]) for turn in rounds(apart, "c1")} == {("broker-a", *A)}
    assert owned_twice(lines) == set(A)
