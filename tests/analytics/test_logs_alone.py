"""Audits without journals: what commit logs prove, what they leave open, and that it is said."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from dejamq import Message
from dejamq_analytics.__main__ import main
from dejamq_analytics.rules.history import stored_causes
from dejamq_analytics.sources.commit_log import log_files, scan
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_lab import Cluster
from dejamq_proto import names
from dejamq_proto.records.record import SYS_TRANSACTION_COMMIT, Record, encode_properties

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
RETRY = names.retry_topic("billing")
Row = dict[str, Any]


class Log:
    """A store written record by record, in one millisecond."""

    def __init__(self, directory: Path) -> None:
        config = StoreConfig(mapped_file_size_commit_log=1 << 20)
        self._store = MessageStore.open(directory, config, clock_ms=lambda: 1_790_000_000_000)

    def put(self, topic: str, key: str, body: bytes = b"x", **more: Any) -> tuple[int, int]:
        """(queue offset, log offset). ``more`` are fields of the record, or properties in capitals."""
        properties = {name: str(more.pop(name)) for name in list(more) if name.isupper()}
        raw = encode_properties({"UNIQ_KEY": key, **properties} if key else properties)
        done = self._store.put(Record(topic, 0, body, raw, **more))
        return int(done.queue_offsets[0]), int(done.log_offsets[0])

    def commit(self, key: str, half: int) -> None:
        self.put("orders", key, REAL_TOPIC="orders", sys_flag=SYS_TRANSACTION_COMMIT, prepared_transaction_offset=half)

    def close(self) -> None:
        self._store.close()


def write_doubles(log: Log) -> None:
    """One double of each kind; what a message has in common is its key."""
    log.put("orders", "sent")
    log.put("orders", "sent")
    log.put("orders", "batch", b"1")
    log.put("orders", "batch", b"2")
    for key in ("order-1", "order-1-again"):
        log.put("orders", key, ORDER="1")
    _, half = log.put(names.HALF_TOPIC, "unmarked", REAL_TOPIC="orders")
    for _ in range(2):
        log.commit("unmarked", half)
    place, half = log.put(names.HALF_TOPIC, "marked", REAL_TOPIC="orders")
    log.commit("marked", half)
    log.put(names.OP_TOPIC, "", f"{place},".encode())
    log.commit("marked", half)
    log.put(names.SCHEDULE_TOPIC, "late", REAL_TOPIC="orders", DELAY=1)
    for _ in range(2):
        log.put("orders", "late", REAL_TOPIC="orders", DELAY=1)
    log.put("orders", "failed")
    for times in (1, 2):
        waiting: dict[str, Any] = {"REAL_TOPIC": RETRY, "ORIGIN_MESSAGE_ID": "0A", "reconsume_times": times}
        log.put(names.SCHEDULE_TOPIC, "failed", **waiting)
        log.put(RETRY, "failed", **waiting)
    log.put(names.dlq_topic("billing"), "failed", ORIGIN_MESSAGE_ID="0A", reconsume_times=3)


def audited(out: Path, *stores: Path) -> tuple[int, dict[str, Any], list[Row], list[Row]]:
    """Exit status, verdict, findings, anomalies."""
    named = [argument for store in stores for argument in ("--store", str(store))]
    status = main([*named, "--business-key", "ORDER", "--out", str(out)])
    tables = [pyarrow.parquet.read_table(out / name).to_pylist() for name in ("findings", "anomalies")]
    return status, json.loads((out / "verdict.json").read_bytes()), *tables


@pytest.fixture(scope="module")
def told(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[int, dict[str, Any], list[Row], list[Row]]]:
    """One audit of a log with doubles and of its copy, as a slave would have it."""
    patch = pytest.MonkeyPatch()
    patch.delenv("DEJAMQ_JOURNAL_DIR", raising=False)
    directory = tmp_path_factory.mktemp("logs")
    log = Log(directory / "master")
    try:
        write_doubles(log)
    finally:
        log.close()
    shutil.copytree(directory / "master", directory / "slave")
    yield audited(directory / "out", directory / "master", directory / "slave")
    patch.undo()


def of(rows: list[Row], key: str) -> Row:
    found = [row for row in rows if row["message_id"] == key and not row["expected"]]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("key", "cause", "stage", "missing"),
    [
        ("sent", None, "send", stored_causes.RETRIED_OR_SENT),
        ("order-1-again", "P5", "send", None),
        ("unmarked", None, "transaction", stored_causes.NO_MARK),
        ("marked", "P7", "transaction", None),
        ("late", None, "delay", stored_causes.DUE_TWICE),
    ],
)
def test_a_double_is_named_only_as_far_as_the_log_proves_it(
    told: tuple[int, dict[str, Any], list[Row], list[Row]], key: str, cause: str | None, stage: str, missing: str | None
) -> None:
    row = of(told[2], key)
    assert (row["cause"], row["stage"], row["missing"]) == (cause, stage, missing)
    assert row["certainty"] == ("certain" if cause else "undetermined")
    assert [line["event"] for line in row["evidence"]].count("RECORD") >= 2


def test_the_proof_of_p7_is_the_mark_between_the_two_commits(
    told: tuple[int, dict[str, Any], list[Row], list[Row]],
) -> None:
    places = [line["seq"] for line in of(told[2], "marked")["evidence"]]
    assert len(places) == 4
    assert places == sorted(places), "half message, commit, mark, commit: in the order of the log"


def test_steps_of_a_retry_chain_are_asked_for_and_its_end_is_a_dead_letter(
    told: tuple[int, dict[str, Any], list[Row], list[Row]],
) -> None:
    steps = [row for row in told[2] if row["expected"]]
    assert [(row["message_id"], row["consumer_group"]) for row in steps] == [("failed", "billing")] * 2
    assert [(row["kind"], row["message_id"], row["detail"]) for row in told[3]] == [
        ("dead_letter", "failed", "given up at try 3; the logs have 2 of its retries")
    ]


def test_the_verdict_says_what_a_log_cannot_tell(told: tuple[int, dict[str, Any], list[Row], list[Row]]) -> None:
    status, verdict, findings, _ = told
    assert (status, verdict["verdict"]) == (1, "findings")
    assert verdict["causes"] == {"P5": 1, "P7": 1}
    assert verdict["expected_causes"] == {"undetermined": 2}
    assert verdict["duplicates"] == len(findings) - 2 == 5, "a slave's copy of a record is that record"
    assert any("(I1)" in line for line in verdict["scope"]["unsaid"])
    assert not any("asked for" in line for line in verdict["scope"]["said"]), "nobody asked for a second order (P5)"
    assert [store["records"] for store in verdict["scope"]["stores"]] == [22, 22]


def test_stores_of_a_real_rocketmq_have_chains_and_dead_letters_and_no_double(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that a second audit gives every finding its id again: the store may lie elsewhere by then."""
    monkeypatch.delenv("DEJAMQ_JOURNAL_DIR", raising=False)
    first = audited(tmp_path / "out", *(GOLDEN / name / "store" for name in ("clean", "crash")))
    assert (first[0], first[1]["verdict"], first[1]["duplicates"]) == (0, "clean", 0)
    manifests = [json.loads((GOLDEN / name / "manifest.json").read_bytes()) for name in ("clean", "crash")]
    topics = [queue["topic"] for manifest in manifests for queue in manifest["queues"] for _ in queue["records"]]
    assert first[1]["expected_duplicates"] == sum(topic.startswith(names.RETRY_PREFIX) for topic in topics)
    assert first[1]["anomalies"] == {"dead_letter": sum(topic.startswith(names.DLQ_PREFIX) for topic in topics)}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What it cannot say" in page


async def test_what_our_broker_stored_twice_has_an_id_made_of_message_and_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of where the store lies, so that another audit of it gives the same id."""
    monkeypatch.delenv("DEJAMQ_JOURNAL_DIR", raising=False)
    async with (
        Cluster(brokers=1, namesrvs=1, topics={"orders": 1}, directory=tmp_path / "cluster") as cluster,
        cluster.producer("shop") as producer,
    ):
        message = Message("orders", b"order-17")
        for _ in range(2):
            result = await producer.send(message)
    (store,) = cluster.store_dirs
    places = [
        f"{record.store_host[0]}:{record.store_host[1]}:{record.log_offset}"
        for file in log_files(str(store))
        for record, _ in scan(file)
    ]
    status, _, findings, _ = audited(tmp_path / "out", store)
    assert status == 3, "a retry and a second call look alike"
    assert [(row["identity"], row["message_id"]) for row in findings] == [("I2", result.message_id)]
    key = "|".join(["stored twice", "I2", result.message_id, *places])
    assert findings[0]["finding_id"] == hashlib.sha256(key.encode()).hexdigest()[:32]
