"""How the frames are kept that every rule reads: in few partitions where they are small, and known to be empty."""

import pytest
from dejamq_analytics.sources.facts import rare, settled, some
from dejamq_analytics.sources.schema import journal_schema, of, telling
from dejamq_analytics.spark.session import for_journals, in_one_place
from dejamq_proto.journal.events import State
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def partitions(spark: SparkSession) -> int:
    return settled(spark.range(100).repartition(5)).rdd.getNumPartitions()


def test_little_is_kept_in_one_partition_until_the_audit_ends(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with for_journals(spark, ()):
        assert partitions(spark) == 5
        in_one_place(spark)
        assert partitions(spark) == 1
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_outside_of_an_audit_of_journals_partitions_stay_as_they_are(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    with for_journals(spark, ("a store",)):
        in_one_place(spark)
        assert partitions(spark) == 5
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_what_is_rare_has_its_rows_or_is_known_to_have_none(spark: SparkSession) -> None:
    there, nothing = spark.range(3), spark.range(3).where("id > 5")
    assert [row.id for row in rare(there).collect()] == [0, 1, 2]
    assert (rare(nothing).collect(), rare(nothing).schema) == ([], nothing.schema)
    assert some(nothing) is None
    kept = some(there)
    assert kept is not None
    assert kept.count() == 3


def test_of_an_event_that_is_known_not_to_be_told_there_is_nothing(spark: SparkSession) -> None:
    events = spark.createDataFrame([{"event": "STATE", "seq": 1}], journal_schema())
    assert of(events, State).count() == 1
    assert of(telling(events, {"STATE"}), State).count() == 1
    untold = of(telling(events.select("*"), {"BOOT"}), State)
    assert (untold.count(), untold.schema) == (0, of(events, State).schema)
