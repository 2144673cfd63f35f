"""B1: a delayed or retried message that a broker delivered before a crash and once more after it. B2: that a master
delivered, and once more the slave that was made the master. B4: either of it, of a message for a time.

Each delivery's APPEND names the place in the schedule topic that it was made from (``level:offset``). B1 needs two
appends from one place, by two starts of the broker, and the later start found the store as a crash leaves it. No
PROGRESS_FLUSH between them may have gone past the place. Then the progress on disk was older than the first delivery.
The line stands before the file is replaced, so the last one before the crash proves nothing; the one before it does.

B2 needs a promotion between the two appends, and no progress of the slave past the place in all its PROGRESS_FLUSH
lines until then. The id in the BOOT of a start tells the slave's lines from its master's.

A timed message's APPEND names its slot and its place in the timer topic (``slot:offset``). Progress is past it when it
is past both: what was taken up later is delivered with a slot that was over before.

The second start's PROGRESS_LOAD says outright what was read. The absence of other lines counts only without it.
"""

from dejamq_proto.journal.events import Boot, ProgressFlush, ProgressLoad

from dejamq_analytics.frames import Column, DataFrame, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line_of, lines, text, without_journal
from dejamq_analytics.rules.history.replicas import promotions
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.rules.stage import NOT_BY_THIS_VERSION
from dejamq_analytics.sources.needs import Needs, every

needs = Needs(every(Boot, ProgressFlush, ProgressLoad))


def scheduled_twice(appends: DataFrame) -> DataFrame:
    """(``first``, ``second``): deliveries made from one place in the schedule topic or the timer topic, each with the
    one before it.
    """
    whole = sf.struct(*appends.columns)
    made = appends.where(sf.col("origin").isin("schedule", "timer") & sf.col("origin_ref").isNotNull())
    # the key is among them because a broker with a new store counts its places from 0 again
    place = ("broker_name", "origin", "topic", "unique_key")
    in_topic = sf.when(sf.col("origin") == "timer", sf.split("origin_ref", ":")[1]).otherwise(sf.col("origin_ref"))
    before = sf.lag(whole).over(Window.partitionBy(*place, in_topic).orderBy("wall_us", "boot_id", "seq"))
    ranked = made.select(whole.alias("second"), before.alias("first"))
    return ranked.where(sf.col("first").isNotNull()).select("first", "second")


def judged(copies: DataFrame, events: DataFrame, processes: DataFrame) -> DataFrame:
    """Those pairs with cause, stage, trigger, missing, expected and evidence."""
    known = _with_told(copies, events, processes)
    after_promotion, missing = sf.col("after_promotion"), _undecided()
    return known.select(
        sf.lit("I2").alias("identity"), "first", "second",
        sf.when(missing.isNull(), first_of(
            (_timed(), sf.lit("B4")), (after_promotion, sf.lit("B2")), (sf.lit(True), sf.lit("B1")),
        )).alias("cause"),
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
    read = needs.of(events, ProgressLoad).groupBy("boot_id", "service").agg(sf.max(loaded).alias("loaded"))
    frame = beside(copies, read, {"boot_id": "second.boot_id", "service": "second.origin"})
    journal = processes.select("boot_id", sf.struct("process", "gaps", "level", "closed", "made_of").alias("journal"))
    frame = beside(frame, journal, {"boot_id": "first.boot_id"})
    broker = {"broker_name": "second.broker_name"}
    service = broker | {"service": "second.origin"}
    frame = beside(frame, _in_order(needs.of(events, Boot), ("broker_name",), "clean"), broker)
    frame = frame.withColumnRenamed("told", "boots")
    progress = _in_order(needs.of(events, ProgressFlush), tuple(service), "progress")
    frame = beside(frame, progress, service).withColumnRenamed("told", "written")
    slaves = needs.of(events, Boot).where(sf.col("broker_id") > 0).select("broker_name", "boot_id").distinct()
    copied = needs.of(events, ProgressFlush).join(sf.broadcast(slaves.select("boot_id")), "boot_id", how="left_semi")
    copied = _in_order(copied, tuple(service), "progress").withColumnRenamed("told", "copies")
    frame = beside(beside(frame, promotions(events), broker), copied, service)
    frame = beside(frame, _torn(slaves, journal), broker)
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
    """Evidence against a second delivery of this kind, or missing evidence for it; null for a sure one."""
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
        read_ms, queue_offset = (_next(sf.col(name), sf.lit(key)) for key in ("read_ms", "queue_offset"))
        timed = words.replace("level ", "").replace("%s up to", "slots before %s, messages before")
        summary = sf.when(_timed(), text(timed, read_ms, queue_offset))
        return line_of("PROGRESS_LOAD" if name == "loaded" else "PROGRESS_FLUSH",
                     summary.otherwise(text(words, level, _next(sf.col(name), level))), name)  # fmt: skip

    return lines(
        up_to("before", "level %s up to %s"),
        _appended("first"),
        line_of("BOOT", text("clean %s", "crash.clean"), "crash"),
        up_to("copied", "a slave's: %s up to %s"),
        up_to("loaded", "read: level %s up to %s"),
        line_of("REPLICA", text("goes on as master from log offset %s", "promoted.log_offset"), "promoted"),
        _appended("second"),
    )


def _missing() -> Column:
    """Evidence against a crash, or missing evidence for it; null where all evidence is there."""
    return first_of(
        (sf.col("one_start"), sf.lit(NOT_BY_THIS_VERSION + "one start of a broker delivered a delayed message twice")),
        (sf.col("boot").isNull(), text("no BOOT of %s with boot id %s", "second.process", "second.boot_id")),
        (sf.col("crash").isNull(), sf.lit(NOT_BY_THIS_VERSION + "delivered again although the broker ended cleanly")),
        (sf.col("past").isNotNull(),
         text("the progress written in line %s of %s was lost", "past.seq", "past.process")),
    )  # fmt: skip


def _missing_of_master() -> Column:
    """Missing evidence of the first start, which may have written its progress."""
    return first_of(
        (sf.exists("journal.gaps", lambda gap: gap["last"] > sf.col("first.seq")),
         text("seq gap of %s", "first.process")),
        (~_is_whole(), text("the last lines of %s", "first.process")),
    )  # fmt: skip


def _missing_of_slaves() -> Column:
    """Missing evidence of the slave that may have had the progress."""
    return first_of(
        (sf.coalesce(sf.col("slave_us") > sf.col("promoted.wall_us"), sf.lit(True)),
         text("no BOOT of the slave that became the master of %s", "second.broker_name")),
        (sf.col("torn_slave").isNotNull(), text("the last lines of %s", "torn_slave")),
    )  # fmt: skip


def _is_whole() -> Column:
    """Whether the journal of this start has all that it wrote until its end.

    Evidence has no line of a progress that was written: there the second delivery itself shows what was read.
    """
    return sf.col("journal.closed") | (sf.col("journal.level") == "forensic") | without_journal(sf.col("journal"))


def _torn(slaves: DataFrame, journal: DataFrame) -> DataFrame:
    """``torn_slave``: one of each broker of whose journal lines are missing."""
    torn = sf.when(~_is_whole() | (sf.size("journal.gaps") > 0), sf.col("journal.process"))
    known = beside(slaves, journal, {"boot_id": "boot_id"})
    return known.groupBy("broker_name").agg(sf.max(torn).alias("torn_slave"))


def _in_order(events: DataFrame, by: tuple[str, ...], *more: str) -> DataFrame:
    """``told``: these lines of each broker, or of each of its services, in its order."""
    one = sf.struct("wall_us", "process", "boot_id", "seq", *more)
    return events.groupBy(*by).agg(sf.array_sort(sf.collect_list(one)).alias("told"))


def _inside(one: Column) -> Column:
    """Whether the line stands between the two appends."""
    return (one["wall_us"] > sf.col("first.wall_us")) & (one["wall_us"] < sf.col("second.wall_us"))


def _place() -> tuple[Column, Column]:
    """Level, or slot, and offset in the topic in which it waited."""
    level, offset = (sf.split(sf.col("second.origin_ref"), ":")[part] for part in (0, 1))
    return level, offset.cast("bigint")


def _is_past(told: Column) -> Column:
    """Whether this progress lies behind the place: the broker would not deliver from it again."""
    level, offset = _place()
    slot_ms = sf.split(sf.col("first.origin_ref"), ":")[0].cast("bigint")
    past_slot = _next(told, sf.lit("read_ms")) > slot_ms
    past = sf.when(_timed(), past_slot & (_next(told, sf.lit("queue_offset")) > offset))
    return past.otherwise(_next(told, level) > offset)


def _timed() -> Column:
    """Whether it is a message for a time, and not one with a delay level."""
    return sf.col("second.origin") == "timer"


def _next(written: Column, level: Column) -> Column:
    """The next offset of the level that this progress tells; 0 where it tells nothing."""
    return sf.coalesce(sf.from_json(written["progress"], "map<string,bigint>")[level], sf.lit(0))


def _last_before_first() -> Column:
    """The progress that was on disk when the first copy was stored."""
    earlier = sf.filter("written", lambda one: one["wall_us"] < sf.col("first.wall_us"))
    return sf.get(earlier, sf.size(earlier) - 1)


def _appended(side: str) -> Column:
    summary = text("%s queue %s offset %s from %s of the %s topic", f"{side}.topic", f"{side}.queue_id",
                   f"{side}.queue_offset", f"{side}.origin_ref", f"{side}.origin")  # fmt: skip
    return line_of("APPEND", summary, side)
