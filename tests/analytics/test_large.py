"""What the audit does differently where there is much to read must find the same."""

from pathlib import Path

import pytest
from dejamq_analytics.rules import identity
from dejamq_analytics.rules.history import deliveries
from dejamq_analytics.sources import journals as read
from dejamq_analytics.sources.facts import settled
from dejamq_proto.journal.events import Deliver
from journals import History
from pyspark.sql import SparkSession
from stories import STORIES


def handle_without_key(history: History) -> None:
    """The same record twice, of a message that has no unique key, and the next one once."""
    consumer = history.consumer("c9")
    for number, queue_offset in ((1, 7), (2, 7), (3, 8)):
        consumer.write(Deliver(
            pq_id=1, group=history.group, topic="orders", broker_name=history.broker_name, queue_id=1, client_id="c9",
            delivery_ids=[number], queue_offsets=[queue_offset], log_offsets=[queue_offset * 100], unique_keys=[""],
        ))  # fmt: skip


def test_leaving_out_what_came_once_changes_no_pair(
    in_either: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("o1", "l1", "p1", "p5-by-business-key"):
        history = History(tmp_path, name)
        STORIES[name](history)
        if name == "o1":
            handle_without_key(history)
        history.end()
    entered = settled(deliveries.deliveries(read.readable(read.read_lines(in_either, [str(tmp_path)]))))
    whole = identity.pairs(entered).collect()
    for worth_it in ("WORTH_IT", "WORTH_IT_IN_DUCKDB"):
        monkeypatch.setattr(identity, worth_it, 0)
    assert identity._repeating(entered, identity._receiver(())).count() < entered.count()
    fewer = identity.pairs(entered).collect()
    assert {row.identity for row in whole} == {"I1", "I2", "I3"}
    assert sorted(map(str, fewer)) == sorted(map(str, whole))
