"""What is seen of journals before an audit starts decides its engine, and how Java starts."""

from pathlib import Path

import pytest
from dejamq_analytics.sources import workload_estimate
from dejamq_analytics.sources.workload_estimate import little_for_java
from journals import History
from plain_runs import write_runs


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a few KB were much."""
    monkeypatch.setattr(workload_estimate, "SMALL_BYTES", 1024)


def test_small_journals_are_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_estimate, "SMALL_BYTES", 1 << 20)
    for name in ("one", "two"):
        write_runs(History(tmp_path, name))
    assert little_for_java([str(tmp_path)], [])


def test_large_ones_are_little_too(tmp_path: Path) -> None:
    write_runs(History(tmp_path, "one"))
    assert little_for_java([str(tmp_path)], [])


def test_large_ones_are_much_where_a_group_broadcasts(tmp_path: Path) -> None:
    write_runs(History(tmp_path, "one"))
    [journal] = tmp_path.glob("consumer-*.jsonl")
    own = journal.read_bytes().replace(b'"source":"broker"', b'"source":"local"')
    journal.write_bytes(b'{"event":"PQ_OPEN"\n\xff"PQ_OPEN"\n' + own)
    assert not little_for_java([str(tmp_path)], [])


def test_commit_logs_are_much_and_so_is_what_lies_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    assert not little_for_java([], [str(tmp_path / "store")])
    assert not little_for_java(["hdfs://somewhere/journals"], [])


def test_a_container_has_the_memory_that_its_limit_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 16 kB\nMemAvailable:    8 kB\n")
    monkeypatch.setattr(workload_estimate, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(workload_estimate, "CGROUP", tmp_path)
    assert workload_estimate.free_memory_bytes() == 8192
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert workload_estimate.free_memory_bytes() == 3000
    (tmp_path / "memory.max").write_text("max\n")
    assert workload_estimate.free_memory_bytes() == 8192


def test_a_system_that_tells_no_free_memory_is_taken_for_half_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_estimate, "MEMINFO", tmp_path / "meminfo")
    assert workload_estimate.free_memory_bytes() >= 1 << 28
