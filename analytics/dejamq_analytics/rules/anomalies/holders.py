"""Locks with two holders: a broker, or another start of it, gave a lock that lived at another one."""

from dejamq_proto.journal.events import Unlock

from dejamq_analytics.frames import DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, lines, text, timestamp
from dejamq_analytics.rules.history.queues import QUEUE
from dejamq_analytics.sources.needs import Needs, every
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, contract

needs = Needs(every(Unlock))


def two_holders(events: DataFrame, processes: DataFrame, granted: DataFrame) -> DataFrame:
    """Of all ``grants``: a lock that was granted while another client's, from another start, had not ended and was not
    given back, and that client lived. One row for each that got it so, with the older holder's last grant before.
    """
    older = granted.withColumnRenamed("grant", "older")
    first_of_newer = granted.where(sf.col("grant.owner") != sf.col("grant.client_id"))
    alive = (
        (sf.col("older.boot_id") != sf.col("grant.boot_id"))
        & (sf.col("older.client_id") != sf.col("grant.client_id"))
        & (sf.col("older.wall_us") < sf.col("grant.wall_us"))
        & (sf.col("grant.wall_us") < sf.col("older.wall_us") + sf.col("older.life_ms") * 1000)
    )
    met = first_of_newer.join(older, list(QUEUE)).where(alive)
    met = met.withColumn("older_boot_id", sf.col("older.client_boot_id"))
    lived = sf.broadcast(processes.select(sf.col("boot_id").alias("older_boot_id"), "last_wall_us"))
    met = met.join(lived, "older_boot_id").where(sf.col("last_wall_us") > sf.col("grant.wall_us"))
    last = met.groupBy(*QUEUE, "grant").agg(sf.max("older").alias("older"))
    returned = (sf.col("returned_us") > sf.col("older.wall_us")) & (sf.col("returned_us") < sf.col("grant.wall_us"))
    same = (sf.col("returned_by") == sf.col("older.client_boot_id")) & returned
    for name in QUEUE:
        same &= sf.col(name) == sf.col(f"returned_{name}")
    found = last.join(_returned(events), same, how="left_anti")
    detail = text("%s gave it to %s, and %s had it from %s", "grant.process", "grant.client_id", "older.client_id",
                  "older.process")  # fmt: skip
    rows = found.select(
        sf.lit("two_holders").alias("kind"), timestamp("grant.wall_us").alias("time"), *QUEUE, detail.alias("detail"),
        lines(*[
            line("LOCK", text("granted to %s", f"{one}.client_id"), process=f"{one}.process", boot_id=f"{one}.boot_id",
                 seq=f"{one}.seq")
            for one in ("older", "grant")
        ]).alias("evidence"),
    )  # fmt: skip
    return contract(rows, ANOMALY_COLUMNS)


def _returned(events: DataFrame) -> DataFrame:
    """Locks that their holders gave back, as they say themselves."""
    place = ("group", "broker_name", "topic", "queue_id")
    own = [sf.col(name).alias(f"returned_{kept}") for name, kept in zip(place, QUEUE, strict=True)]
    given = needs.of(events, Unlock).where("role = 'consumer'")
    return given.select(*own, sf.col("boot_id").alias("returned_by"), sf.col("wall_us").alias("returned_us"))
