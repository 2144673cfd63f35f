"""A scenario as it is written: TOML, read strictly. The same text runs against processes, in process and containers."""

from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto.codes import ConfigError
from dejamq_proto.loose_json import BAD_JSON

from dejamq_lab.scenario.script.steps import Step

TOPIC, ANY = "orders", "any"
CONSUMERS = ("push", "lite", "pop", "v2-push")
"""Kinds of actors that handle messages."""
V2_KINDS = ("v2-producer", "v2-push")
"""Kinds of actors that speak ``apache.rocketmq.v2`` as RocketMQ 5's clients do."""
ANSWERS = ("error", "later", "suspend", "rollback", "rest")
"""How a handler says that it failed."""


class ClusterShape(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The cluster. ``queues``: number of queues of each topic at each broker; intervals shrink by ``time_scale``."""

    brokers: int = 1
    namesrvs: int = 1
    slaves: int = 0
    topics: tuple[str, ...] = (TOPIC,)
    queues: int = 4
    time_scale: float = 0.05
    links: bool = False
    """Whether every connection goes through a relay, so that it can be cut."""
    journal_level: str = "forensic"
    """Of all processes."""


class HandlerScript(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A consumer's handler: its actions, by the message's number within the scenario (0, 1, …)."""

    work_ms: float = 0
    batch: int = 0
    """Messages a call; 0: a handler of one message."""
    blocks: tuple[int, ...] = ()
    """These messages wait, effect not done, until the step ``release``."""
    fails: tuple[int, ...] = ()
    """These fail the first ``failures`` times, after their effect."""
    refuses: tuple[int, ...] = ()
    """As ``fails``, before their effect."""
    failures: int = 1
    answer: str = "error"
    """How it says that it failed: error, later, suspend, rollback, rest (of a list: those before it are done)."""
    lingers: tuple[int, ...] = ()
    """These wait after their effect, until the step ``release``."""
    once: bool = False
    """Block, linger and fail only at the first delivery here, whichever ends first."""
    commits: tuple[int, ...] = ()
    """These answer COMMIT, in a consumer in order without ``auto_commit``."""
    parts: int = 1
    """Effects of each message; what fails, fails after the first of them."""
    plain: bool = False
    """A plain function, in a worker thread."""
    replies: bool = False
    """Each message is a request, and gets a reply after its effect."""
    inbox: bool = False
    """Effects go through ``Inbox``: once a message, whatever is delivered."""


class Transacting(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A producer whose every send is a transaction. Answers are commit, rollback, unknown."""

    blocks: bool = False
    """Local transactions wait until the step ``release``."""
    answer: str = "commit"
    check: str = "commit"
    """The answer to a broker's check."""


class Actor(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A client process: ``kind`` producer, push, lite, pop (a SimpleConsumer), v2-producer or v2-push. ``settings`` are
    its own, unscaled, as keyword arguments.
    """

    kind: str
    group: str
    topics: tuple[str, ...] = (TOPIC,)
    tags: str = "*"
    namesrvs: tuple[str, ...] = ()
    """The name servers that it knows; all by default, and then it believes any one of them."""
    settings: dict[str, Any] = {}
    handler: HandlerScript = HandlerScript()
    queues: tuple[str, ...] = ()
    """Of a lite consumer: it takes just these of its first topic (``broker-a:0``), and asks nobody."""
    own_offsets: int = 0
    """For such a lite consumer: the program keeps its offsets itself and writes them after this many messages."""
    invisible_ms: float = 30_000
    """Of one that pops: for how long it is given messages."""
    transaction: Transacting | None = None
    """Of a producer that sends in transactions."""


class ExpectedAudit(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The verdict that the audit must give. Empty ``causes`` and ``expected`` mean clean."""

    causes: tuple[str, ...] = ()
    """Each is found at least once, ``certain``."""
    also: tuple[str, ...] = ()
    """Other causes that may be found: what this fault does beside; ``any``, whatever it is."""
    expected: tuple[str, ...] = ()
    """Causes that must be under ``expected_causes``."""
    anomalies: tuple[str, ...] = ()
    """Kinds that must be among the anomalies."""
    never: tuple[str, ...] = ()
    """Kinds that must not."""
    deliveries: int = 0
    """How many there are, no more and no less; 0: any number."""
    undetermined: bool = False
    """Whether duplicates without a cause are allowed."""
    lost: bool = False
    """Whether acknowledged messages may be lost."""


class Scenario(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One experiment. ``needs`` are what a cluster must be able to: ``process`` where something is killed or frozen."""

    id: str
    title: str
    happens: str
    source: str
    needs: tuple[str, ...] = ()
    cluster: ClusterShape = ClusterShape()
    settings: dict[str, Any] = {}
    actors: dict[str, Actor]
    steps: list[Step]
    expect: ExpectedAudit = ExpectedAudit()


def read(path: Path) -> Scenario:
    """Raises ConfigError that says which file and which field."""
    try:
        scenario = msgspec.toml.decode(path.read_bytes(), type=Scenario)
    except OSError as error:
        raise ConfigError(f"cannot read the scenario {path}: {error.strerror}") from None
    except BAD_JSON as error:
        raise ConfigError(f"the scenario {path} is not one: {error}") from None
    check(scenario)
    return scenario


def check(scenario: Scenario) -> None:
    """Raise ConfigError for a step whose actor does not exist, and for an actor that cannot be."""
    for name, actor in scenario.actors.items():
        if actor.kind not in ("producer", *CONSUMERS, *V2_KINDS):
            raise ConfigError(f"scenario {scenario.id}: actor {name} is of the kind {actor.kind!r}, which there is not")
        if actor.handler.answer not in ANSWERS:
            raise ConfigError(
                f"scenario {scenario.id}: the handler of {name} answers {actor.handler.answer!r}; "
                f"it can answer {', '.join(ANSWERS)}"
            )
    namesrvs = {name for name in server_names(scenario.cluster) if name.startswith("namesrv-")}
    for name, actor in scenario.actors.items():
        if strange := sorted(set(actor.namesrvs) - namesrvs):
            raise ConfigError(f"scenario {scenario.id}: actor {name} knows {strange[0]!r}, which is no name server")
    known = {*scenario.actors, *server_names(scenario.cluster)}
    for number, step in enumerate(scenario.steps, 1):
        for name in step.names():
            if name not in known:
                raise ConfigError(f"scenario {scenario.id}, step {number}: there is no {name!r}")


def server_names(shape: ClusterShape) -> list[str]:
    """The names of the cluster's servers."""
    letters = "abcdefghijklmnopqrstuvwxyz"[: shape.brokers]
    slaves = [f"broker-{letter}-s{number}" for letter in letters for number in range(1, shape.slaves + 1)]
    return [*(f"namesrv-{n}" for n in range(shape.namesrvs)), *(f"broker-{letter}" for letter in letters), *slaves]


def catalogue() -> dict[str, Scenario]:
    """All scenarios that come with the lab, by id, in the order of the catalogue of causes."""
    found = [read(path) for path in sorted((Path(__file__).parent / "catalogue").glob("*.toml"))]
    return {scenario.id: scenario for scenario in sorted(found, key=_place)}


def _place(scenario: Scenario) -> tuple[int, str, int, str]:
    """healthy first, then P, B, O, R, L by number, then the negative controls."""
    letter, number = scenario.id[:1], "".join(filter(str.isdigit, scenario.id.partition("-")[0]))
    if not number:
        return (0 if scenario.id == "healthy" else 9), scenario.id, 0, ""
    return 1 + "PBORL".index(letter), letter, int(number), scenario.id
