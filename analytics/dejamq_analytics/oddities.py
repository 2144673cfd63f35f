"""Anomalies that most journals have none of: one look says which rules have something to look at."""

from dejamq_proto.names import DLQ_PREFIX
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from dejamq_analytics.facts import Facts
from dejamq_analytics.rules import aborted, odd_retries, places, polls


def oddities(facts: Facts) -> list[DataFrame]:
    """Only of those kinds that the journals have a clue of: each rule costs another reading of them."""
    clues = _clues(facts)
    found = [places.inconsistent_offsets(places.two_values(facts.deliveries)), polls.skipped(facts.events)]
    if clues["dead"]:
        groups = odd_retries.watched(facts.events, facts.processes)
        found.append(odd_retries.without_tries(odd_retries.dead_letters(facts.appends), facts.deliveries, groups))
    if clues["given_back"]:
        given_back = facts.appends.where("origin = 'sendback'")
        found.append(odd_retries.without_failure(given_back, facts.deliveries, facts.processes))
    if clues["failed"]:
        failed = aborted.failed(facts.sends, facts.processes)
        found.append(aborted.aborted_reads(facts.deliveries, failed))
    if clues["halves"] or clues["finals"]:
        rolled_back = aborted.rolled_back(facts.events, facts.brokers)
        found.append(aborted.aborted_reads(facts.deliveries, rolled_back))
    if clues["halves"]:
        found.append(polls.before_commit(facts.deliveries))
    if clues["finals"]:
        found.append(aborted.finals_without_half(facts.appends, facts.events, facts.brokers))
    if clues["delayed"]:
        found.append(places.delayed_early(facts.events))
    return found


def _clues(facts: Facts) -> dict[str, bool]:
    """One job over two frames that are kept anyway."""
    origin = sf.col("origin")
    of_appends: dict[str, Column] = {
        "dead": sf.col("topic").startswith(DLQ_PREFIX), "given_back": origin == "sendback",
        "finals": origin == "tx_final", "halves": origin.isin("tx_half", "tx_check"), "delayed": origin == "schedule",
    }  # fmt: skip
    surely = sf.col("definite") & ~sf.col("outcome").isin(*aborted.TAKEN)
    seen = facts.appends.agg(*[sf.max(clue).alias(name) for name, clue in of_appends.items()])
    row = seen.crossJoin(facts.sends.agg(sf.max(surely).alias("failed"))).first()
    return {name: bool(value) for name, value in row.asDict().items()} if row else {}
