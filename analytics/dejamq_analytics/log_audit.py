"""An audit of commit logs alone, ours or a real RocketMQ's: stored copies, retry chains, dead letters."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from dejamq_proto import names

from dejamq_analytics.frames import Column, DataFrame, Row, SparkSession
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.pipeline import STORED_TWICE
from dejamq_analytics.report.result import AuditResult
from dejamq_analytics.report.scope import LogVerdict, Scope, StoreExtent
from dejamq_analytics.report.verdict import Totals, weigh
from dejamq_analytics.rules.evidence import line, lines, offset_message_id, text, timestamp
from dejamq_analytics.rules.history import appends, deliveries, queues, stored, stored_causes
from dejamq_analytics.sources import journals
from dejamq_analytics.sources.facts import Facts
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, DELIVERY, FINDING_COLUMNS, contract, id_of
from dejamq_analytics.sources.stores import read_logs


def nothing_else(spark: SparkSession) -> Facts:
    """Facts of journals for the report, where there are no journals."""
    events = journals.no_lines(spark)
    processes = journals.processes(events)
    entered = deliveries.deliveries(events)
    return Facts(
        events, processes, entered, appends.appends(events), appends.sends(events), queues.brokers(events, processes)
    )


class Logs(NamedTuple):
    """Contents of the commit logs, read once: ``read`` with a row for each damaged file, ``records`` each once."""

    read: DataFrame
    records: DataFrame


def gather(spark: SparkSession, stores: Sequence[str], business_key: str | None = None) -> Logs:
    """Raises BadInput for a directory that is no store."""
    every = read_logs(spark, stores, business_key).cache()
    return Logs(every, stored.records(every).cache())


def conclude(logs: Logs, stores: Sequence[str], run_id: str | None = None) -> AuditResult:
    """Apply all rules to what was gathered."""
    scope, hosts = _scope(logs, stores)
    run = run_id or "run-" + hashlib.sha256("|".join(hosts).encode()).hexdigest()[:12]
    found = findings(logs.records, run).cache()
    anomalies = dead_letters(logs.records, run).cache()
    return AuditResult(found, anomalies, _verdict(run, scope, found, anomalies, logs.records))


def findings(records: DataFrame, run_id: str) -> DataFrame:
    """Every stored copy, and every step of a retry chain as asked for, in the columns of the findings table."""
    pairs = stored.copies(records).unionByName(stored.same_business(records))
    commits = sf.col("second.origin") == "final"
    known = stored.with_halves(pairs.where(commits), records)
    plain = pairs.where(~commits).unionByName(known, allowMissingColumns=True)
    every = stored_causes.judged(plain).unionByName(stored_causes.asked_for(stored.retries(records)))
    place = [sf.concat_ws(":", f"{side}.store_host", f"{side}.log_offset") for side in ("first", "second")]
    key = sf.concat_ws("|", sf.lit(STORED_TWICE), "identity", "second.unique_key", *place)
    rows = every.select(
        sf.lit(run_id).alias("run_id"), id_of(key).alias("finding_id"),
        sf.lit(STORED_TWICE).alias("kind"), timestamp(sf.col("second.store_timestamp_ms") * 1000).alias("time"),
        _group("second.topic").alias("consumer_group"), "identity", sf.col("second.unique_key").alias("message_id"),
        sf.coalesce("second.business_key", "first.business_key").alias("business_key"), _place("first"),
        _place("second"), "cause", "stage", "trigger", "missing", "expected", "evidence",
        sf.when(sf.col("cause").isNull(), "undetermined").otherwise("certain").alias("certainty"),
    )  # fmt: skip
    return contract(rows, FINDING_COLUMNS)


def dead_letters(records: DataFrame, run_id: str) -> DataFrame:
    """One row a record of a dead-letter topic: who gave it up, and how many of its tries the logs have."""
    tries = records.where("origin = 'retry'").groupBy(_group("topic").alias("consumer_group"), "message").agg(
        sf.count("*").alias("tries")
    )  # fmt: skip
    dead = records.where("origin = 'dead'").withColumn("consumer_group", _group("topic"))
    told = dead.join(tries, ["consumer_group", "message"], how="left")
    there = sf.coalesce("tries", sf.lit(0))
    identity = sf.concat_ws("|", sf.lit("dead_letter"), "store_host", "log_offset")
    rows = told.select(
        sf.lit(run_id).alias("run_id"), id_of(identity).alias("anomaly_id"),
        sf.lit("dead_letter").alias("kind"), timestamp(sf.col("store_timestamp_ms") * 1000).alias("time"),
        "consumer_group", sf.col("unique_key").alias("message_id"), sf.col("store").alias("broker_name"),
        "topic", "queue_id", "queue_offset",
        text("given up at try %s; the logs have %s of its retries", "reconsume_times", there).alias("detail"),
        lines(line("RECORD", text("log offset %s", "log_offset"), process="store",
                   boot_id=sf.lit(None).cast("string"), seq="log_offset")).alias("evidence"),
    )  # fmt: skip
    return contract(rows, ANOMALY_COLUMNS)


def _group(topic: str) -> Column:
    """The group of a retry or dead-letter topic; null for others."""
    pattern = f"^(?:{names.RETRY_PREFIX}|{names.DLQ_PREFIX})(.*)$"
    return sf.nullif(sf.regexp_extract(topic, pattern, 1), sf.lit(""))


def _place(side: str) -> Column:
    """A stored record in the shape of a delivery; the time is when it was stored."""
    nothing = sf.lit(None).cast("string")
    told = sf.struct(
        nothing.alias("process"), nothing.alias("boot_id"), nothing.alias("delivery_id"),
        sf.col(f"{side}.store").alias("broker_name"), f"{side}.topic", f"{side}.queue_id", f"{side}.queue_offset",
        offset_message_id(f"{side}.store_host", f"{side}.log_offset").alias("offset_message_id"),
        timestamp(sf.col(f"{side}.store_timestamp_ms") * 1000).alias("delivered_at"), nothing.alias("result"),
    )  # fmt: skip
    return told.cast(DELIVERY).alias(side)


def _scope(logs: Logs, stores: Sequence[str]) -> tuple[Scope, list[str]]:
    """The scope of the reading, and the hosts that wrote the logs, which name a run."""
    told = logs.read.groupBy("store").agg(
        sf.count("topic").alias("records"), sf.sort_array(sf.collect_set("store_host")).alias("hosts"),
        sf.min("log_offset").alias("first"), sf.max("log_offset").alias("last"),
        sf.min("store_timestamp_ms").alias("from_ms"), sf.max("store_timestamp_ms").alias("to_ms"),
        sf.sort_array(sf.collect_set("stopped_at")).alias("damaged"),
    )  # fmt: skip
    rows = {row.store: row for row in told.collect()}
    counted = logs.records.groupBy("origin").agg(
        sf.count("*").alias("n"), sf.count_distinct("topic", "message").alias("messages")
    )
    found = {row.origin: row for row in counted.orderBy("origin").collect()}
    numbers = {name: row.n for name, row in found.items()}
    if "retry" in found:
        numbers["retry chains"] = found["retry"].messages
    extents = [_extent(store, rows.get(store)) for store in stores]
    return Scope(stores=extents, found=numbers), sorted({host for extent in extents for host in extent.hosts})


def _extent(store: str, row: Row | None) -> StoreExtent:
    """A store without records has no row."""
    told = row.asDict() if row else {}
    return StoreExtent(
        store=store, hosts=told.get("hosts", []), records=told.get("records", 0), first_log_offset=told.get("first"),
        last_log_offset=told.get("last"), first_stored=_iso(told.get("from_ms")), last_stored=_iso(told.get("to_ms")),
        damaged=told.get("damaged", []),
    )  # fmt: skip


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _verdict(run: str, scope: Scope, found: DataFrame, anomalies: DataFrame, records: DataFrame) -> LogVerdict:
    counted = found.groupBy("consumer_group", "cause", "missing", "expected").agg(sf.count("*").alias("n"))
    rows = counted.withColumn("unfinished", sf.lit(False)).collect()
    kinds = {row.kind: row.n for row in anomalies.groupBy("kind").agg(sf.count("*").alias("n")).collect()}
    sent = records.where("origin IN ('client', 'due', 'final')").agg(sf.count_distinct("message").alias("n")).first()
    damaged = sum(len(extent.damaged) for extent in scope.stores)
    told = weigh(run, Totals(sent.n if sent else 0, {}, 0, damaged), rows, kinds)
    return LogVerdict(**msgspec.structs.asdict(told), scope=scope)
