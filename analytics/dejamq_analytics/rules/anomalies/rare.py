"""Anomalies that most journals have none of: one look says which rules have something to look at."""

from typing import Any

from dejamq_proto.codes import Code
from dejamq_proto.journal.events import Boot, Deliver, EndTransaction, Pull
from dejamq_proto.names import DLQ_PREFIX, HALF_TOPIC

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.anomalies import odd_retries, places
from dejamq_analytics.rules.evidence import line, lines, text, timestamp
from dejamq_analytics.sources.facts import Facts
from dejamq_analytics.sources.needs import Needs, every, passing, those
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, contract

# Messages that should not be there. Some were delivered although their send had failed for certain, or their
# transaction was rolled back (G1a of Jepsen). Some were committed although nobody had stored the half message.

TAKEN = ("ok", "not_ok_status")
"""Outcomes of a try after which the message is stored."""


def is_skip(pull: Any) -> Any:
    """Of a PULL: the member was sent forward."""
    return (pull.code == int(Code.PULL_OFFSET_MOVED)) & (pull.next_offset > pull.request_offset)


def is_of_half(delivery: Any) -> Any:
    """Of a DELIVER: a half message was delivered."""
    return delivery.topic == HALF_TOPIC


needs = Needs(every(Boot, EndTransaction), passing(those(Pull, is_skip)), passing(those(Deliver, is_of_half)))


def failed(sends: DataFrame, processes: DataFrame) -> DataFrame:
    """``unique_key``, ``told``: messages of which every try failed for certain, by producers with whole journals."""
    kept = (sf.size("gaps") == 0) & (sf.col("closed") | (sf.col("level") == "forensic"))
    whole = sf.broadcast(processes.where(kept).select("boot_id"))
    surely = sf.coalesce(~sf.col("outcome").isin(*TAKEN) & sf.col("definite"), sf.lit(False))
    last = sf.struct("seq", "result_seq", "process", "boot_id", "outcome", "code")
    by_key = sends.where("unique_key IS NOT NULL").join(whole, "boot_id", how="left_semi").groupBy("unique_key").agg(
        sf.min(surely).alias("surely"), sf.max(last).alias("told")
    )  # fmt: skip
    # a try of a producer whose journal has a hole could have been stored
    elsewhere = sends.join(whole, "boot_id", how="left_anti").select("unique_key")
    return by_key.where("surely").join(elsewhere, "unique_key", how="left_anti").select(
        "unique_key", "told", text("its send had failed: %s, code %s", "told.outcome", "told.code").alias("why"),
        sf.lit("SEND_RESULT").alias("by"), sf.col("told.result_seq").alias("by_seq"),
    )  # fmt: skip


def rolled_back(events: DataFrame, brokers: DataFrame) -> DataFrame:
    """The same for transactions that were rolled back and never committed, at brokers with whole journals."""
    whole = sf.broadcast(brokers.where("whole").select("broker_name"))
    ended = needs.of(events, EndTransaction).where("outcome IN ('committed', 'rolled_back')")
    told = sf.max(sf.when(sf.col("outcome") == "rolled_back", sf.struct("seq", "process", "boot_id", "broker_name")))
    by_key = ended.groupBy("unique_key").agg(
        told.alias("told"), sf.max(sf.col("outcome") == "committed").alias("committed")
    )
    rolled = by_key.where("NOT committed").withColumn("broker_name", sf.col("told.broker_name"))
    return rolled.join(whole, "broker_name", how="left_semi").select(
        "unique_key", sf.struct("told.process", "told.boot_id").alias("told"),
        text("its transaction was rolled back at %s", "broker_name").alias("why"),
        sf.lit("END_TRANSACTION").alias("by"), sf.col("told.seq").alias("by_seq"),
    )  # fmt: skip


def aborted_reads(deliveries: DataFrame, aborted: DataFrame) -> DataFrame:
    """The first delivery to each group of a message that ``failed`` or was ``rolled_back``."""
    one = sf.min(sf.struct(
        "wall_us", "process", "boot_id", "seq", "delivery_id", "broker_name", "topic", "queue_id", "queue_offset"
    ))  # fmt: skip
    firsts = deliveries.join(aborted, "unique_key", how="inner").groupBy("consumer_group", "unique_key").agg(
        one.alias("one"), sf.min(sf.struct("why", "by", "by_seq", "told.process", "told.boot_id")).alias("told")
    )  # fmt: skip
    place = [f"one.{name}" for name in ("broker_name", "topic", "queue_id", "queue_offset")]
    delivered = {name: f"one.{name}" for name in ("process", "boot_id", "seq")}
    return contract(
        firsts.select(
            sf.lit("aborted_read").alias("kind"),
            timestamp("one.wall_us").alias("time"),
            "consumer_group",
            sf.col("unique_key").alias("message_id"),
            *place,
            text("%s was given it although %s", "consumer_group", "told.why").alias("detail"),
            lines(
                line(sf.col("told.by"), sf.col("told.why"), process="told.process", boot_id="told.boot_id",
                     seq="told.by_seq"),
                line("DELIVER", text("delivery %s", "one.delivery_id"), **delivered),
            ).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def finals_without_half(appends: DataFrame, events: DataFrame, brokers: DataFrame) -> DataFrame:
    """Committed records whose half message no broker journaled, where the journals reach back to its place in the log.

    The record names the half message's places: ``queue offset:log offset``.
    """
    began = needs.of(events, Boot).groupBy("broker_name").agg(sf.min(sf.struct("wall_us", "log_max")).alias("began"))
    whole = brokers.where("whole").select("broker_name").join(began, "broker_name", how="inner")
    finals = appends.where("origin = 'tx_final'").withColumn("half", sf.split("origin_ref", ":")[1].cast("bigint"))
    judged = finals.join(sf.broadcast(whole), "broker_name", how="inner").where("half >= began.log_max")
    halves = appends.where("origin IN ('tx_half', 'tx_check')").select("unique_key")
    lacking = judged.join(halves, "unique_key", how="left_anti")
    return contract(
        lacking.select(
            sf.lit("final_without_half").alias("kind"),
            timestamp("wall_us").alias("time"),
            sf.col("unique_key").alias("message_id"),
            "broker_name", "topic", "queue_id", "queue_offset",
            text("%s committed the half message at %s and never stored one", "broker_name", "origin_ref")
            .alias("detail"),
            lines(line("APPEND", text("committed from %s", "origin_ref"))).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


# Faults of polls: a poll went past messages that the group was never given, or saw a message before its commit.


def skipped(events: DataFrame) -> DataFrame:
    """A broker sent a member forward: what it asked for is no longer there, deleted before the group had read it.

    Source: Jepsen's poll-skip; RocketMQ ``PULL_OFFSET_MOVED`` to the queue's new minimum.
    """
    moved = needs.of(events, Pull)
    passed = sf.col("next_offset") - sf.col("request_offset")
    return contract(
        moved.select(
            sf.lit("poll_skip").alias("kind"),
            timestamp("wall_us").alias("time"),
            sf.col("group").alias("consumer_group"),
            "broker_name", "topic", "queue_id",
            sf.col("request_offset").alias("queue_offset"),
            text("%s was sent on to offset %s, past %s", "client_id", "next_offset", passed).alias("detail"),
            lines(line("PULL", text("asked for %s, sent to %s", "request_offset", "next_offset"))).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def before_commit(deliveries: DataFrame) -> DataFrame:
    """A consumer was given a half message: nobody knew yet whether its transaction would be committed.

    Source: Jepsen's precommitted-read.
    """
    halves = deliveries.where(sf.col("topic") == HALF_TOPIC)
    return contract(
        halves.select(
            sf.lit("precommitted_read").alias("kind"),
            timestamp("wall_us").alias("time"),
            "consumer_group",
            sf.col("unique_key").alias("message_id"),
            "broker_name", "topic", "queue_id", "queue_offset",
            sf.lit("a half message was delivered").alias("detail"),
            lines(line("DELIVER", text("delivery %s", "delivery_id"))).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def oddities(facts: Facts) -> list[DataFrame]:
    """Only of those kinds that the journals have a clue of: each rule costs another reading of them."""
    clues = _clues(facts)
    found = [places.inconsistent_offsets(places.two_values(facts.deliveries)), skipped(facts.events)]
    if clues["dead"]:
        groups = odd_retries.watched(facts.events, facts.processes)
        found.append(odd_retries.without_tries(odd_retries.dead_letters(facts.appends), facts.deliveries, groups))
    if clues["given_back"]:
        given_back = facts.appends.where("origin = 'sendback'")
        found.append(odd_retries.without_failure(given_back, facts.deliveries, facts.processes))
    if clues["failed"]:
        failed_sends = failed(facts.sends, facts.processes)
        found.append(aborted_reads(facts.deliveries, failed_sends))
    if clues["halves"] or clues["finals"]:
        ended = rolled_back(facts.events, facts.brokers)
        found.append(aborted_reads(facts.deliveries, ended))
    if clues["halves"]:
        found.append(before_commit(facts.deliveries))
    if clues["finals"]:
        found.append(finals_without_half(facts.appends, facts.events, facts.brokers))
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
    surely = sf.col("definite") & ~sf.col("outcome").isin(*TAKEN)
    seen = facts.appends.agg(*[sf.max(clue).alias(name) for name, clue in of_appends.items()])
    row = seen.crossJoin(facts.sends.agg(sf.max(surely).alias("failed"))).first()
    return {name: bool(value) for name, value in row.asDict().items()} if row else {}
