"""B1: a delayed or retried message that a broker delivered before a crash and once more after it. B2: that a master
delivered, and once more the slave that was made the master.

Each delivery's APPEND names the place in the schedule topic that it was made from (``level:offset``). Two appends from
one place, by two starts of the broker, of which the later one found the store as a crash leaves it, and no
PROGRESS_FLUSH between them that had gone past the place: then the progress on disk was older than the first delivery.
The line stands before the file is replaced, so the last one before the crash proves nothing; the one before it does.

B2 needs a promotion between the two appends, and no progress of the slave's past the place: of all its PROGRESS_FLUSH
lines until then, which are told from its master's by the id in the BOOT of their starts.

What the second start read, its PROGRESS_LOAD, says it outright; only without it does the absence of others count.
"""

from dejamq_proto.events import Boot, ProgressFlush, ProgressLoad
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from dejamq_analytics.rules.evidence import first_of, line, lines, text
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.rules.replicas import promotions
from dejamq_analytics.rules.stage import NOT_BY_THIS_VERSION
from dejamq_analytics.schema import of


def scheduled_twice(appends: DataFrame) -> DataFrame:
    """(``first``, ``second``): deliveries made from one place in the schedule topic, each with the one before it."""
    whole = sf.struct(*appends.columns)
    made = appends.where((sf.col("origin") == "schedule") & sf.col("origin_ref").isNotNull())
    # the key is among them because a broker with a new store counts its places from 0 again
    place = ("broker_name", "origin_ref", "topic", "unique_key")
    before = sf.lag(whole).over(Window.partitionBy(*place).orderBy("wall_us", "boot_id", "seq"))
    ranked = made.select(whole.alias("second"), before.alias("first"))
    return ranked.where(sf.col("first").isNotNull()).select("first", "second")


def judged(copies: DataFrame, events: DataFrame, processes: DataFrame) -> DataFrame:
    """Those pairs with cause, stage, trigger, missing, expected and evidence."""
    known = _with_told(copies, events, processes)
    after_promotion, missing = sf.col("after_promotion"), _undecided()
    return known.select(
        sf.lit("I2").alias("identity"), "first", "second",
        sf.when(missing.isNull(), sf.when(after_promotion, "B2").otherwise("B1")).alias("cause"),
        sf.lit("delay").alias("stage"),
        sf.when(after_promotion, text("a slave of %s became the master", "second.broker_name"))
        .otherwise(text("%s started after a crash", "second.broker_name"))
        .alias("trigger"),
        missing.alias("missing"),
        sf.lit(False).alias("expected"),
        _evidence().alias("evidence"),
    )  # fmt: skip


def _with_told(copies: DataFrame, events: DataFrame, processes: DataFrame) -> DataFrame:
    """The pairs with what the journals tell of the time between the two appends."""
    loaded = sf.struct("wall_us", "process", "boot_id", "seq", "source", "progress")
    read = of(events, ProgressLoad).where("service = 'schedule'").groupBy("boot_id").agg(sf.max(loaded).alias("loaded"))
    frame = beside(copies, read, {"boot_id": "second.boot_id"})
    journal = processes.select("boot_id", sf.struct("process", "gaps", "level", "closed").alias("journal"))
    frame = beside(frame, journal, {"boot_id": "first.boot_id"})
    broker = {"broker_name": "second.broker_name"}
    frame = beside(frame, _in_order(of(events, Boot), "clean"), broker).withColumnRenamed("told", "boots")
    progress = _in_order(of(events, ProgressFlush).where("service = 'schedule'"), "progress")
    frame = beside(frame, progress, broker).withColumnRenamed("told", "written")
    frame = beside(beside(frame, promotions(events), broker), _of_slaves(events, journal), broker)
    between = sf.filter("written", lambda one: _inside(one) & _is_past(one))
    told = frame.withColumns({
        "one_start": sf.col("first.boot_id") == sf.col("second.boot_id"),
        "boot": sf.get(sf.filter("boots", _inside), sf.lit(0)),
        "crash": sf.get(sf.filter("boots", lambda one: _inside(one) & ~one["clean"]), sf.lit(0)),
        "before": _last_before_first(),
        "past": sf.when(sf.size(between) > 1, sf.get(between, sf.lit(0))),
        "promoted": sf.array_max(sf.filter("promotions", _inside)),
        "copied": sf.array_max(sf.filter("copies", lambda one: one["wall_us"] < sf.col("second.wall_us"))),
    })  # fmt: skip
    return told.withColumn("after_promotion", sf.col("promoted").isNotNull() & ~sf.col("one_start"))


def _undecided() -> Column:
    """What speaks against a second delivery of this kind, or is not there to speak for it; null for a sure one."""
    after_promotion, loaded = sf.col("after_promotion"), sf.col("loaded")
    forgot = text("the progress written in line %s of %s was lost", "copied.seq", "copied.process")
    return first_of(
        (after_promotion & sf.coalesce(_is_past(sf.col("copied")), sf.lit(False)), forgot),
        (~after_promotion & _missing().isNotNull(), _missing()),
        (loaded.isNotNull() & _is_past(loaded), sf.lit(NOT_BY_THIS_VERSION + "it had read a later progress")),
        (loaded.isNotNull(), sf.lit(None).cast("string")),
        (after_promotion, _missing_of_slaves()),
        (sf.lit(True), _missing_of_master()),
    )


def _evidence() -> Column:
    level = _place()[0]

    def up_to(name: str, words: str) -> Column:
        return _line("PROGRESS_LOAD" if name == "loaded" else "PROGRESS_FLUSH",
                     text(words, level, _next(sf.col(name), level)), name)  # fmt: skip

    return lines(
        up_to("before", "level %s up to %s"),
        _appended("first"),
        _line("BOOT", text("clean %s", "crash.clean"), "crash"),
        up_to("copied", "a slave's: %s up to %s"),
        up_to("loaded", "read: level %s up to %s"),
        _line("REPLICA", text("goes on as master from log offset %s", "promoted.log_offset"), "promoted"),
        _appended("second"),
    )


def _missing() -> Column:
    """What speaks against a crash, or is not there to speak for it; null where everything is."""
    return first_of(
        (sf.col("one_start"), sf.lit(NOT_BY_THIS_VERSION + "one start of a broker delivered a delayed message twice")),
        (sf.col("boot").isNull(), text("no BOOT of %s with boot id %s", "second.process", "second.boot_id")),
        (sf.col("crash").isNull(), sf.lit(NOT_BY_THIS_VERSION + "delivered again although the broker ended cleanly")),
        (sf.col("past").isNotNull(),
         text("the progress written in line %s of %s was lost", "past.seq", "past.process")),
    )  # fmt: skip


def _missing_of_master() -> Column:
    """What is not there of the first start, which may have written its progress."""
    return first_of(
        (sf.exists("journal.gaps", lambda gap: gap["last"] > sf.col("first.seq")),
         text("seq gap of %s", "first.process")),
        (~_is_whole(), text("the last lines of %s", "first.process")),
    )  # fmt: skip


def _missing_of_slaves() -> Column:
    """What is not there of the slave that may have had the progress."""
    return first_of(
        (sf.coalesce(sf.col("slave_us") > sf.col("promoted.wall_us"), sf.lit(True)),
         text("no BOOT of the slave that became the master of %s", "second.broker_name")),
        (sf.col("torn_slave").isNotNull(), text("the last lines of %s", "torn_slave")),
    )  # fmt: skip


def _is_whole() -> Column:
    """Whether the journal of this start has all that it wrote until its end."""
    return sf.col("journal.closed") | (sf.col("journal.level") == "forensic")


def _of_slaves(events: DataFrame, journal: DataFrame) -> DataFrame:
    """``copies``: what slaves of each broker wrote down of its progress, in order; ``torn_slave``: one of whose journal
    lines are missing.
    """
    slaves = of(events, Boot).where(sf.col("broker_id") > 0).select("broker_name", "boot_id").distinct()
    torn = sf.when(~_is_whole() | (sf.size("journal.gaps") > 0), sf.col("journal.process"))
    known = beside(slaves, journal, {"boot_id": "boot_id"}).groupBy("broker_name").agg(sf.max(torn).alias("torn_slave"))
    written = of(events, ProgressFlush).where("service = 'schedule'")
    told = written.join(sf.broadcast(slaves.select("boot_id")), "boot_id", how="left_semi")
    copied = _in_order(told, "progress").withColumnRenamed("told", "copies")
    return beside(known, copied, {"broker_name": "broker_name"})


def _in_order(events: DataFrame, *more: str) -> DataFrame:
    """``told``: these lines of each broker, in its order."""
    one = sf.struct("wall_us", "process", "boot_id", "seq", *more)
    return events.groupBy("broker_name").agg(sf.array_sort(sf.collect_list(one)).alias("told"))


def _inside(one: Column) -> Column:
    """Whether the line stands between the two appends."""
    return (one["wall_us"] > sf.col("first.wall_us")) & (one["wall_us"] < sf.col("second.wall_us"))


def _place() -> tuple[Column, Column]:
    """Level and offset in the schedule topic."""
    level, offset = (sf.split(sf.col("second.origin_ref"), ":")[part] for part in (0, 1))
    return level, offset.cast("bigint")


def _is_past(told: Column) -> Column:
    """Whether this progress lies behind the place: the broker would not deliver from it again."""
    level, offset = _place()
    return _next(told, level) > offset


def _next(written: Column, level: Column) -> Column:
    """The next offset of the level that this progress tells; 0 where it tells nothing."""
    return sf.coalesce(sf.from_json(written["progress"], "map<string,bigint>")[level], sf.lit(0))


def _last_before_first() -> Column:
    """The progress that was on disk when the first copy was stored."""
    earlier = sf.filter("written", lambda one: one["wall_us"] < sf.col("first.wall_us"))
    return sf.get(earlier, sf.size(earlier) - 1)


def _line(event: str, summary: Column, told: str) -> Column:
    return line(event, summary, process=f"{told}.process", boot_id=f"{told}.boot_id", seq=f"{told}.seq")


def _appended(side: str) -> Column:
    summary = text("%s queue %s offset %s from %s of the schedule topic", f"{side}.topic", f"{side}.queue_id",
                   f"{side}.queue_offset", f"{side}.origin_ref")  # fmt: skip
    return _line("APPEND", summary, side)
