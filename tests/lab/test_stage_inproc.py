"""Scenarios inside this process: a kill leaves there what it leaves of a process, and it strikes one part only."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from dejamq_lab.cluster import inproc
from dejamq_lab.cluster.inproc import InProcessServer
from dejamq_lab.duplicates import find_duplicates
from dejamq_lab.errors import ClusterFailed, NotSupported
from dejamq_lab.scenario.run import play
from dejamq_lab.scenario.script.ledger import EffectLedger
from dejamq_lab.scenario.script.seeds import varied
from dejamq_lab.scenario.script.text import Scenario, catalogue
from dejamq_lab.scenario.stage.inproc import InProcessStage
from dejamq_lab.scenario.stage.stages import Kind
from dejamq_proto import failpoints
from journalled import journalled

SCENARIOS = catalogue()
SEED = 3
Line = dict[str, Any]


class Left:
    """What a play left behind."""

    def __init__(self, directory: Path) -> None:
        self._journals, self._ledger = directory / "cluster" / "journal", directory / "ledger.sqlite"

    def lines(self, role: str) -> list[Line]:
        """Those of all processes of this role, each in its order."""
        return journalled(self._journals, of=f"{role}-*")

    def ended(self, role: str) -> dict[str, bool]:
        """Whether each of them said that it closed, by boot id."""
        lines = self.lines(role)
        closed = {line["boot_id"] for line in lines if line.get("state") == "closed"}
        return {line["boot_id"]: line["boot_id"] in closed for line in lines}

    def duplicates(self) -> set[str]:
        return {f"{each.second.boot_id}-{each.second.delivery_id}" for each in find_duplicates(self._journals, "g")}

    def doubles(self) -> set[str]:
        ledger = EffectLedger(self._ledger)
        try:
            return ledger.doubles()
        finally:
            ledger.close()


async def played(scenario: Scenario, directory: Path) -> Left:
    """Sends have time, so that a machine that is busy with something else fails none."""
    print(f"seed {SEED}")
    patient = msgspec.structs.replace(scenario, settings={"send_msg_timeout_ms": 60_000, **scenario.settings})
    await play(varied(patient, SEED), directory, print, Kind.INPROC)
    assert not failpoints.ARMED, "the next test has no failpoints"
    return Left(directory)


def with_steps(base: str, *every: Line, **changed: Any) -> Scenario:
    """A scenario of the catalogue with other steps."""
    bare = msgspec.to_builtins(SCENARIOS[base]) | {"steps": list(every)} | changed
    return msgspec.convert(bare, Scenario)


async def test_nobody_gets_a_message_twice_in_a_healthy_cluster(tmp_path: Path) -> None:
    left = await played(SCENARIOS["healthy"], tmp_path)
    assert left.duplicates() == left.doubles() == set()
    assert all(left.ended("consumer").values())
    assert all(left.ended("broker").values())


async def test_a_killed_consumer_ends_without_a_word_and_its_successor_repeats_what_it_did(tmp_path: Path) -> None:
    left = await played(SCENARIOS["O1"], tmp_path)
    assert left.duplicates() == left.doubles() != set()
    assert sorted(left.ended("consumer").values()) == [False, True]
    assert all(left.ended("broker").values())
    faults = [line for line in left.lines("harness") if line["event"] == "FAULT"]
    assert [line["kind"] for line in faults] == ["kill", "kill"]
    struck = {line["process"] for line in left.lines("consumer") if f"@{faults[0]['target_pid']}#" in line["process"]}
    assert len(struck) == 1, "the audit finds by the process id who was struck"


async def test_a_killed_broker_comes_back_with_the_store_and_without_the_offsets_of_its_end(tmp_path: Path) -> None:
    left = await played(SCENARIOS["O3"], tmp_path)
    assert sorted(left.ended("broker").values()) == [False, True]
    boots = [line for line in left.lines("broker") if line["event"] == "BOOT"]
    assert sorted((line["clean"], line.get("log_max", 0) > 0) for line in boots) == [(False, True), (True, False)]
    assert len(left.duplicates()) == len(left.doubles()) == 100


async def test_a_failpoint_that_kills_ends_the_part_that_reached_it_and_no_other(tmp_path: Path) -> None:
    scenario = with_steps(
        "O1",
        {"do": "start", "who": "c1"},
        {"do": "start", "who": "p"},
        {"do": "failpoint", "who": "c1", "name": "consumer.rebalance", "terms": "kill"},
        {"do": "start", "who": "c2"},
        {"do": "owns", "who": "c2", "queues": 4},
        {"do": "send", "who": "p", "count": 20},
        {"do": "handled", "who": "c2", "count": 20},
        {"do": "close", "who": "c2"},
        {"do": "close", "who": "p"},
    )
    left = await played(scenario, tmp_path)
    assert sorted(left.ended("consumer").values()) == [False, True]
    assert all(left.ended("broker").values()) and all(left.ended("producer").values())  # noqa: PT018


def jumped(**settings: str) -> Scenario:
    """A broker's clock jumps by more than the silence that expires a member; no heartbeat comes in between."""
    return with_steps(
        "O1",
        {"do": "start", "who": "c1"},
        {"do": "clock", "who": "broker-a", "ms": 130_000},
        {"do": "sleep", "ms": 25_000},
        {"do": "close", "who": "c1"},
        settings={"heartbeat_broker_interval_ms": 100_000, **settings},
    )


async def test_the_clock_of_one_part_jumps_and_its_members_expire(tmp_path: Path) -> None:
    left = await played(jumped(), tmp_path)
    jumps = [line["jumped_ms"] for line in left.lines("broker") if line["event"] == "CLOCK"]
    assert jumps == [pytest.approx(130_000 * 0.05, abs=500)]
    assert not any(line["event"] == "CLOCK" for role in ("consumer", "namesrv") for line in left.lines(role))
    gone = [line["reason"] for line in left.lines("broker") if line["event"] == "MEMBER" and line["change"] == "-"]
    assert "expire" in gone


async def test_monotonic_ages_keep_members_whose_broker_has_a_clock_that_jumps(tmp_path: Path) -> None:
    left = await played(jumped(age_clock="monotonic"), tmp_path)
    assert any(line["event"] == "CLOCK" for line in left.lines("broker"))
    gone = [line["reason"] for line in left.lines("broker") if line["event"] == "MEMBER" and line["change"] == "-"]
    assert gone == ["unregister"]


async def test_a_consumer_that_was_killed_can_be_started_again_under_its_name(tmp_path: Path) -> None:
    steps: list[Line] = [
        {"do": "start", "who": "c1"}, {"do": "start", "who": "p"}, {"do": "kill", "who": "c1"},
        {"do": "send", "who": "p", "count": 5}, {"do": "start", "who": "c1"},
        {"do": "handled", "count": 5, "who": "c1"}, {"do": "close", "who": "c1"}, {"do": "close", "who": "p"},
    ]  # fmt: skip
    left = await played(with_steps("healthy", *steps), tmp_path)
    assert list(left.ended("consumer").values()).count(False) == 1


@pytest.mark.parametrize(("outcome", "fails"), [("SEND_OK", False), ("FLUSH_DISK_TIMEOUT", True)])
async def test_a_send_must_end_with_the_status_that_its_step_names(tmp_path: Path, outcome: str, fails: bool) -> None:
    sends: list[Line] = [
        {"do": "send", "who": "p", "count": 3, "outcome": outcome, "batch": batch} for batch in (False, True)
    ]
    steps = [{"do": "start", "who": "p"}, *sends, {"do": "close", "who": "p"}]
    scenario = with_steps("healthy", *steps)
    if not fails:
        await played(scenario, tmp_path)
        return
    with pytest.raises(ClusterFailed, match="3 of 3 sends failed to end with FLUSH_DISK_TIMEOUT"):
        await played(scenario, tmp_path)


@pytest.mark.parametrize(("step", "said"), [
    ({"do": "pause", "who": "c1"}, "freezes a process"),
    ({"do": "failpoint", "who": "c1", "name": "consumer.rebalance", "terms": "1*stop->off"}, "freezes a process"),
])  # fmt: skip
async def test_what_needs_a_process_is_refused_before_anything_starts(tmp_path: Path, step: Line, said: str) -> None:
    with pytest.raises(NotSupported, match=said):
        await played(with_steps("O1", step), tmp_path)


def test_a_store_is_copied_again_when_one_of_its_files_was_renamed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = tmp_path / "store", subprocess.run
    store.mkdir()
    (store / "abort").write_text("1")
    ends = iter([1])

    def interrupted(*arguments: Any, **more: Any) -> "subprocess.CompletedProcess[bytes]":
        done = run(*arguments, **more)
        done.returncode = next(ends, done.returncode)
        return done

    monkeypatch.setattr(subprocess, "run", interrupted)
    kept = inproc._copied(store)
    assert [path.relative_to(kept).name for path in kept.iterdir()] == ["abort"]


async def test_an_actor_that_cannot_be_closed_leaves_no_server_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = InProcessStage(SCENARIOS["healthy"], tmp_path)
    await stage.start()
    servers = [cast(InProcessServer, stage.cluster.server(name)) for name in ("namesrv-0", "broker-a")]

    async def refuse() -> None:
        raise ClusterFailed("its client is gone")

    monkeypatch.setattr(next(iter(stage.actors.values())), "end", refuse)
    with pytest.raises(ClusterFailed, match="its client is gone"):
        await stage.close()
    assert not any(server.running for server in servers)


async def test_a_close_that_is_cancelled_leaves_no_server_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = InProcessStage(SCENARIOS["healthy"], tmp_path)
    await stage.start()
    servers = [cast(InProcessServer, stage.cluster.server(name)) for name in ("namesrv-0", "broker-a")]
    closing = asyncio.create_task(stage.close())

    async def end_and_be_cancelled(end: Callable[[], Awaitable[None]]) -> None:
        closing.cancel()
        await end()

    monkeypatch.setattr(servers[1], "end", partial(end_and_be_cancelled, servers[1].end))
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not servers[0].running
