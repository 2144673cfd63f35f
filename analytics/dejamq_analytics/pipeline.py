"""From journal lines to findings and anomalies: the rules in their order, each applied once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dejamq_analytics import groups
from dejamq_analytics.frames import Column, DataFrame, SparkSession, in_duckdb
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules import audiences, files, identity
from dejamq_analytics.rules.anomalies import common, holders, odd_retries, ownership, places
from dejamq_analytics.rules.anomalies.rare import oddities
from dejamq_analytics.rules.copies import copies, replays, revived
from dejamq_analytics.rules.copies.stored_twice import copied
from dejamq_analytics.rules.evidence import offset_message_id, timestamp
from dejamq_analytics.rules.history import appends, clocks, deliveries, faults, losses, queues, replicas
from dejamq_analytics.rules.joins import united
from dejamq_analytics.rules.pairs import attribute, contests, jumps, life, locks, made_of_logs, memory, popped_again
from dejamq_analytics.sources import journals as read
from dejamq_analytics.sources.facts import Counted, Facts, all_of, both, in_one, rare, settled, some
from dejamq_analytics.sources.overlap import Overlap
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, DELIVERY, FINDING_COLUMNS, contract, id_of, telling
from dejamq_analytics.sources.stores import check_business_key, read_records
from dejamq_analytics.survey import wholly

if TYPE_CHECKING:
    from dejamq_analytics.survey.survey import Surveyed

SURVEY_BYTES = 32 << 20
LITTLE = 100_000
"""This many messages are no work for several tasks; see ``session.in_one_place``."""
DELIVERED_TWICE, STORED_TWICE = "delivered twice", "stored twice"
REPLAYED, POPPED, REVIVED = "replayed", "popped", "revived"


def surveyed(
    spark: SparkSession, journals: Sequence[str], stores: Sequence[str] = (), group: str | None = None
) -> "Surveyed | None":
    """Of large journals without stores, the lines that findings can rest on, read by Spark; None where ``gather`` is to
    read all.
    """
    if stores or in_duckdb() or not is_large(journals):
        return None
    from dejamq_analytics.survey.spark_readings import readings
    from dejamq_analytics.survey.survey import survey

    return survey(readings(spark, journals, group), group)


def gather(
    spark: SparkSession,
    journals: Sequence[str],
    stores: Sequence[str] = (),
    business_key: str | None = None,
    group: str | None = None,
    taken: "Surveyed | None" = None,
) -> Facts:
    """Read everything, or what ``surveyed`` has taken; of one consumer group, or all.

    Raises BadInput when there is nothing to read.
    """
    check_business_key(business_key, stores)
    lines = read.read_lines(spark, journals) if taken is None else wholly.lines(spark, taken.texts)
    told = _told(lines)
    if sum(told.values()) < LITTLE:
        _in_one_place(spark)
    lines = read.steady(in_one(lines))
    events = read.readable(lines) if group is None else groups.of_group(read.readable(lines), group)
    events = telling(events, told.keys())
    entered, stored, sent = deliveries.deliveries(events), appends.appends(events), appends.sends(events)
    if taken is not None:
        entered = wholly.with_reached(entered, taken.ranges)
    if stores:
        records = read_records(spark, stores, business_key).cache()
        stored = appends.with_logs(stored, records, events)
        if business_key:
            entered = _with_business_key(entered, records)
    known = read.processes(lines) if taken is None else wholly.processes(read.processes(lines), taken.extents)
    processes, messages = both(
        lambda: _processes(known, read.readable(lines)), lambda: (settled(entered), settled(stored), rare(sent))
    )
    if processes is None:
        raise BadInput(f"the journals in {', '.join(journals)} are empty: did the processes run with journal_dir set?")
    return Facts(
        events, processes, *messages, settled(queues.brokers(events, processes)),
        taken and Counted(taken.messages, taken.deliveries, taken.overlap),
        None if group is None else groups.topics_of(events, group),
    )  # fmt: skip


def _in_one_place(spark: SparkSession) -> None:
    if in_duckdb():  # it has one only
        return
    from dejamq_analytics.spark.session import in_one_place

    in_one_place(spark)


def _processes(known: DataFrame, events: DataFrame) -> DataFrame | None:
    """None where no line tells of one."""
    there = some(known)
    return None if there is None else settled(clocks.with_skew(made_of_logs.never_whole(there), events))


def _told(lines: DataFrame) -> dict[str, int]:
    """Which events there are, each with how many messages its lines are about, a line counted as one at least."""
    messages = sf.greatest(sf.size("delivery_ids"), sf.size("unique_keys"), sf.lit(1))
    told = read.readable(lines).groupBy("event").agg(sf.sum(messages).alias("n")).collect()
    return {row.event: row.n for row in told}


def is_large(journals: Sequence[str]) -> bool:
    """Whether it is worth reading them twice to leave out what came once."""
    return read.local_bytes(journals, SURVEY_BYTES) >= SURVEY_BYTES


def facts_of(events: DataFrame, processes: DataFrame) -> Facts:
    """The facts of these lines alone, without commit logs beside them."""
    return Facts(
        events, settled(clocks.with_skew(processes, events)), settled(deliveries.deliveries(events)),
        settled(appends.appends(events)), settled(appends.sends(events)), settled(queues.brokers(events, processes)),
    )  # fmt: skip


def _with_business_key(entered: DataFrame, records: DataFrame) -> DataFrame:
    """The property of the stored message, where the consumer did not journal one."""
    named = records.where(sf.col("business_key").isNotNull() & sf.col("unique_key").isNotNull())
    by_key = named.groupBy("unique_key").agg(sf.max("business_key").alias("stored_business_key"))
    joined = entered.join(by_key, "unique_key", how="left")
    known = sf.coalesce("business_key", "stored_business_key").alias("business_key")
    return joined.select(*[known if name == "business_key" else name for name in entered.columns])


def findings(facts: Facts, run_id: str) -> DataFrame:
    """Every duplicate with its cause, in the columns of the findings table."""
    meant = audiences.audiences(facts.processes)
    every = rare(replays.with_operator(identity.pairs(facts.deliveries, meant.broadcasting), facts.appends))
    pairs, there = replays.not_replayed(every), _kinds(every)
    of_pops, pairs = pairs, pairs.where(~_by_pops()) if there & {POPPED, REVIVED} else pairs
    redelivered, several = both(
        lambda: [_redelivered(facts, pairs)] if "I1" in there else [],
        lambda: copied(facts, pairs if "I2" in there else None),
    )
    delivered = redelivered + _meant_for_several(facts, meant)
    if "I3" in there:
        delivered.append(copies.sent_again(pairs, copies.Producers(facts.sends, facts.processes)))
    if POPPED in there:
        delivered.append(popped_again.popped_again(of_pops.where(popped_again.is_popped()), facts))
    if REVIVED in there:
        delivered.append(revived.revived(of_pops.where(revived.is_copy()), facts))
    if REPLAYED in there:
        delivered.append(replays.replayed(every))
    tables = [_table(_delivered_rows(frame), DELIVERED_TWICE, run_id) for frame in (*delivered, *several.delivered)]
    stored = several.stored if facts.topics is None else [
        frame.where(groups.stored_for(facts.topics)) for frame in several.stored
    ]  # fmt: skip
    tables += [_table(_stored_rows(frame), STORED_TWICE, run_id) for frame in stored]
    nothing = contract(facts.processes.limit(0).select(), FINDING_COLUMNS)
    return files.named(united(tables or [nothing]), facts.processes)


def _redelivered(facts: Facts, pairs: DataFrame) -> DataFrame:
    known, judgement = both(lambda: _life(facts, pairs), attribute.judgement)
    return attribute.redelivered(pairs, known, judgement)


def _kinds(pairs: DataFrame) -> set[str]:
    """Identities among the pairs: rules for others have nothing to look at."""
    kind = sf.when(replays.asked_for(), REPLAYED).when(popped_again.is_popped(), POPPED)
    kind = kind.when(revived.is_copy(), REVIVED).otherwise(sf.col("identity"))
    return {row.kind for row in pairs.select(kind.alias("kind")).distinct().collect()}


def _by_pops() -> Column:
    """Of pairs: what came again by a pop has rules of its own."""
    return popped_again.is_popped() | revived.is_copy()


def _meant_for_several(facts: Facts, meant: audiences.Audiences) -> list[DataFrame]:
    """Only where there is a broadcasting group, or a topic of several groups."""
    known = facts.counted.overlap if facts.counted else Overlap()
    by_member = [audiences.by_member(facts.deliveries, meant.broadcasting)] if meant.broadcasting else []
    by_group = [audiences.by_group(facts.deliveries, meant.shared, known)] if meant.shared else []
    return by_member + by_group


def _life(facts: Facts, pairs: DataFrame) -> life.Life:
    lives, struck = both(
        lambda: settled(queues.process_queues(facts.events)), lambda: rare(faults.done(facts.events, facts.processes))
    )
    contested = contests.contests(pairs, facts.events, contests.MadeFrames(lives, facts.processes, struck))
    blocked = sf.broadcast(lives.select("boot_id", "pq_id", sf.col("mark.mem_off").alias("queue_offset")))
    keys = ["boot_id", "pq_id", "queue_offset"]
    blockers = (
        facts.deliveries.join(blocked, keys, how="left_semi")
        .groupBy(*keys)
        .agg(sf.min(sf.struct("seq", "delivery_id", "queue_offset")).alias("blocker"))
    )
    contested, blockers, committed, answered, moves, memories, *copied_offsets = all_of(
        rare, contested, blockers, queues.committed(facts.events), queues.answered(facts.events),
        memory.moves(facts.events), memory.memories(facts.events), *replicas.replicas(facts.events),
    )  # fmt: skip
    return life.Life(
        lives, committed, answered, moves, memories, facts.brokers, facts.processes, struck, blockers, contested,
        replicas.Replicas(*copied_offsets), jumps.jumps(facts.events),
    )  # fmt: skip


def _delivered_rows(judged: DataFrame) -> DataFrame:
    key = sf.concat_ws("|", "second.consumer_group", "identity", _delivery_id("first"), _delivery_id("second"))
    return judged.select(
        key.alias("key"),
        sf.col("second.wall_us").alias("wall_us"),
        sf.col("second.consumer_group").alias("consumer_group"),
        "identity",
        sf.col("second.unique_key").alias("message_id"),
        sf.coalesce("second.business_key", "first.business_key").alias("business_key"),
        *[_struct(side, _delivery_id(side), sf.col(f"{side}.result")) for side in ("first", "second")],
        "cause", "stage", "trigger", "missing", "expected", "evidence",
    )  # fmt: skip


def _stored_rows(judged: DataFrame) -> DataFrame:
    nothing = sf.lit(None).cast("string")
    places = [f"{side}.{name}" for side in ("first", "second") for name in identity.RECORD]
    return judged.select(
        sf.concat_ws("|", "second.unique_key", *places).alias("key"),
        sf.col("second.wall_us").alias("wall_us"),
        nothing.alias("consumer_group"),
        "identity",
        sf.col("second.unique_key").alias("message_id"),
        nothing.alias("business_key"),
        *[_struct(side, nothing, nothing) for side in ("first", "second")],
        "cause", "stage", "trigger", "missing", "expected", "evidence",
    )  # fmt: skip


def _delivery_id(side: str) -> Column:
    """The id that a handler sees on its message: unique over all processes."""
    return sf.concat_ws("-", f"{side}.boot_id", f"{side}.delivery_id")


def _struct(side: str, delivery_id: Column, result: Column) -> Column:
    return sf.struct(
        f"{side}.process", f"{side}.boot_id", delivery_id.alias("delivery_id"), f"{side}.broker_name", f"{side}.topic",
        f"{side}.queue_id", f"{side}.queue_offset",
        offset_message_id(f"{side}.store_host", f"{side}.log_offset").alias("offset_message_id"),
        timestamp(f"{side}.wall_us").alias("delivered_at"),
        result.alias("result"),
    ).cast(DELIVERY).alias(side)  # fmt: skip


def _table(judged: DataFrame, kind: str, run_id: str) -> DataFrame:
    certainty = sf.when(sf.col("cause").isNull(), "undetermined").otherwise("certain")
    rows = judged.select(
        "*",
        sf.lit(run_id).alias("run_id"),
        id_of(sf.concat_ws("|", sf.lit(kind), "key")).alias("finding_id"),
        sf.lit(kind).alias("kind"),
        timestamp("wall_us").alias("time"),
        certainty.alias("certainty"),
    )
    return contract(rows, FINDING_COLUMNS)


def all_anomalies(facts: Facts, run_id: str) -> DataFrame:
    """Everything wrong that is no duplicate, in the columns of the anomalies table.

    Most anomalies are that something is missing. Where processes were made of logs, only what is there is told.
    """
    if not facts.processes.where("made_of <> ''").isEmpty():
        return _anomalies(_that_are_there(facts), run_id)
    gone = rare(losses.cut_off(facts.appends, facts.events))
    there = losses.left(facts.appends, gone)
    found = [
        common.lost(facts.events, facts.sends, facts.appends, facts.brokers),
        losses.lost_with_their_log(facts.sends, there, gone),
        common.unseen(facts.events, there, facts.deliveries),
        common.out_of_order(clocks.in_time(facts.deliveries, facts.processes)),
        common.offset_regressions(facts.events),
        *_ownership(facts),
        *oddities(facts),
    ]
    return _anomalies(found, run_id)


def _anomalies(found: list[DataFrame], run_id: str) -> DataFrame:
    # not its words: how often and for how long something was so grows with the journals
    said = sf.get("evidence", sf.lit(0))
    place = sf.concat_ws(
        "|", "kind", "consumer_group", "message_id", "broker_name", "topic", "queue_id", "queue_offset",
        said["boot_id"], said["seq"],
    )  # fmt: skip
    identified = united(found).withColumn("anomaly_id", id_of(place))
    return contract(identified.withColumn("run_id", sf.lit(run_id)), ANOMALY_COLUMNS)


def _that_are_there(facts: Facts) -> list[DataFrame]:
    """Anomalies that logs and stores show by themselves."""
    shared = some(ownership.met(settled(ownership.holdings(facts.events, facts.processes))))
    found = [] if shared is None else [ownership.two_owners_for_long(facts.processes, shared)]
    return [
        *found,
        common.offset_regressions(facts.events),
        places.inconsistent_offsets(places.two_values(facts.deliveries.where("queue_offset >= 0"))),
        odd_retries.given_up(odd_retries.dead_letters(facts.appends)),
    ]


def _ownership(facts: Facts) -> list[DataFrame]:
    """Most journals have none of that: all rounds and locks are looked at only where there is something to explain."""
    held = settled(ownership.holdings(facts.events, facts.processes))
    shared, between, granted = some(ownership.met(held)), some(ownership.gaps(held)), some(locks.grants(facts.events))
    found = [] if shared is None else [ownership.two_owners(facts.events, shared)]
    found += [] if granted is None else [holders.two_holders(facts.events, facts.processes, granted)]
    return found if between is None else [*found, ownership.no_owner(facts.events, between)]
