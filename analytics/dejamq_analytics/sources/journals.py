"""Reads journals with the explicit schema, and says of each process how complete its journal is."""

from collections.abc import Callable, Sequence

from dejamq_proto.journal.events import ClockJump, PqOpen, State
from dejamq_proto.journal.lines import files_in

from dejamq_analytics.frames import DataFrame, SparkSession, Window, in_duckdb
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources import local_lines
from dejamq_analytics.sources.needs import Needs, every
from dejamq_analytics.sources.paths import BadInput, local_path, reader, to_spark
from dejamq_analytics.sources.schema import UNREADABLE, journal_schema

needs = Needs(every(ClockJump, PqOpen, State))


def check_journals(journals: Sequence[str]) -> None:
    """Refuse what is plainly no journal before a JVM is started for it. Only local paths can be looked at."""
    if not journals:
        raise BadInput("no journal directory given: name the directory that DEJAMQ_JOURNAL_DIR pointed to")
    for journal in journals:
        folder = local_path(journal)
        if folder is None:
            continue
        if not folder.exists():
            raise BadInput(f"no such journal directory: {journal}")
        if folder.is_dir() and not any(folder.glob("*.jsonl")):
            raise BadInput(f"no journal (*.jsonl) in {journal}: were the processes started with journal_dir set?")


def read_lines(spark: SparkSession, journals: Sequence[str]) -> DataFrame:
    """All lines: events, and unreadable ones with their text in ``UNREADABLE``; ``file`` says where from."""
    check_journals(journals)
    if in_duckdb():
        return local_lines.read(spark, journals)
    reading = reader(spark, journals).schema(journal_schema()).option("columnNameOfCorruptRecord", UNREADABLE)
    reading = reading.option("pathGlobFilter", "*.jsonl").option("encoding", "UTF-8").option("lineSep", "\n")
    lines = _found(reading.json, journals)
    # parsed once; Spark also refuses to ask an uncached file for its unreadable lines alone
    return with_unreadable(lines.withColumn("file", sf.col("_metadata.file_name"))).cache()


def no_lines(spark: SparkSession) -> DataFrame:
    """As ``read_lines`` of an empty journal."""
    if in_duckdb():
        return local_lines.read(spark, [])
    return spark.createDataFrame([], journal_schema()).withColumn("file", sf.lit(""))


def read_texts(spark: SparkSession, journals: Sequence[str]) -> DataFrame:
    """The lines as they stand, ``text`` and ``file``: nothing is parsed."""
    check_journals(journals)
    reading = reader(spark, journals).option("pathGlobFilter", "*.jsonl").option("lineSep", "\n")
    lines = _found(reading.text, journals)
    return lines.select(sf.col("value").alias("text"), sf.col("_metadata.file_name").alias("file"))


def local_bytes(journals: Sequence[str], elsewhere: int) -> int:
    """The size of the journals; ``elsewhere`` bytes when one of them is not on this machine."""
    total = 0
    for journal in journals:
        folder = local_path(journal)
        if folder is None:
            return elsewhere
        total += sum(file.stat().st_size for file in files_in(folder))
    return total


def _found(read: Callable[[list[str]], DataFrame], journals: Sequence[str]) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        return read([to_spark(journal) for journal in journals])
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise BadInput(f"no such journal directory: {', '.join(journals)}") from None
        raise


def with_unreadable(lines: DataFrame) -> DataFrame:
    """Lines that Spark parsed. Without event or sequence a line is no event, though it is JSON: one was lost there."""
    none = sf.col("event").isNull() | sf.col("seq").isNull()
    return lines.withColumn(UNREADABLE, sf.coalesce(UNREADABLE, sf.when(none, sf.lit("no event"))))


def readable(lines: DataFrame) -> DataFrame:
    """The events alone, which have at least an event and a sequence."""
    return lines.where(sf.col(UNREADABLE).isNull() & sf.col("event").isNotNull() & sf.col("seq").isNotNull())


def steady(lines: DataFrame) -> DataFrame:
    """With ``wall_us`` as if no process's time of day had jumped: times of two processes can be compared again.

    Journals tell of jumps themselves (CLOCK). Where none does, the lines are given back as they are.
    """
    told = needs.lines(readable(lines), ClockJump)
    if told.isEmpty():
        return lines
    jumped = told.groupBy("boot_id").agg(sf.collect_list(sf.struct("seq", "jumped_ms")).alias("jumps"))
    before = sf.filter("jumps", lambda one: one["seq"] <= sf.col("seq"))
    jumped_ms = sf.transform(before, lambda one: one["jumped_ms"])
    ahead_ms = sf.aggregate(jumped_ms, sf.lit(0).cast("bigint"), lambda total, ms: total + ms)
    right = sf.col("wall_us") - sf.coalesce(ahead_ms, sf.lit(0)) * 1000
    corrected = lines.join(sf.broadcast(jumped), "boot_id", how="left").withColumn("wall_us", right)
    return corrected.select(*lines.columns)


def processes(lines: DataFrame) -> DataFrame:
    """One row a process start: its extent, its end, its level, and where its journal has holes.

    ``gaps`` are missing sequence numbers as structs of first and last; a torn line at the end counts as one, since an
    event stood there that nobody can read. ``opened`` are the places whose queues it opened, each with its group;
    ``own`` where the member kept the offsets itself. ``made_of`` is '' for a journal, and names the kinds of evidence
    that the lines of a foreign process were made of.
    """
    events = readable(lines)
    known = _extents(events).join(_holes(events), "boot_id", how="left").join(_torn(lines), "boot_id", how="full")
    next_seq = sf.coalesce("last_seq", sf.lit(0)) + 1
    tail = sf.when(sf.col("torn") > 0, sf.array(sf.struct(next_seq.alias("first"), next_seq.alias("last"))))
    nothing = sf.array().cast("array<struct<first:bigint,last:bigint>>")
    return known.select(
        "role", "process", "boot_id", "lines", "last_seq", "first_wall_us", "last_wall_us",
        sf.coalesce("closed", sf.lit(False)).alias("closed"),
        sf.coalesce("level", sf.lit("")).alias("level"),
        sf.coalesce("made_of", sf.lit("")).alias("made_of"),
        sf.coalesce("torn", sf.lit(0)).alias("torn"),
        "opened",
        sf.concat(sf.coalesce("holes", nothing), sf.coalesce(tail, nothing)).alias("gaps"),
    )  # fmt: skip


def _extents(events: DataFrame) -> DataFrame:
    # `state` and `reason` are read from the wide row: a second pass over the events would cost a join
    state = sf.when(needs.is_a(State), sf.col("state"))
    level = sf.regexp_extract(sf.coalesce("reason", sf.lit("")), r"\blevel=(\w+)", 1)
    made_of = sf.regexp_extract(sf.coalesce("reason", sf.lit("")), r"\bmade_of=([\w.,]+)", 1)
    own = sf.coalesce(sf.col("source").startswith("local"), sf.lit(False)).alias("own")
    opened = sf.struct("group", "broker_name", "topic", own)
    return events.groupBy("boot_id").agg(
        sf.max("role").alias("role"),
        sf.max("process").alias("process"),
        sf.count("*").alias("lines"),
        sf.max("seq").alias("last_seq"),
        sf.min("wall_us").alias("first_wall_us"),
        sf.max("wall_us").alias("last_wall_us"),
        sf.coalesce(sf.max(state == "closed"), sf.lit(False)).alias("closed"),
        sf.max(sf.when(state == "started", level)).alias("level"),
        sf.max(sf.when(state == "started", made_of)).alias("made_of"),
        sf.collect_set(sf.when(needs.is_a(PqOpen), opened)).alias("opened"),
    )


def _holes(events: DataFrame) -> DataFrame:
    """Missing runs of sequence numbers, also before the first line that is left after rotation."""
    before = sf.coalesce(sf.lag("seq").over(Window.partitionBy("boot_id").orderBy("seq")), sf.lit(0))
    steps = events.select("boot_id", "seq", before.alias("before")).where(sf.col("seq") > sf.col("before") + 1)
    hole = sf.struct((sf.col("before") + 1).alias("first"), (sf.col("seq") - 1).alias("last"))
    return steps.groupBy("boot_id").agg(sf.sort_array(sf.collect_list(hole)).alias("holes"))


def _torn(lines: DataFrame) -> DataFrame:
    """Unreadable lines, laid to the process that the file is named after: ``<role>-<process>-<boot id>[.1].jsonl``."""
    boot_id = sf.regexp_extract("file", r"([0-9A-Za-z]+)(\.1)?\.jsonl$", 1)
    return (
        lines.where(sf.col(UNREADABLE).isNotNull()).groupBy(boot_id.alias("boot_id")).agg(sf.count("*").alias("torn"))
    )
