"""Many runs in one audit: what has the same name in each is told apart, and nothing of one is laid to another."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from dejamq_analytics import audit
from dejamq_analytics.frames import DUCKDB, using
from dejamq_analytics.sources import joined_runs
from dejamq_analytics.trial_audit import AuditedRun, audit_runs, portions
from dejamq_proto.journal.events import EVENTS, Deliver, Fault
from dejamq_proto.journal.writer import Level
from journals import History, Process
from pyspark.sql import SparkSession
from stories import owner_that_did_6, successor

WORDS = frozenset({
    "address", "addresses", "boot_id", "boot_ids", "brokers", "by", "change", "client_boot_id", "client_id", "digest",
    "file", "first_unique_keys", "how", "kept", "kind", "member_role", "members", "modes", "namesrv", "origin",
    "origin_ids", "origin_refs",
    "outcome", "owner", "path", "peer_boot_id", "phase", "progress", "reason", "role", "route_digest", "service",
    "source", "state", "status", "store_hosts", "strategy", "target_topic", "topic", "topics", "unique_key",
    "unique_keys", "why",
})  # fmt: skip
"""Fields that are words of the journal, never twice by themselves (boot ids, message ids), or looked at only together
with one of those that are marked (topics, client ids and addresses within a broker, group or process)."""


def test_every_text_of_the_journal_is_known_as_a_name_or_as_none() -> None:
    texts = {
        field.name for event in EVENTS for field in msgspec.structs.fields(event) if field.type in (str, list[str])
    }
    assert texts <= joined_runs.NAMES | WORDS, "is it joined by? then it belongs to joined.NAMES, else to WORDS here"


def line(event: Any) -> dict[str, Any]:
    """As it is in the copy of run 3."""
    found: dict[str, Any] = json.loads(joined_runs.marked(msgspec.json.encode(event) + b"\n", 3))
    return found


def test_names_and_lists_of_names_have_the_mark_of_their_run_and_lose_it_again() -> None:
    event = Deliver(
        process="c1", pq_id=1, group="g", topic="orders", broker_name="broker-a", queue_id=0, client_id="c1",
        delivery_ids=[1], queue_offsets=[5], log_offsets=[500], unique_keys=["k"], business_keys=["number-5", ""],
    )  # fmt: skip
    marked = line(event)
    assert (marked["group"], marked["broker_name"], marked["process"]) == ("‹3›g", "‹3›broker-a", "‹3›c1")
    assert marked["business_keys"] == ["‹3›number-5", ""], "nobody is named by ''"
    assert marked["topic"] == "orders"
    assert joined_runs.plain(json.dumps(marked, ensure_ascii=False)) == json.dumps(
        json.loads(msgspec.json.encode(event))
    )


@pytest.mark.parametrize("pid", [1, 407, 32_768, 4_194_304])
@pytest.mark.parametrize("run", [0, 9, 10, 99, 119])
def test_a_process_id_is_another_one_in_each_run_and_the_same_afterwards(pid: int, run: int) -> None:
    name = f"10.0.0.1@{pid}#7"
    marked = json.loads(joined_runs.marked(json.dumps({"process": name, "target_pid": pid}).encode(), run))
    assert marked["process"] == f"‹{run}›10.0.0.1@{marked['target_pid']}#7"
    assert marked["target_pid"] // joined_runs.PIDS == run + 1
    assert joined_runs.plain(marked["process"]) == name


def test_a_torn_line_stays_as_it_is() -> None:
    assert joined_runs.marked(b'{"event":"DEL', 3) == b'{"event":"DEL'


def test_a_row_of_two_runs_is_no_row() -> None:
    assert joined_runs.run_of("‹3›g at ‹3›broker-a") == 3
    for text in ("‹3›g at ‹4›broker-a", "g at broker-a"):
        with pytest.raises(ValueError, match="runs"):
            joined_runs.run_of(text)


def test_no_audit_reads_more_than_fits_and_none_is_left_out(tmp_path: Path) -> None:
    runs = []
    for number, size in enumerate((60, 30, 20, 200, 10)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "x.jsonl").write_bytes(b"x" * size)
        runs.append(AuditedRun(folder, folder))
    assert [[run.folder.name for run in some] for some in portions(runs, 100)] == [["0", "1"], ["2"], ["3"], ["4"]]


class Alike(History):
    """The same names, offsets and times in each; only boot ids and message ids differ, as they do in reality."""

    def __init__(self, directory: Path, number: int) -> None:
        directory.mkdir(parents=True)
        super().__init__(directory, "g")
        self._number = number

    def key(self, number: int) -> str:
        return f"run{self._number}-key-{number}"

    def process(self, role: str, name: str, level: Level = Level.FORENSIC, boot_id: str | None = None) -> Process:
        return super().process(role, name, level, boot_id or f"run{self._number}{role}{name}".replace("-", ""))


def killed_before_it_persisted(directory: Path) -> None:
    made = Alike(directory, 0)
    broker = made.broker()
    owner, _ = owner_that_did_6(made)
    owner.kill()
    successor(made, broker)
    made.end()


def nothing_wrong(directory: Path) -> None:
    made = Alike(directory, 1)
    broker = made.broker()
    owner, queue = owner_that_did_6(made)
    owner.persist(queue, 7)
    broker.offset_set(owner, 6, 7)
    owner.kill()
    successor(made, broker, start=7, last=7)
    made.end()


def sent_and_lost_on_its_way(directory: Path) -> None:
    made = Alike(directory, 2)
    broker = made.broker()
    owner, queue = owner_that_did_6(made)
    owner.persist(queue, 7)
    owner.close()
    successor(made, broker)
    made.process("harness", "lab").write(Fault(kind="kill", target="g-c1", phase="begin", target_pid=7))
    made.end()


def rows(table: pa.Table) -> list[str]:
    """Without the ids that are made of marked names; times without their zone, which is UTC."""
    kept = [name for name in table.column_names if name not in ("run_id", "finding_id", "anomaly_id")]
    return sorted(str(row).replace(", tzinfo=datetime.timezone.utc", "") for row in table.select(kept).to_pylist())


def verdict(run: AuditedRun) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((run.folder / "verdict.json").read_bytes())
    return told | {"run_id": ""}


def test_a_joint_audit_says_of_each_run_what_an_audit_of_it_alone_says(quick: SparkSession, tmp_path: Path) -> None:
    runs = []
    for write in (killed_before_it_persisted, nothing_wrong, sent_and_lost_on_its_way):
        folder = tmp_path / write.__name__
        write(folder / "journal")
        runs.append(AuditedRun(folder / "journal", folder))
    with using(DUCKDB):
        audit_runs(quick, runs)
    assert [verdict(run)["causes"] for run in runs] == [{"O1": 1}, {}, {"O2": 1}]
    for run in runs:
        alone = audit(quick, [str(run.journals)])
        assert msgspec.to_builtins(alone.verdict) | {"run_id": ""} == verdict(run)
        for name, table in (("findings", alone.findings), ("anomalies", alone.anomalies)):
            assert rows(pyarrow.parquet.read_table(run.folder / name)) == rows(table.toArrow())
