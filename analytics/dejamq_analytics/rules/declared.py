"""What all rules need of a journal: who leaves lines out picks by this.

A new module of rules is named here. A test holds every module with ``needs`` to it.
"""

from collections.abc import Iterable

from dejamq_proto.journal.events import Event
from dejamq_proto.journal.lines import tag_of

from dejamq_analytics.rules.anomalies import common, holders, odd_retries, ownership, places, rare
from dejamq_analytics.rules.copies import revived, scheduled, transactions
from dejamq_analytics.rules.history import appends, clocks, deliveries, faults, losses, pops, queues, replicas
from dejamq_analytics.rules.pairs import contests, jumps, locks, memory, popped_again
from dejamq_analytics.sources import journals
from dejamq_analytics.sources.needs import Condition, Needs

OF_PARTS = (
    common.needs, holders.needs, ownership.needs, places.needs, rare.needs,
    revived.needs, scheduled.needs, transactions.needs,
    appends.needs, clocks.needs, deliveries.needs, faults.needs, losses.needs, pops.needs, queues.needs, replicas.needs,
    contests.needs, jumps.needs, locks.needs, memory.needs, popped_again.needs,
    journals.needs,
)  # fmt: skip
"""Of rules that can say something of a part of the journals."""
OF_WHOLE = (common.needs_whole, odd_retries.needs_whole)
"""Of those that need all of them."""


def joined(several: Iterable[Needs]) -> Needs:
    """All of them, each once."""
    return Needs(dict.fromkeys(need for needs in several for need in needs.declared))


EVERYTHING = joined((*OF_PARTS, *OF_WHOLE))
BY_PARTS = joined(OF_PARTS)


def about_messages() -> list[str]:
    """Events of which rules need only the lines of messages that may be part of a finding."""
    return sorted({tag_of(need.event) for need in EVERYTHING.declared if need.of_messages})


def passing() -> list[str]:
    """Events of rules that read parts, whose lines tell what was done and not what holds."""
    return sorted({tag_of(need.event) for need in BY_PARTS.declared if need.passing})


def always(event: type[Event]) -> list[Condition]:
    """Of an event about messages: lines that rules need whatever becomes of their messages."""
    return [need.where for need in EVERYTHING.declared if need.event is event and need.where and not need.by]
