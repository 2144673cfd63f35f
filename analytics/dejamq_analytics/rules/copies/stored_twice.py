"""I2: messages that are stored twice, the cause, and their deliveries. A rule is applied only where a clue is."""

from typing import NamedTuple

from dejamq_analytics.frames import DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules import identity
from dejamq_analytics.rules.copies import copies, overdue, retries, scheduled, sent_back_twice, transactions
from dejamq_analytics.rules.history import losses
from dejamq_analytics.rules.joins import united
from dejamq_analytics.sources.facts import Facts, settled, some

CLUES = {
    "sent": "origin = 'client'", "delayed": "origin IN ('schedule', 'timer')",
    "committed": "origin IN ('tx_final', 'transaction')",
}  # fmt: skip
"""Where copies come from. A rule looks for several of one origin in one topic, with one unique key."""


class CopiesJudged(NamedTuple):
    """Judged: what was ``delivered`` twice for that reason, and what is ``stored`` twice and not among these."""

    delivered: list[DataFrame]
    stored: list[DataFrame]


def copied(facts: Facts, pairs: DataFrame | None) -> CopiesJudged:
    """``pairs``: deliveries of one message by two records, None if no such pair exists."""
    clues = _clues(facts.appends)
    by_schedule = [settled(_by_schedule(facts))] if clues["delayed"] else []
    stored = _stored(facts, clues, by_schedule)
    remaining = _remaining(facts, clues, stored)
    if pairs is None:
        return CopiesJudged([], remaining)
    nothing = copies.judged_copies(identity.stored_twice(facts.appends.limit(0)), _producers(facts))
    by_copy = settled(copies.judged_deliveries(pairs, united(stored or [nothing]), facts.brokers))
    unasked = copies.by_record(united(by_schedule or [nothing]))
    unasked = _with_overdue(_with_fallbacks(unasked, facts), facts)
    by_chain = settled(retries.retried(pairs, retries.requested(facts.deliveries), unasked))
    delivered = [by_copy, by_chain]
    return CopiesJudged(delivered, [copies.undelivered(one, united(delivered)) for one in remaining])


def _stored(facts: Facts, clues: dict[str, bool], by_schedule: list[DataFrame]) -> list[DataFrame]:
    """One frame, or none: every copy beside the one before it, with its cause."""
    found = [*by_schedule]
    if clues["sent"]:
        found.append(copies.judged_copies(identity.stored_twice(facts.appends), _producers(facts)))
    if clues["committed"]:
        found += _by_transactions(facts)
    return [settled(united(found))] if found else []


def _remaining(facts: Facts, clues: dict[str, bool], stored: list[DataFrame]) -> list[DataFrame]:
    """The same of what is stored still: what a log lost with its end was delivered, if at all, before."""
    gone = some(losses.cut_off(facts.appends, facts.events)) if stored else None
    if gone is None:
        return stored
    left = facts._replace(appends=settled(losses.left(facts.appends, gone)))
    return _stored(left, clues, [_by_schedule(left)] if clues["delayed"] else [])


def _clues(appends: DataFrame) -> dict[str, bool]:
    """One job over a frame that is kept anyway."""
    each = appends.groupBy("topic", "unique_key").agg(
        *[sf.count_if(sf.expr(clue)).alias(name) for name, clue in CLUES.items()]
    )
    most = each.agg(*[sf.max(name).alias(name) for name in CLUES]).first()
    return {name: (most[name] or 0) > 1 for name in CLUES} if most else dict.fromkeys(CLUES, False)


def _producers(facts: Facts) -> copies.Producers:
    return copies.Producers(facts.sends, facts.processes)


def _by_schedule(facts: Facts) -> DataFrame:
    return scheduled.judged(scheduled.scheduled_twice(facts.appends), facts.events, facts.processes)


def _by_transactions(facts: Facts) -> list[DataFrame]:
    """It takes several more readings."""
    twice = some(transactions.committed_twice(facts.appends))
    told = transactions.TransactionFacts(facts.events, facts.appends, facts.sends, facts.processes)
    return [] if twice is None else [transactions.judged(twice, told)]


def _with_fallbacks(unasked: DataFrame, facts: Facts) -> DataFrame:
    """With retries that consumers made besides the broker's."""
    fallbacks = some(sent_back_twice.by_the_client(facts.events))
    if fallbacks is None:
        return unasked
    return copies.first_by_record([unasked, sent_back_twice.doubled(facts.appends, facts.events, fallbacks)])


def _with_overdue(unasked: DataFrame, facts: Facts) -> DataFrame:
    """With retries of messages whose handlers took too long."""
    late = some(overdue.expired(facts.deliveries))
    if late is None:
        return unasked
    return copies.first_by_record([unasked, overdue.retries(late, facts.appends, facts.processes)])
