"""A standalone Spark cluster on this machine: a master and workers, each a process, ended by its id."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from dejamq_analytics.spark.java import java_home
from dejamq_lab.cluster.ports import held_ports

SPARK = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
READY_S = 180.0
SETTINGS = {
    "spark.driver.bindAddress": HOST,
    "spark.driver.host": HOST,
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[str]:
    """Gives the master's URL when all workers are there. Logs and work directories are in ``directory``."""
    with ExitStack() as running:
        (port,) = running.enter_context(held_ports(1))
        master = ("master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0")
        running.enter_context(_daemon(directory / "master", *master))
        url = f"spark://{HOST}:{port}"
        for number in range(workers):
            home = directory / f"worker-{number}"
            options = ("--host", HOST, "--cores", "1", "--memory", "1g", "--webui-port", "0")
            running.enter_context(_daemon(home, "worker.Worker", *options, "--work-dir", str(home / "work"), url))
        _wait_for_workers(directory / "master" / "log", workers)
        yield url


@contextmanager
def _daemon(home: Path, name: str, *arguments: str) -> Iterator[None]:
    """``spark-class`` execs Java, so that the process is the daemon itself."""
    home.mkdir(parents=True)
    environment = os.environ | {
        "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(home / "local"),
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
    }  # fmt: skip
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_workers(log: Path, workers: int) -> None:
    deadline = time.monotonic() + READY_S
    while (registered := log.read_text(errors="replace").count("Registering worker")) < workers:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{registered} of {workers} workers came in {READY_S} s:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)
