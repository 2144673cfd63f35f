"""Ctrl-C in a terminal reaches every process of a command at once: the audit ends all of them, and prints nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from journals import History
from stories import STORIES

pytestmark = pytest.mark.process
IN_A_TASK = """
import logging, pathlib, sys, time
from dejamq_analytics.run import Request, spark_for

logging.disable()  # of py4j, as the command does
began = pathlib.Path(sys.argv[1])
try:
    with spark_for(Request(journals=[])) as spark:
        try:
            spark.sparkContext.parallelize([0], 1).foreach(lambda _: (began.touch(), time.sleep(600)))
        finally:
            FINALLY
except KeyboardInterrupt:
    sys.exit(130)
"""


IN_A_QUERY = """
import pathlib, sys
from dejamq_analytics.duck.database import Database

database = Database()
pathlib.Path(sys.argv[1]).touch()
try:
    database.ask("SELECT sum(a.range * b.range) FROM range(10000000) AS a, range(10000000) AS b")
except KeyboardInterrupt:
    sys.exit(130)
"""


def interrupted(program: list[str], ready: Callable[[int], bool]) -> tuple[int, str]:
    """Status and words of a Python program that got Ctrl-C when it was ready, by its process id."""
    command = [sys.executable, *program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:  # fmt: skip
        try:
            until = time.monotonic() + 120
            while not ready(process.pid) and process.poll() is None:
                assert time.monotonic() < until, "it never came so far"
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
            words, _ = process.communicate(timeout=60)  # until Java, too, has closed its end
        finally:
            process.kill()
    return process.returncode, words


def has_begun_java(pid: int) -> bool:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any("deploy.SparkSubmit" in Path(f"/proc/{child}/cmdline").read_text() for child in children)


@pytest.mark.spark
def test_while_java_starts_it_ends_with_java(tmp_path: Path) -> None:
    history = History(tmp_path, "o1")
    STORIES["o1"](history)
    history.end()
    assert interrupted(["-m", "dejamq_analytics", str(tmp_path), "--engine", "spark"], has_begun_java) == (130, "")


@pytest.mark.spark
@pytest.mark.parametrize("at_the_end", ["pass", "raise OSError('a frame of PySpark asks Java while it is left')"])
def test_amid_a_task_in_a_python_worker_nobody_tells_of_the_task(tmp_path: Path, at_the_end: str) -> None:
    began = tmp_path / "began"
    program = IN_A_TASK.replace("FINALLY", at_the_end)
    assert interrupted(["-c", program, str(began)], lambda _: began.exists()) == (130, "")


def test_a_query_of_duckdb_ends_at_once(tmp_path: Path) -> None:
    began = tmp_path / "began"

    def amid_the_query(_: int) -> bool:
        return began.exists() and time.time() - began.stat().st_mtime > 0.5

    assert interrupted(["-c", IN_A_QUERY, str(began)], amid_the_query) == (130, "")
