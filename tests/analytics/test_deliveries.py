"""One row a delivery, of lines that tell of runs."""

from pathlib import Path

import msgspec
import pytest
from dejamq_analytics.rules.history.deliveries import deliveries
from dejamq_analytics.sources.journals import read_lines
from dejamq_proto.journal.events import Deliver
from pyspark.sql import SparkSession

ONE, OTHER = "127.0.0.1:10911", "127.0.0.2:10911"


@pytest.mark.parametrize(
    ("said", "expected"),
    [([ONE], [ONE, ONE]), ([ONE, OTHER], [ONE, OTHER]), ([], [None, None])],
    ids=["one for all", "one each", "none"],
)
def test_each_delivery_knows_which_broker_stored_its_message(
    in_either: SparkSession, tmp_path: Path, said: list[str], expected: list[str | None]
) -> None:
    line = Deliver(
        pq_id=1, group="g", topic="t", broker_name="a", queue_id=0, client_id="c", delivery_ids=[1, 2],
        queue_offsets=[6, 7], log_offsets=[600, 700], unique_keys=["k6", "k7"], store_hosts=said,
    )  # fmt: skip
    line.boot_id, line.seq = "b", 1
    (tmp_path / "consumer-c-b.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    told = deliveries(read_lines(in_either, [str(tmp_path)])).orderBy("position").collect()
    assert [row.store_host for row in told] == expected
    assert [line.store_host(index) or None for index in range(2)] == expected
