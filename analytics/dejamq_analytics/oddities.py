"""Anomalies that most journals have none of: one look says which rules have something to look at."""

from typing import NamedTuple

from dejamq_proto.names import DLQ_PREFIX
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from dejamq_analytics.rules import aborted, odd_retries, places


class Told(NamedTuple):
    """What the rules read."""

    events: DataFrame
    processes: DataFrame
    deliveries: DataFrame
    appends: DataFrame
    sends: DataFrame
    brokers: DataFrame


def oddities(told: Told) -> list[DataFrame]:
    """Only of those kinds that the journals have a clue of: each rule costs another reading of them."""
    clues = _clues(told)
    found = [places.inconsistent_offsets(places.two_values(told.deliveries))]
    if clues["dead"]:
        groups = odd_retries.watched(told.events, told.processes)
        found.append(odd_retries.without_tries(odd_retries.dead_letters(told.appends), told.deliveries, groups))
    if clues["given_back"]:
        given_back = told.appends.where("origin = 'sendback'")
        found.append(odd_retries.without_failure(given_back, told.deliveries, told.processes))
    if clues["failed"]:
        failed = aborted.failed(told.sends, told.processes)
        found.append(aborted.aborted_reads(told.deliveries, failed))
    if clues["halves"] or clues["finals"]:
        rolled_back = aborted.rolled_back(told.events, told.brokers)
        found.append(aborted.aborted_reads(told.deliveries, rolled_back))
    if clues["finals"]:
        found.append(aborted.finals_without_half(told.appends, told.events, told.brokers))
    if clues["delayed"]:
        found.append(places.delayed_early(told.events))
    return found


def _clues(told: Told) -> dict[str, bool]:
    """One job over two frames that are kept anyway."""
    origin = sf.col("origin")
    of_appends: dict[str, Column] = {
        "dead": sf.col("topic").startswith(DLQ_PREFIX), "given_back": origin == "sendback",
        "finals": origin == "tx_final", "halves": origin.isin("tx_half", "tx_check"), "delayed": origin == "schedule",
    }  # fmt: skip
    surely = sf.col("definite") & ~sf.col("outcome").isin(*aborted.TAKEN)
    seen = told.appends.agg(*[sf.max(clue).alias(name) for name, clue in of_appends.items()])
    row = seen.crossJoin(told.sends.agg(sf.max(surely).alias("failed"))).first()
    return {name: bool(value) for name, value in row.asDict().items()} if row else {}
