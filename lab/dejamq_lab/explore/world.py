"""What a seed makes up: a cluster, clients, and units of traffic and faults. Pure: the same seed, the same world.

A unit ends what it began: what it killed runs again, what it cut is healed. So any of them can be left out, and what is
left can still be played to its end.
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from dejamq_lab.scenario import steps
from dejamq_lab.scenario.steps import Step
from dejamq_lab.scenario.text import ANY, Actor, Expected, Handling, Scenario, Shape

GROUP, PRODUCER = "g", "p"
FEWEST_UNITS, MOST_UNITS = 3, 6
LOST_CALLS = ("UpdateOffset", "QueryOffset", "ConsumerList", "LockBatch", "Unregister")
"""Unary calls of brokers whose request or answer may be lost."""
NEVER = ("unseen",)
NEVER_IN_ORDER = ("out_of_order",)
Unit = tuple[Step, ...]


class World(NamedTuple):
    """``frame`` is the scenario without steps."""

    frame: Scenario
    opening: Unit
    units: tuple[Unit, ...]
    closing: Unit

    def scenario(self, units: Sequence[Unit] | None = None) -> Scenario:
        """Everything, or only with these units."""
        chosen = self.units if units is None else units
        every = [step for unit in (self.opening, *chosen, self.closing) for step in unit]
        return msgspec.structs.replace(self.frame, steps=every)


def world(seed: int, number: int) -> World:
    """The ``number``-th one of this seed."""
    dice = random.Random(f"{seed}-{number}")
    shape = Shape(
        brokers=dice.choice((1, 1, 2)), namesrvs=dice.choice((1, 2)), queues=dice.choice((2, 4)),
        links=dice.random() < 0.5,
    )  # fmt: skip
    in_order = dice.random() < 0.3
    consumers = [f"c{number}" for number in range(1, dice.choice((1, 2, 2)) + 1)]
    actors = {PRODUCER: Actor(kind="producer", group=PRODUCER)}
    actors |= {name: _consumer(dice, in_order) for name in consumers}
    frame = Scenario(
        id=f"explored-{seed}-{number}", title="made up by a seed",
        happens=f"What seed {seed} made up as number {number}: nothing may be lost, and every duplicate has its cause.",
        source="dejamq lab explore", needs=("process",), cluster=shape, actors=actors, steps=[],
        expect=Expected(also=(ANY,), never=NEVER + NEVER_IN_ORDER * in_order),
    )  # fmt: skip
    makers = _makers(dice, shape, consumers)
    units = [_struck(dice, dice.choice(makers)()) for _ in range(dice.randint(FEWEST_UNITS, MOST_UNITS))]
    names = [PRODUCER, *consumers]
    opening = tuple(steps.Start(who=name) for name in reversed(names))
    closing: Unit = (steps.Committed(group=GROUP), *(steps.Close(who=name) for name in reversed(names)))
    return World(frame, opening, tuple(units), closing)


def _consumer(dice: random.Random, in_order: bool) -> Actor:
    handler = Handling(work_ms=dice.choice((0, 0, 5, 30)))
    settings = {"consume_from": "FIRST_OFFSET"} | ({"ordered": True} if in_order else {})
    return Actor(kind="push", group=GROUP, settings=settings, handler=handler)


def _struck(dice: random.Random, fault: Unit) -> Unit:
    """Traffic before the fault, and most often during it."""
    count, during = dice.randint(5, 60), dice.random() < 0.7
    rate = dice.choice((20, 50, 100)) if during else 0
    send = steps.Send(who=PRODUCER, count=count, rate=rate, outcome="any", wait=not during)
    return (send, *fault, steps.Sent(who=PRODUCER)) if during else (send, *fault)


def _makers(dice: random.Random, shape: Shape, consumers: Sequence[str]) -> list[Callable[[], Unit]]:
    """Each makes one fault and its end. Consumers are struck as often as brokers."""
    brokers = [f"broker-{letter}" for letter in "ab"[: shape.brokers]]
    namesrvs = [f"namesrv-{number}" for number in range(shape.namesrvs)]

    def pause() -> steps.Sleep:
        return steps.Sleep(ms=dice.choice((2_000, 10_000, 40_000, 150_000)))

    def consumer_ends() -> Unit:
        who, end = dice.choice(consumers), dice.choice((steps.Kill, steps.Terminate, steps.Close))
        return (end(who=who), steps.Start(who=who))

    def frozen() -> Unit:
        who = dice.choice([*consumers, *brokers])
        return (steps.Pause(who=who), pause(), steps.Resume(who=who))

    def server_ends() -> Unit:
        who, end = dice.choice([*brokers, *brokers, *namesrvs]), dice.choice((steps.Kill, steps.Terminate))
        return (end(who=who), pause(), steps.Restart(who=who))

    def calls_lost() -> Unit:
        who, times = dice.choice(brokers), dice.randint(1, 3)
        name = f"rpc.{dice.choice(LOST_CALLS)}.{dice.choice(('request', 'answer'))}"
        armed = steps.Failpoint(who=who, name=name, terms=f"{times}*drop->off")
        return (armed, pause(), steps.Failpoint(who=who, name=name, terms="off"))

    def cut() -> Unit:
        far = dice.choice([*brokers, *(namesrvs if len(namesrvs) > 1 else [])])
        near = dice.choice([PRODUCER, *consumers])
        between = [near, far]
        return (steps.Cut(between=between, mode=dice.choice(("reset", "silent"))), pause(), steps.Heal(between=between))

    return [consumer_ends, frozen, server_ends, calls_lost, *([cut, cut] if shape.links else [])]
