"""Samples of several rounds -> medians and ratios, with lowest and highest. Pure."""

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dejamq_lab.bench.client.worker import OWN
from dejamq_lab.bench.figures import FRAMES, Figure
from dejamq_lab.bench.rounds import Sample

GROUND = {
    "grpc_echo_p50_ms": "a bare gRPC echo (ms)",
    "grpc_stream_gb_per_second": "a bare gRPC stream (GB/s)",
    "memory_copy_gb_per_second": "a memory copy (GB/s)",
    "fdatasync_ms": "an fdatasync of 64 KiB (ms)",
    "python_step_ns": "a step of a bare Python loop (ns)",
}
"""Figures of the bare machine, and their names on a page."""


class Spread(msgspec.Struct, frozen=True):
    """A figure over several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


class SummaryRow(msgspec.Struct, frozen=True):
    """One figure. ``ratios``: side -> dejamq's value, over gRPC, through that side's, round by round; ``floors`` as
    well, to what the machine gave in the same run.
    """

    key: str
    title: str
    unit: str
    goal: str
    at_least: float | None
    at_most: float | None
    sides: dict[str, Spread]
    ratios: dict[str, Spread] = {}
    floors: dict[str, Spread] = {}
    cores_us: dict[str, dict[str, float]] = {}
    """Side of dejamq -> process -> µs of a core that a message cost it, median."""

    @property
    def peers(self) -> list[str]:
        """The sides that are not dejamq."""
        return [side for side in self.sides if side not in (OWN, FRAMES)]

    @classmethod
    def of(cls, figure: Figure, *found: Any) -> "SummaryRow":
        """Of a figure, with the fields from ``sides`` on."""
        told = (figure.key, figure.title, figure.unit, figure.goal, figure.at_least, figure.at_most)
        return cls(*told, *found)


class BenchReport(msgspec.Struct, frozen=True):
    """The output of ``make bench``."""

    date: str
    machine: dict[str, str]
    rounds: int
    rows: list[SummaryRow]
    skipped: dict[str, str]
    durability: dict[str, str]
    baseline: dict[str, Spread]
    journal: dict[str, Spread] = {}
    """sending or consuming -> what the journal at ``audit`` costs of the rate without it (%), round by round."""


def summarized(figures: Iterable[Figure], samples: Sequence[Sample]) -> list[SummaryRow]:
    """Rows of the figures that dejamq was measured for."""
    rows = []
    for figure in figures:
        mine = [sample for sample in samples if sample.figure == figure.key]
        by_side: dict[str, dict[int, Sample]] = {}
        for sample in mine:
            by_side.setdefault(sample.side, {})[sample.round] = sample
        if OWN not in by_side:
            continue
        own = by_side[OWN]
        sides = {side: Spread.of([each.value for each in of.values()]) for side, of in by_side.items()}
        ratios = {side: _ratio(own, of) for side, of in by_side.items() if side != OWN and own.keys() & of.keys()}
        cores = {side: _cores(by_side[side].values()) for side in (OWN, FRAMES) if side in by_side}
        rows.append(SummaryRow.of(figure, sides, ratios, _floors(own.values()), cores))
    return rows


def journal_costs(samples: Sequence[Sample]) -> dict[str, Spread]:
    """Of rounds that were measured with and without it, each on a broker of its own."""
    rates: dict[str, dict[int, float]] = {}
    for sample in samples:
        rates.setdefault(sample.figure, {})[sample.round] = sample.value
    costs = {}
    for key, word in (("send", "sending"), ("consume", "consuming")):
        on, off = rates.get(f"{key}_on", {}), rates.get(f"{key}_off", {})
        if found := [(1 - on[number] / off[number]) * 100 for number in sorted(on.keys() & off.keys())]:
            costs[word] = Spread.of(found)
    return costs


def _ratio(own: Mapping[int, Sample], other: Mapping[int, Sample]) -> Spread:
    return Spread.of([own[number].value / other[number].value for number in sorted(own.keys() & other.keys())])


def _floors(own: Iterable[Sample]) -> dict[str, Spread]:
    """The ratio to a bare gRPC echo of sends one at a time, and that to the floor of a sync flush."""
    found: dict[str, list[float]] = {}
    for sample in own:
        ground = sample.result.baseline
        if sample.result.settings.get("mode") == "single":
            found.setdefault("of a bare gRPC echo", []).append(sample.value / ground["grpc_echo_p50_ms"])
        if "sync_floor_per_second" in ground:
            floor = ground["sync_floor_per_second"]
            found.setdefault("of 64 / (fdatasync + round trip)", []).append(sample.value / floor)
    return {name: Spread.of(values) for name, values in found.items()}


def _cores(own: Iterable[Sample]) -> dict[str, float]:
    suffix = "_core_us_per_message"
    found: dict[str, list[float]] = {}
    for sample in own:
        for name, value in sample.result.baseline.items():
            if name.endswith(suffix):
                found.setdefault(name.removesuffix(suffix), []).append(value)
    return {process: statistics.median(values) for process, values in found.items()}


def baselines(samples: Sequence[Sample]) -> dict[str, Spread]:
    """Figures of the bare machine, over all measurements."""
    found = {name: [s.result.baseline[name] for s in samples if name in s.result.baseline] for name in GROUND}
    return {name: Spread.of(values) for name, values in found.items() if values}


def durabilities(samples: Sequence[Sample]) -> dict[str, str]:
    """The promise of an answer, for each peer."""
    about = [sample.result.settings for sample in samples]
    return {each["peer"]: each["durability"] for each in about if "peer" in each}


def machine(loads: Sequence[float]) -> dict[str, str]:
    """Facts that figures depend on, besides the program."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = f"{min(loads, default=0):.0f} to {max(loads, default=0):.0f}"
    return {
        "cores": str(os.cpu_count()), "processor": _processor(), "memory": f"{memory_gib:.0f} GiB",
        "system": _system(), "python": platform.python_version(), "load": load,
    }  # fmt: skip


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform(terse=True)
