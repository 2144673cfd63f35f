"""Open values of a scenario, settled by a seed: the same seed gives the same scenario, another seed another one.

The result is a scenario like any other, so it can be shown, kept and played again. A scenario leaves open:

- the addresses in client ids, and with them the order of members and the unique keys;
- sizes of bodies, lengths of sleeps, and the time between a step and a fault;
- the order in which clients are closed that have nothing in common.
"""

import random
from collections.abc import Iterator, Sequence

import msgspec

from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.steps import Step
from dejamq_lab.scenario.script.text import Actor, Scenario

AS_WRITTEN = 0
STRIKES = (
    steps.Kill,
    steps.Pause,
    steps.Terminate,
    steps.CutStep,
    steps.ClockStep,
    steps.FailpointStep,
    steps.DamageStep,
    steps.Restart,
    steps.DiskStep,
    steps.Isolate,
)
MOST_PAUSE_MS = 20.0
"""Before a strike, in real time: what a busy machine does to it anyway."""
SLEEPS_LONGER = 0.1
MOST_BYTES = 1024
OWN_NAMES = frozenset({"client_id", "clientId", "client_ip", "clientIP"})


def varied(scenario: Scenario, seed: int) -> Scenario:
    """The scenario of this seed; of seed 0 the scenario as it is written. Pure."""
    if seed == AS_WRITTEN:
        return scenario
    dice = random.Random(f"{scenario.id}-{seed}")
    named = any(getattr(step, "queue", "") or "queue" in getattr(step, "arguments", ()) for step in scenario.steps)
    actors = {name: actor if named else _elsewhere(actor, dice) for name, actor in scenario.actors.items()}
    loose = [_loosened(step, dice) for step in _paused(scenario, dice)]
    return msgspec.structs.replace(scenario, actors=actors, steps=list(_shuffled(loose, scenario, dice)))


def _elsewhere(actor: Actor, dice: random.Random) -> Actor:
    """At another address. A scenario that speaks of certain queues relies on who gets them, and keeps its addresses."""
    address = f"10.{dice.randrange(256)}.{dice.randrange(256)}.{dice.randrange(1, 255)}"
    if not OWN_NAMES.isdisjoint(actor.settings):
        return actor
    return msgspec.structs.replace(actor, settings={**actor.settings, "client_ip": address})


def _paused(scenario: Scenario, dice: random.Random) -> Iterator[Step]:
    for step in scenario.steps:
        if isinstance(step, STRIKES):
            yield steps.Sleep(ms=dice.uniform(0, MOST_PAUSE_MS) / scenario.cluster.time_scale)
        yield step


def _loosened(step: Step, dice: random.Random) -> Step:
    if isinstance(step, steps.Send):
        return msgspec.structs.replace(step, pad=dice.randrange(MOST_BYTES))
    if isinstance(step, steps.Sleep):
        return msgspec.structs.replace(step, ms=round(step.ms * (1 + dice.uniform(0, SLEEPS_LONGER)), 1))
    return step


def _shuffled(every: Sequence[Step], scenario: Scenario, dice: random.Random) -> Iterator[Step]:
    """Clients that are closed one after the other, in any order, unless two of them share a group."""
    row: list[steps.Close] = []
    for step in (*every, None):
        if isinstance(step, steps.Close):
            row.append(step)
            continue
        groups = [scenario.actors[close.who].group for close in row if close.who in scenario.actors]
        if len(set(groups)) == len(row):
            dice.shuffle(row)
        yield from row
        row = []
        if step is not None:
            yield step
