"""Faults that the lab or the demo did to processes, as its journal says."""

from dejamq_proto.journal.events import Fault

from dejamq_analytics.frames import DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.needs import Needs, every

needs = Needs(every(Fault))


def begun(events: DataFrame) -> DataFrame:
    """Each fault where it begins."""
    return needs.of(events, Fault).where("phase = 'begin'")


def done(events: DataFrame, processes: DataFrame) -> DataFrame:
    """All faults done to each process and the last, by its name or its pid (a client's id has it after ``@``)."""
    every_one = begun(events).withColumnsRenamed({"process": "harness", "boot_id": "harness_boot"})
    pid = sf.regexp_extract("process", r"@(\d+)#", 1)
    hit = (sf.col("target") == sf.col("process")) | (pid == sf.col("target_pid").cast("string"))
    alive = sf.col("wall_us") >= sf.col("first_wall_us")
    owners = processes.select("process", "boot_id", "first_wall_us")
    fault = sf.struct(
        "wall_us", "seq", sf.col("harness").alias("process"), sf.col("harness_boot").alias("boot_id"), "kind"
    )
    struck = owners.join(sf.broadcast(every_one), hit & alive, how="inner").groupBy("boot_id")
    return struck.agg(sf.max(fault).alias("fault"), sf.collect_list(fault).alias("faults"))
