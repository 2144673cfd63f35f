"""P7, P8: a transaction whose message was committed more than once.

Each committed record has an APPEND of origin tx_final. The broker's END_TRANSACTION and the producer's TX tell of its
request: which half message was ended, and whether by the program's own word or by the answer to a check.

P8: the mark of the first end is missing, and the half message was stored anew afterwards to be asked about. The mark
was not yet in the log when the broker was killed, or it is not in the log of the slave that became the master. P7:
every other way to a second commit, as the broker does not look whether a transaction has ended.
"""

from typing import NamedTuple

from dejamq_proto.journal.events import Boot, EndTransaction, ProgressFlush, Tx

from dejamq_analytics.frames import Column, DataFrame, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line_of, lines, text, without_journal
from dejamq_analytics.rules.history.replicas import MASTER, promotions
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.sources.needs import Needs, every

needs = Needs(every(Boot, EndTransaction, ProgressFlush, Tx))
MARKS = "struct<half_offsets:array<bigint>,log_offset:bigint>"
SIDES = ("first", "second")


class TransactionFacts(NamedTuple):
    """Journal lines about transactions, and about the processes that wrote them."""

    events: DataFrame
    appends: DataFrame
    sends: DataFrame
    processes: DataFrame


def committed_twice(appends: DataFrame) -> DataFrame:
    """(``first``, ``second``): committed records of one message in one topic, each with the one before it."""
    whole = sf.struct(*appends.columns)
    in_log = (sf.col("origin") == "transaction") & ~sf.col("topic").startswith("RMQ_SYS_")
    finals = appends.where(((sf.col("origin") == "tx_final") | in_log) & sf.col("unique_key").isNotNull())
    order = Window.partitionBy("topic", "unique_key").orderBy("wall_us", "boot_id", "seq", "log_offset")
    ranked = finals.select(whole.alias("second"), sf.lag(whole).over(order).alias("first"))
    return ranked.where(sf.col("first").isNotNull()).select("first", "second")


def judged(pairs: DataFrame, told: TransactionFacts) -> DataFrame:
    """Those pairs with cause, stage, trigger, missing, expected and evidence."""
    frame = pairs
    for side in SIDES:
        frame = _with_end(frame, told, side)
    frame = beside(frame, _halves(told), {"unique_key": "second.unique_key"}, small=False)
    frame = _with_crash(_with_mark(frame, told), told)
    decided = frame.withColumn("decision", _decision())
    return decided.select(
        sf.lit("I2").alias("identity"), *SIDES,
        sf.col("decision.cause").alias("cause"),
        sf.lit("transaction").alias("stage"),
        sf.col("decision.trigger").alias("trigger"),
        sf.col("decision.missing").alias("missing"),
        sf.lit(False).alias("expected"),
        _evidence().alias("evidence"),
    )  # fmt: skip


def _with_end(frame: DataFrame, told: TransactionFacts, side: str) -> DataFrame:
    """The broker's END_TRANSACTION and the producer's TX of this commit, and the broker's process."""
    half = ("half_queue_offset", "half_log_offset", "from_check")
    ends = _committed(told.events).groupBy("boot_id", "client_boot_id", "request_seq").agg(
        sf.min(sf.struct("seq", "process", "boot_id", *half)).alias(f"{side}_end")
    )  # fmt: skip
    request = {"client_boot_id": f"{side}.client_boot_id", "request_seq": f"{side}.request_seq"}
    frame = beside(frame, ends, {"boot_id": f"{side}.boot_id"} | request, small=False)
    said = sf.struct("seq", "process", "boot_id", "state", "from_check")
    words = needs.of(told.events, Tx).groupBy("boot_id", "request_seq").agg(sf.min(said).alias(f"{side}_tx"))
    producer = {"boot_id": f"{side}.client_boot_id", "request_seq": f"{side}.request_seq"}
    return beside(frame, words, producer, small=False)


def _committed(events: DataFrame) -> DataFrame:
    return needs.of(events, EndTransaction).where("outcome = 'committed'")


def _halves(told: TransactionFacts) -> DataFrame:
    """For each transaction: the half messages that producers sent, by whom, and those that checks stored anew."""
    sent = told.sends.groupBy("boot_id", "request_seq", "unique_key").agg(
        sf.min(sf.struct("boot_id", "call_id")).alias("call")
    )  # fmt: skip
    stored = told.appends.where("origin IN ('tx_half', 'tx_check')")
    keys = {"boot_id": "client_boot_id", "request_seq": "request_seq", "unique_key": "unique_key"}
    known = beside(stored, sent, keys, small=False)
    is_sent = sf.col("origin") == "tx_half"
    half = sf.struct(
        "wall_us", "process", "boot_id", "seq", "broker_name", "queue_offset", "log_offset", "origin_ref", "call"
    )  # fmt: skip
    return known.groupBy("unique_key").agg(
        sf.array_sort(sf.collect_list(sf.when(is_sent, half))).alias("halves"),
        sf.array_sort(sf.collect_list(sf.when(~is_sent, half))).alias("checks"),
    )


def _with_mark(frame: DataFrame, told: TransactionFacts) -> DataFrame:
    """``marks``: op messages of the first commit's broker that mark the half message it ended."""
    marks = needs.of(told.events, ProgressFlush).where("service = 'transaction_op'")
    marks = marks.withColumn("mark", sf.from_json("progress", MARKS)).select(
        "boot_id", sf.explode("mark.half_offsets").alias("half_offset"),
        sf.struct("wall_us", "process", "boot_id", "seq", sf.col("mark.log_offset").alias("log_offset")).alias("one"),
    )  # fmt: skip
    by_half = marks.groupBy("boot_id", "half_offset").agg(sf.min("one").alias("mark"))
    place = {"boot_id": "first.boot_id", "half_offset": "first_end.half_queue_offset"}
    return beside(frame, by_half, place, small=False)


def _with_crash(frame: DataFrame, told: TransactionFacts) -> DataFrame:
    """``boot``: the first start as master between the two commits whose log ends before the mark, or else the first.

    ``promoted``: that it had been a slave. ``broker``: the process of the first commit.
    """
    one = sf.struct("wall_us", "process", "boot_id", "seq", "clean", "log_max")
    masters = needs.of(told.events, Boot).where(sf.col("broker_id") == MASTER)
    boots = masters.groupBy("broker_name").agg(sf.array_sort(sf.collect_list(one)).alias("boots"))
    frame = beside(frame, boots, {"broker_name": "first.broker_name"})
    frame = beside(frame, promotions(told.events), {"broker_name": "first.broker_name"})
    between = sf.filter("boots", lambda boot: _between(boot["wall_us"]))
    cut = sf.filter(between, lambda boot: boot["log_max"] <= sf.col("mark.log_offset"))
    boot = sf.coalesce(sf.get(cut, sf.lit(0)), sf.get(between, sf.lit(0)))
    frame = frame.withColumn("boot", sf.when(_one_broker(), boot))
    was_slave = sf.filter("promotions", lambda one: one["boot_id"] == sf.col("boot.boot_id"))
    frame = frame.withColumn("promoted", sf.get(was_slave, sf.lit(0)))
    process = told.processes.select(
        "boot_id", sf.struct("process", "gaps", "level", "closed", "made_of").alias("broker")
    )
    return beside(frame, process, {"boot_id": "first.boot_id"})


def _decision() -> Column:
    """First what is not known; then several calls of the program; then the lost mark; what remains is P7."""
    calls = sf.array_distinct(sf.transform("halves", lambda half: half["call"]))
    unsent = sf.filter("halves", lambda half: half["call"].isNull())
    promoted = sf.col("promoted").isNotNull()
    crashed = sf.col("boot").isNotNull() & (promoted | ~sf.col("boot.clean"))
    ended_first = _ended("first")
    asked = sf.filter("checks", lambda check: (check["origin_ref"] == ended_first) & _at_first_broker(check))
    before = sf.filter(asked, lambda check: check["wall_us"] < sf.col("boot.wall_us"))
    lost = sf.col("mark").isNull() | (sf.col("mark.log_offset") >= sf.col("boot.log_max"))
    p8 = crashed & lost & (sf.size(asked) > 0) & (sf.size(before) == 0)
    rests_on_absence = p8 & sf.col("mark").isNull()
    return first_of(
        *[(_unknown(side).isNotNull(), _undecided(_unknown(side))) for side in SIDES],
        ((sf.size("halves") > 1) & (sf.size(unsent) > 0), _undecided(
            text("no SEND_TRY of each half message of %s", "second.unique_key"))),
        (sf.size(calls) > 1, _caused("P5", sf.lit("the application sent the message in another transaction"))),
        (rests_on_absence & _hole().isNotNull(), _undecided(_hole())),
        (p8 & promoted, _caused("P8", text("a slave of %s became the master without the mark", "first.broker_name"))),
        (p8, _caused("P8", text("%s was killed before it had marked the half message", "first.broker_name"))),
        (sf.lit(True), _caused("P7", _trigger())),
    )  # fmt: skip


def _trigger() -> Column:
    """How the second commit came about."""
    own = ~sf.col("first_end.from_check"), ~sf.col("second_end.from_check")
    return first_of(
        (sf.size("halves") > 1, sf.lit("the producer's second try stored the half message twice")),
        (own[0] & own[1], sf.lit("one commit came twice")),
        (own[0] | own[1], sf.lit("the program's own commit and the answer to a check")),
        (sf.lit(True), sf.lit("the answers to two checks")),
    )


def _unknown(side: str) -> Column:
    """Which line of this commit is missing."""
    append, end = sf.col(side), sf.col(f"{side}_end")
    unjournaled = text(
        "no APPEND line of a committed record at %s, only its commit log: two commits (P7) and a lost mark (P8) look "
        "alike", append["broker_name"],
    )  # fmt: skip
    untold = text("no END_TRANSACTION of request %s by %s", append["request_seq"], append["process"])
    unbegun = text("no APPEND of the half message %s of %s", _ended(side), append["unique_key"])
    return first_of(
        (append["process"].isNull(), unjournaled), (end.isNull(), untold), (~_is_known(side), unbegun),
    )  # fmt: skip


def _ended(side: str) -> Column:
    """The half message that this commit ended, as ``origin_ref`` names it."""
    return text("%s:%s", f"{side}_end.half_queue_offset", f"{side}_end.half_log_offset")


def _is_known(side: str) -> Column:
    """Whether a line tells how that half message came to be."""
    place = _ended(side)

    def among(told: str) -> Column:
        return sf.exists(told, lambda half: text("%s:%s", half["queue_offset"], half["log_offset"]) == place)

    return sf.coalesce(among("halves") | among("checks"), sf.lit(False))


def _hole() -> Column:
    """Why the absence of a mark proves nothing; null where the journal of the killed broker is whole.

    Where its lines were made of evidence, its commit log has no mark: such a commit is told of only then.
    """
    broker = sf.col("broker")
    gaps = sf.filter(broker["gaps"], lambda gap: gap["last"] > sf.col("first.seq"))
    return first_of(
        (sf.size(gaps) > 0, text("seq gap of %s", broker["process"])),
        (
            ~(broker["closed"] | (broker["level"] == "forensic") | without_journal(broker)),
            text("the last lines of %s", broker["process"]),
        ),
    )


def _one_broker() -> Column:
    return sf.col("first.broker_name") == sf.col("second.broker_name")


def _at_first_broker(half: Column) -> Column:
    return half["broker_name"] == sf.col("first.broker_name")


def _between(wall_us: Column) -> Column:
    return (wall_us > sf.col("first.wall_us")) & (wall_us < sf.col("second.wall_us"))


def _caused(cause: str, trigger: Column) -> Column:
    nothing = sf.lit(None).cast("string")
    return sf.struct(sf.lit(cause).alias("cause"), trigger.alias("trigger"), nothing.alias("missing"))


def _undecided(missing: Column) -> Column:
    nothing = sf.lit(None).cast("string")
    return sf.struct(nothing.alias("cause"), nothing.alias("trigger"), missing.alias("missing"))


def _evidence() -> Column:
    """Both commits with the words they came by, and what stood between them."""
    half = sf.get("halves", sf.lit(0))
    first_lines, second_lines = (_of_commit(side) for side in SIDES)
    asked = sf.get(sf.filter("checks", lambda check: check["wall_us"] < sf.col("second.wall_us")), sf.lit(0))
    return lines(
        line_of("APPEND", text("half message, queue offset %s", half["queue_offset"]), half),
        *first_lines,
        line_of("PROGRESS_FLUSH", text("mark of half offset %s", "first_end.half_queue_offset"), sf.col("mark")),
        line_of("BOOT", text("clean %s", "boot.clean"), sf.col("boot")),
        line_of("REPLICA", text("goes on as master from log offset %s", "promoted.log_offset"), sf.col("promoted")),
        line_of("APPEND", text("half message anew from %s, to be asked about", asked["origin_ref"]), asked),
        *second_lines,
    )


def _of_commit(side: str) -> list[Column]:
    append, end, said = sf.col(side), sf.col(f"{side}_end"), sf.col(f"{side}_tx")
    place = text("committed: %s queue %s offset %s, log offset %s", append["topic"], append["queue_id"],
                 append["queue_offset"], append["log_offset"])  # fmt: skip
    ended = text("half offset %s, from a check: %s", end["half_queue_offset"], end["from_check"])
    return [
        line_of("TX", text("%s, from a check: %s", said["state"], said["from_check"]), said),
        line_of("APPEND", place, append),
        line_of("END_TRANSACTION", ended, end),
    ]  # fmt: skip
