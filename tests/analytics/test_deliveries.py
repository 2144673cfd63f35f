"""One row a delivery, of lines that tell of runs."""

import msgspec
import pytest
from dejamq_analytics.rules.deliveries import deliveries
from dejamq_analytics.schema import journal_schema
from dejamq_proto.events import Deliver
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ONE, OTHER = "127.0.0.1:10911", "127.0.0.2:10911"


@pytest.mark.parametrize(
    ("said", "expected"),
    [([ONE], [ONE, ONE]), ([ONE, OTHER], [ONE, OTHER]), ([], [None, None])],
    ids=["one for all", "one each", "none"],
)
def test_each_delivery_knows_which_broker_stored_its_message(
    spark: SparkSession, said: list[str], expected: list[str | None]
) -> None:
    line = Deliver(
        pq_id=1, group="g", topic="t", broker_name="a", queue_id=0, client_id="c", delivery_ids=[1, 2],
        queue_offsets=[6, 7], log_offsets=[600, 700], unique_keys=["k6", "k7"], store_hosts=said,
    )  # fmt: skip
    line.boot_id = "b"
    events = spark.createDataFrame([msgspec.to_builtins(line)], journal_schema())
    assert [row.store_host for row in deliveries(events).sort("position").collect()] == expected
    assert [line.store_host(index) or None for index in range(2)] == expected
