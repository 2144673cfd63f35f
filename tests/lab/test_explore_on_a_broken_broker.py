"""``dejamq lab explore`` on a broker that is broken on purpose: real clusters, and a list of faults that gets short.

The judge is a quick one, which reads in the brokers' journals whether one place of a queue was given twice.
"""

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.base.config import BrokerConfig
from dejamq_lab.cluster.inproc import InProcessServer
from dejamq_lab.explore.hunt import HuntOptions, hunt
from dejamq_lab.explore.world import Unit, World, world
from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.text import Scenario, read
from dejamq_lab.scenario.stage.stages import Kind, fits
from dejamq_lab.scenario.trial import trial
from journalled import journalled

pytestmark = pytest.mark.timeout(300)
MOST_SEED, LOST_BYTES = 1000, 4096


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is stopped in good order leaves its log without its end: it loses what it had acknowledged."""
    sound = InProcessServer.end

    async def end(self: InProcessServer) -> None:
        was_running = self.running
        await sound(self)
        if was_running and isinstance(self._config, BrokerConfig):
            lose_the_end(Path(self._config.store_directory) / "commitlog")

    monkeypatch.setattr(InProcessServer, "end", end)


def lose_the_end(commit_log: Path) -> None:
    """Zeros instead of the last records: files are made longer than what is in them."""
    for path in commit_log.iterdir():
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            end = len(data[:].rstrip(b"\0"))
            begin = max(0, end - LOST_BYTES)
            data[begin:end] = bytes(end - begin)


@pytest.fixture
def quick_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the audit, which takes longer than the plays."""

    def audited(folders: Sequence[Path]) -> None:
        for folder in folders:
            (folder / trial.AUDITED).write_text("{}")

    def judged(scenario: Scenario, folder: Path, seconds: float) -> ScenarioOutcome:
        twice = given_twice(folder / "cluster" / "journal")
        said = [f"{twice} places of a queue were given twice"] if twice else []
        return ScenarioOutcome(scenario.id, not said, said, {}, [], seconds, str(folder))

    monkeypatch.setattr(trial, "_audit", audited)
    monkeypatch.setattr(trial, "judged", judged)


def given_twice(journals: Path) -> int:
    """How many places of ordinary queues two messages have had."""
    seen: dict[tuple[Any, ...], set[str]] = {}
    for event in journalled(journals, "APPEND", of="broker-*"):
        columns = (event["queue_index"], event["queue_offsets"], event["unique_keys"])
        for index, offset, key in zip(*columns, strict=True):
            place = (event["broker_name"], event["topics"][index], event["queue_ids"][index], offset)
            if place[1] == "orders":
                seen.setdefault(place, set()).add(key)
    return sum(len(keys) > 1 for keys in seen.values())


def stops_a_broker(unit: Unit) -> bool:
    """Whether one is stopped in good order."""
    return any(isinstance(step, steps.Terminate) and step.who.startswith("broker-") for step in unit)


def telling_world() -> tuple[int, World]:
    """The first world of a seed that fits into this process and stops a broker early, among other faults."""
    for seed in range(MOST_SEED):
        made = world(seed, 0)
        guilty = [number for number, unit in enumerate(made.units) if stops_a_broker(unit)]
        early = len(guilty) == 1 and guilty[0] < 2 and len(made.units) == 4 and not made.frame.cluster.slaves
        if early and made.frame.cluster.brokers == 1 and fits(made.scenario(), Kind.INPROC):
            return seed, made
    raise LookupError("no seed stops a broker in its first world")


def test_what_a_broken_broker_loses_is_found_and_reduced_to_its_fault_and_what_shows_it(
    tmp_path: Path, broken: None, quick_judge: None
) -> None:
    seed, made = telling_world()
    print(f"seed {seed}")
    options = HuntOptions(seed, 0, tmp_path / "runs", tmp_path / "found", jobs=3, kind=Kind.INPROC, at_once=1)
    (found,) = hunt(options, print).found
    kept = read(found.path)
    left = [unit for unit in made.units if all(step in kept.steps for step in unit)]
    assert found.path.read_text().startswith("# # places of a queue were given twice\n")
    assert any(map(stops_a_broker, left))
    assert len(left) <= 2 < len(made.units), "its fault, and at most one unit whose messages take the lost places"
