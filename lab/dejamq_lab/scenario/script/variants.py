"""A scenario changed as a whole: at another level of the journal, or with handlers that use an inbox."""

import msgspec

from dejamq_lab.scenario.script.text import CONSUMERS, Actor, Scenario


def at_level(scenario: Scenario, level: str) -> Scenario:
    """With all journals at this level."""
    return msgspec.structs.replace(scenario, cluster=msgspec.structs.replace(scenario.cluster, journal_level=level))


def with_inbox(scenario: Scenario) -> Scenario:
    """With every consumer's effects in an ``Inbox``: whatever is delivered twice, no effect is there twice."""
    return msgspec.structs.replace(scenario, actors={name: _careful(one) for name, one in scenario.actors.items()})


def has_inbox(scenario: Scenario) -> bool:
    """Whether no consumer is without."""
    consumers = [actor for actor in scenario.actors.values() if actor.kind in CONSUMERS]
    return bool(consumers) and all(actor.handler.inbox for actor in consumers)


def _careful(actor: Actor) -> Actor:
    return msgspec.structs.replace(actor, handler=msgspec.structs.replace(actor.handler, inbox=True))
