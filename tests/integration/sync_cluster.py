"""A cluster of processes for tests of the blocking clients, and scripts that use them as processes of their own."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dejamq_lab import Cluster

QUICK: dict[str, Any] = {
    "rebalance_wait_interval_ms": 1_000, "rebalance_min_interval_ms": 50, "poll_name_server_interval_ms": 300,
    "persist_consumer_offset_interval_ms": 250,
}  # fmt: skip


def cluster(directory: Path) -> Cluster:
    return Cluster(processes=True, topics=dict.fromkeys(("orders", "refunds", "slow"), 2), directory=directory)


def until(condition: Callable[[], object], deadline_s: float = 30) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dejamq-loop"]


@contextmanager
def script(here: Cluster, text: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python program that knows the cluster; it does not outlive the block."""
    known = {"DEJAMQ_NAMESRV": here.namesrv, "DEJAMQ_JOURNAL_DIR": str(here.journal_dir)}
    with subprocess.Popen(
        [sys.executable, "-c", text], env=os.environ | known, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        try:
            yield program
        finally:
            program.kill()
