"""Reads journals with the explicit schema, and says of each process how complete its journal is."""

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from dejamq_proto.events import ClockJump
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from dejamq_analytics.journal_files import files_in
from dejamq_analytics.schema import UNREADABLE, journal_schema, tag_of


class BadInput(ValueError):
    """What was given cannot be audited; the text says what to do."""


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


def local_path(uri: str) -> Path | None:
    """The path of a plain name or ``file:`` URI, None for other stores."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(parts.path)
    return Path(uri) if len(parts.scheme) < 2 else None


def read_lines(spark: SparkSession, journals: Sequence[str]) -> DataFrame:
    """All lines: events, and unreadable ones with their text in ``UNREADABLE``; ``file`` says where from."""
    check_journals(journals)
    reader = spark.read.schema(journal_schema()).option("columnNameOfCorruptRecord", UNREADABLE)
    reader = reader.option("pathGlobFilter", "*.jsonl").option("encoding", "UTF-8").option("lineSep", "\n")
    lines = _found(reader.json, journals)
    # parsed once; Spark also refuses to ask an uncached file for its unreadable lines alone
    return lines.withColumn("file", sf.col("_metadata.file_name")).cache()


def read_texts(spark: SparkSession, journals: Sequence[str]) -> DataFrame:
    """The lines as they stand, ``text`` and ``file``: nothing is parsed."""
    check_journals(journals)
    reader = spark.read.option("pathGlobFilter", "*.jsonl").option("lineSep", "\n")
    lines = _found(reader.text, journals)
    return lines.select(sf.col("value").alias("text"), sf.col("_metadata.file_name").alias("file"))


def local_bytes(journals: Sequence[str], elsewhere: int) -> int:
    """Their size, as far as it can be seen from here; what lies elsewhere is taken for so much."""
    total = 0
    for journal in journals:
        folder = local_path(journal)
        if folder is None:
            return elsewhere
        total += sum(file.stat().st_size for file in files_in(folder))
    return total


def _found(reader: Callable[[list[str]], DataFrame], journals: Sequence[str]) -> DataFrame:
    try:
        return reader([str(path.resolve()) if (path := local_path(uri)) else uri for uri in journals])
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise BadInput(f"no such journal directory: {', '.join(journals)}") from None
        raise


def readable(lines: DataFrame) -> DataFrame:
    """The events alone. A line without event or sequence is no event, whatever else it is."""
    return lines.where(sf.col(UNREADABLE).isNull() & sf.col("event").isNotNull() & sf.col("seq").isNotNull())


def steady(lines: DataFrame) -> DataFrame:
    """With ``wall_us`` as if no process's time of day had jumped: times of two processes can be compared again.

    Journals tell of jumps themselves (CLOCK). Where none does, the lines are given back as they are.
    """
    told = readable(lines).where(sf.col("event") == tag_of(ClockJump))
    if told.isEmpty():
        return lines
    jumped = told.groupBy("boot_id").agg(sf.collect_list(sf.struct("seq", "jumped_ms")).alias("jumps"))
    before = sf.filter("jumps", lambda one: one["seq"] <= sf.col("seq"))
    ahead_ms = sf.aggregate(before, sf.lit(0).cast("bigint"), lambda total, one: total + one["jumped_ms"])
    right = sf.col("wall_us") - sf.coalesce(ahead_ms, sf.lit(0)) * 1000
    corrected = lines.join(sf.broadcast(jumped), "boot_id", how="left").withColumn("wall_us", right)
    return corrected.select(*lines.columns)


def processes(lines: DataFrame) -> DataFrame:
    """One row a process start: its extent, its end, its level, and where its journal has holes.

    ``gaps`` are missing sequence numbers as structs of first and last; a torn line at the end counts as one, since an
    event stood there that nobody can read. ``opened`` are the places whose queues it opened, each with its group;
    ``own`` where the member kept the offsets itself.
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
        sf.coalesce("torn", sf.lit(0)).alias("torn"),
        "opened",
        sf.concat(sf.coalesce("holes", nothing), sf.coalesce(tail, nothing)).alias("gaps"),
    )  # fmt: skip


def _extents(events: DataFrame) -> DataFrame:
    # `state` and `reason` are read from the wide row: a second pass over the events would cost a join
    state = sf.when(sf.col("event") == "STATE", sf.col("state"))
    level = sf.regexp_extract(sf.coalesce("reason", sf.lit("")), r"\blevel=(\w+)", 1)
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
        sf.collect_set(sf.when(sf.col("event") == "PQ_OPEN", opened)).alias("opened"),
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
