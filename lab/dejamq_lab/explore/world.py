"""Worlds made from a seed: a cluster, clients, and units of traffic and faults. Pure: the same seed, the same world.

A unit ends its own faults: killed processes run again, cut links are healed. So any unit can be left out, and the
others can still be played to their end.
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.steps import Step
from dejamq_lab.scenario.script.text import (
    ANY,
    Actor,
    ClusterShape,
    ExpectedAudit,
    HandlerScript,
    Scenario,
    Transacting,
    server_names,
)

GROUP, PRODUCER, TRANSACTOR = "g", "p", "t"
FEWEST_UNITS, MOST_UNITS = 3, 6
LOST_CALLS = ("UpdateOffset", "QueryOffset", "ConsumerList", "LockBatch", "Unregister", "EndTransaction")
"""Unary calls of brokers whose request or answer may be lost."""
TRANSACTIONS = (("commit", "commit"), ("rollback", "rollback"), ("unknown", "commit"), ("unknown", "rollback"))
"""How local transactions end, and what a broker hears that asks later: never another end than the one it was told."""
DELAY_LEVELS, DELAYED_MS = (1, 2), 8_000
"""Messages for later, and how long a unit waits for them: brokers hold messages of level 2 for 5 s."""
NEVER = (
    "unseen", "aborted_read", "precommitted_read", "final_without_half", "inconsistent_offsets", "delayed_early",
    "dead_letter_without_tries", "retry_without_failure", "poll_skip",
)  # fmt: skip
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
    shape = _shape(dice)
    in_order = dice.random() < 0.3
    consumers = [f"c{number}" for number in range(1, dice.choice((1, 2, 2)) + 1)]
    producers = {PRODUCER: Actor(kind="producer", group=PRODUCER)}
    if dice.random() < 0.4:
        producers[TRANSACTOR] = _transactor(dice)
    actors = producers | {name: _consumer(dice, in_order) for name in consumers}
    frame = Scenario(
        id=f"explored-{seed}-{number}", title="made up by a seed",
        happens=f"What seed {seed} made up as number {number}: nothing may be lost, and every duplicate has its cause.",
        source="dejamq lab explore", needs=("process",), cluster=shape, actors=actors, steps=[],
        expect=ExpectedAudit(also=(ANY,), never=NEVER + NEVER_IN_ORDER * in_order),
    )  # fmt: skip
    makers, senders = _makers(dice, shape, consumers), list(producers)
    units = [_struck(dice, senders, dice.choice(makers)()) for _ in range(dice.randint(FEWEST_UNITS, MOST_UNITS))]
    names = [*producers, *consumers]
    opening = tuple(steps.Start(who=name) for name in reversed(names))
    closing: Unit = (steps.Committed(group=GROUP), *(steps.Close(who=name) for name in reversed(names)))
    return World(frame, opening, tuple(units), closing)


def _shape(dice: random.Random) -> ClusterShape:
    """A slave only where there is one broker: more processes than that are slow."""
    brokers = dice.choice((1, 1, 2))
    return ClusterShape(
        brokers=brokers, namesrvs=dice.choice((1, 2)), queues=dice.choice((2, 4)), links=dice.random() < 0.5,
        slaves=dice.choice((0, 1)) if brokers == 1 else 0,
    )  # fmt: skip


def _transactor(dice: random.Random) -> Actor:
    answer, check = dice.choice(TRANSACTIONS)
    return Actor(kind="producer", group=TRANSACTOR, transaction=Transacting(answer=answer, check=check))


def _consumer(dice: random.Random, in_order: bool) -> Actor:
    handler = HandlerScript(work_ms=dice.choice((0, 0, 5, 30)))
    settings = {"consume_from": "FIRST_OFFSET"} | ({"ordered": True} if in_order else {})
    return Actor(kind="push", group=GROUP, settings=settings, handler=handler)


def _struck(dice: random.Random, senders: Sequence[str], fault: Unit) -> Unit:
    """Traffic before the fault, and most often during it; some of it for later."""
    who, count, during = dice.choice(senders), dice.randint(5, 60), dice.random() < 0.7
    rate = dice.choice((20, 50, 100)) if during else 0
    level = dice.choice(DELAY_LEVELS) if who == PRODUCER and dice.random() < 0.25 else 0
    send = steps.Send(who=who, count=count, rate=rate, delay_level=level, outcome="any", wait=not during)
    later = (steps.Sleep(ms=DELAYED_MS),) if level else ()
    return (send, *fault, steps.SentStep(who=who), *later) if during else (send, *fault, *later)


def _makers(dice: random.Random, shape: ClusterShape, consumers: Sequence[str]) -> list[Callable[[], Unit]]:
    """Each makes one fault and its end. Consumers are struck as often as brokers."""
    servers = server_names(shape)
    brokers = [name for name in servers if name.startswith("broker-")]
    namesrvs = [name for name in servers if name not in brokers]

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
        armed = steps.FailpointStep(who=who, name=name, terms=f"{times}*drop->off")
        return (armed, pause(), steps.FailpointStep(who=who, name=name, terms="off"))

    def link() -> list[str]:
        far = dice.choice([*brokers, *(namesrvs if len(namesrvs) > 1 else [])])
        return [dice.choice([PRODUCER, *consumers]), far]

    def cut() -> Unit:
        between = link()
        return (
            steps.CutStep(between=between, mode=dice.choice(("reset", "silent"))),
            pause(),
            steps.Heal(between=between),
        )

    def slow() -> Unit:
        between = link()
        return (steps.Delay(between=between, ms=dice.choice((20, 100, 500))), pause(), steps.Heal(between=between))

    def isolated() -> Unit:
        who = dice.choice(consumers)
        return (steps.Isolate(who=who), pause(), steps.Rejoin(who=who))

    of_links = [cut, cut, slow, isolated] if shape.links else []
    return [consumer_ends, frozen, server_ends, calls_lost, *of_links]
