"""Worlds of chaos: two name servers, two masters with a slave each and fail-over, and faults of every kind.

After each fault everything is healed, and new messages have to be consumed within a minute.
"""

import random

from dejamq_lab.explore.world import GROUP, NEVER, PRODUCER, Unit, World
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.text import ANY, Actor, ClusterShape, ExpectedAudit, HandlerScript, Scenario

SCALE = 0.2
RECOVERY_MS = 60_000
SETTINGS = {"brokerRole": "SYNC_MASTER", "failover_enable": True, "disk_check_enable": True}
SHAPE = ClusterShape(brokers=2, namesrvs=2, slaves=1, queues=4, links=True, time_scale=SCALE)
NAMESRVS, MASTERS = ("namesrv-0", "namesrv-1"), ("broker-a", "broker-b")
REPLICAS = (*MASTERS, *(f"{name}-s1" for name in MASTERS))
CONSUMERS = ("c1", "c2")
MODES = ("reset", "silent", "to", "from")
"""How links end: at once, or half open in one direction or both."""


def chaos(seed: int, number: int, units: int) -> World:
    """The ``number``-th world of this seed, with so many faults. The same seed, the same world."""
    dice = random.Random(f"chaos-{seed}-{number}")
    handler = HandlerScript(work_ms=dice.choice((0, 5, 20)))
    consumer = Actor(kind="push", group=GROUP, settings={"consume_from": "FIRST_OFFSET"}, handler=handler)
    actors = {PRODUCER: Actor(kind="producer", group=PRODUCER), **dict.fromkeys(CONSUMERS, consumer)}
    frame = Scenario(
        id=f"chaos-{seed}-{number}", title="chaos made up by a seed",
        happens=f"What seed {seed} made up as number {number}: nothing acknowledged is lost, every duplicate has its "
        "cause, and after each fault everything is well within a minute.",
        source="prove_chaos.py", needs=("process",), cluster=SHAPE, settings=SETTINGS, actors=actors, steps=[],
        expect=ExpectedAudit(also=(ANY,), never=NEVER),
    )  # fmt: skip
    names = (PRODUCER, *CONSUMERS)
    opening = tuple(steps.Start(who=name) for name in reversed(names))
    closing: Unit = tuple(steps.Close(who=name) for name in names)
    return World(frame, opening, tuple(_struck(dice, _fault(dice)) for _ in range(units)), closing)


def _struck(dice: random.Random, fault: Unit) -> Unit:
    """Traffic while the fault lasts; then everything is well again, which new messages show."""
    during = steps.Send(who=PRODUCER, count=dice.randint(40, 120), rate=20, outcome="any", wait=False)
    # a send that nobody answers is tried again: what is lost is told by the audit, and what hangs by the deadline
    after = steps.Send(who=PRODUCER, count=10, outcome="any")
    well = steps.Committed(group=GROUP, deadline_ms=RECOVERY_MS / SCALE)
    return (during, *fault, steps.SentStep(who=PRODUCER), after, well)


def _fault(dice: random.Random) -> Unit:
    """One kind of fault and its end."""
    kinds = (_ended, _ended, _frozen, _frozen, _cut, _cut, _full, _jumped, _pair_lost, _consumer_ends)
    return dice.choice(kinds)(dice)


def _lasting(dice: random.Random) -> steps.Sleep:
    """0.4 to 12 s: shorter and longer than a lease, which is 2 s here."""
    return steps.Sleep(ms=dice.choice((400, 1_500, 4_000, 12_000)) / SCALE)


def _server(dice: random.Random) -> str:
    """Brokers twice as often as name servers."""
    return dice.choice((*REPLICAS, *REPLICAS, *NAMESRVS, *NAMESRVS))


def _ended(dice: random.Random) -> Unit:
    who, end = _server(dice), dice.choice((steps.Kill, steps.Kill, steps.Terminate))
    return (end(who=who), _lasting(dice), steps.Restart(who=who, wait=False))


def _frozen(dice: random.Random) -> Unit:
    who = dice.choice((_server(dice), _server(dice), dice.choice(CONSUMERS)))
    return (steps.Pause(who=who), _lasting(dice), steps.Resume(who=who))


def _cut(dice: random.Random) -> Unit:
    """A link, or all of one process. A broker then is without name servers, and clients may still reach it."""
    mode = dice.choice(MODES)
    if dice.random() < 0.4:
        who = dice.choice((*REPLICAS, *CONSUMERS))
        return (steps.Isolate(who=who, mode=mode), _lasting(dice), steps.Rejoin(who=who))
    near = dice.choice((*REPLICAS, PRODUCER, *CONSUMERS))
    between = [near, dice.choice(NAMESRVS if near in REPLICAS else (*NAMESRVS, *REPLICAS))]
    return (steps.CutStep(between=between, mode=mode), _lasting(dice), steps.Heal(between=between))


def _full(dice: random.Random) -> Unit:
    who = dice.choice(REPLICAS)
    return (steps.DiskStep(who=who, percent=99), _lasting(dice), steps.DiskStep(who=who, percent=0))


def _jumped(dice: random.Random) -> Unit:
    """A time of day that goes wrong, and is put right later."""
    who, ms = dice.choice((*REPLICAS, *CONSUMERS)), dice.choice((-600_000, -5_000, 5_000, 90_000, 600_000)) / SCALE
    return (steps.ClockStep(who=who, ms=ms), _lasting(dice), steps.ClockStep(who=who, ms=-ms))


def _pair_lost(dice: random.Random) -> Unit:
    """Both replicas of a broker, or a replica and a name server, within a moment."""
    one = dice.choice(MASTERS)
    other = dice.choice((f"{one}-s1", *NAMESRVS))
    both = [one, other]
    dice.shuffle(both)
    ends = (steps.Kill(who=both[0]), steps.Sleep(ms=dice.choice((0, 500)) / SCALE), steps.Kill(who=both[1]))
    dice.shuffle(both)
    return (*ends, _lasting(dice), *(steps.Restart(who=who, wait=False) for who in both))


def _consumer_ends(dice: random.Random) -> Unit:
    who, end = dice.choice(CONSUMERS), dice.choice((steps.Kill, steps.Terminate))
    return (end(who=who), _lasting(dice), steps.Start(who=who))
