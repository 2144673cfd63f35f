"""The Spark source of topics in Spark: batches, streams over restarts, and the examples of docs/spark.md."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dejamq_analytics
import pytest
from dejamq_analytics import audit
from dejamq_analytics.topics import RocketMQDataSource
from dejamq_analytics.topics.options import NAMES
from dejamq_analytics.topics.queue_reader import COLUMNS
from in_spark import in_spark
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from stories import write_all
from topic_cluster import BROKER, Served, served

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served") / "store") as running:
        yield running


@pytest.fixture(scope="module")
def lake(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(RocketMQDataSource)
    return spark


def test_a_query_whose_messages_have_expired_fails_with_what_to_do(lake: SparkSession, servers: Served) -> None:
    servers.topic("expired", 1)
    low = servers.expire("expired")
    start = json.dumps({"expired": {BROKER: {"0": 0}}})
    given = {"namesrv": servers.namesrv, "topic": "expired", "startingOffsets": start}
    with pytest.raises(PythonException, match=rf"messages 0 to {low - 1} are gone, .* goes on without them"):
        lake.read.format("rocketmq").options(**given).load().count()
    left = lake.read.format("rocketmq").options(**given, failOnDataLoss="false").load()
    assert left.count() == 150 - low


def test_a_wrong_option_is_told_where_the_program_says_load(lake: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="the option topic is missing"):
        lake.read.format("rocketmq").option("namesrv", "127.0.0.1:1").load()


def test_the_examples_of_the_page_run_and_a_stream_that_is_started_again_reads_each_message_once(
    lake: SparkSession, quick: SparkSession, servers: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The audit is DuckDB's, which is sooner: what Spark finds is shown elsewhere."""
    servers.topic("orders", 2)
    servers.send("orders", 0, count=3, body=b"a body")
    servers.send("orders", 1, count=2, body=b"a body")
    write_all(tmp_path, ["o1"])
    monkeypatch.setattr(dejamq_analytics, "audit", lambda spark, journals: in_spark(spark, audit(quick, journals)))
    names: dict[str, Any] = {}

    def run(block: str) -> None:
        here = block.replace("127.0.0.1:9876", servers.namesrv).replace("lake/", f"{tmp_path}/lake/")
        exec(compile(here.replace('"journal"', repr(str(tmp_path))), "docs/spark.md", "exec"), names)

    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for block in blocks:
        run(block)
    assert re.search(r"\|\s*a\|\s*5\|", capsys.readouterr().out)
    assert_orders(names["orders"])
    assert [row.cause for row in lake.read.parquet(f"{tmp_path}/lake/audit/findings").collect()] == ["O1"]
    servers.send("orders", 0, count=2, body=b"another")
    run(next(block for block in blocks if "readStream" in block))
    streamed = sorted(row.body for row in lake.read.parquet(f"{tmp_path}/lake/orders").collect())
    assert streamed == ["a body"] * 5 + ["another"] * 2
    ends = [path.read_text().splitlines()[-1] for path in (tmp_path / "lake/checkpoints/orders/offsets").glob("[01]")]
    assert sorted(map(json.loads, ends), key=str) == [{"orders": {BROKER: {"0": end, "1": 2}}} for end in (3, 5)]


def assert_orders(orders: DataFrame) -> None:
    assert {field.name: field.dataType.simpleString() for field in orders.schema.fields} == COLUMNS
    (row,) = orders.where("queue_id = 1 AND queue_offset = 1").collect()
    assert (row.topic, row.broker_name, bytes(row.body), row.properties["UNIQ_KEY"]) == (
        "orders", BROKER, b"a body", row.message_id
    )  # fmt: skip
    assert row.store_timestamp is not None


def test_the_page_names_every_column_and_option() -> None:
    assert [name for name in (*COLUMNS, *NAMES) if f"`{name}`" not in PAGE] == []
