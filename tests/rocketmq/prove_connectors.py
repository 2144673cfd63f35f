"""Connectors of RocketMQ with the client of each: ``python tests/rocketmq/prove_connectors.py [NAME ...]``.

A program in ``connectors/`` stands for a connector whose host system is not here. It sends the connector's requests
with the connector's version of RocketMQ's Java client, which Maven fetches. It runs with ``dejamq dev`` and with a
real RocketMQ 5.3.3, and must print the same. Part of ``make prove``.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dejamq_lab.cluster.ports import held_block
from dejamq_lab.machines.jars import fetched, jar_cache
from dejamq_lab.machines.rocketmq import RocketMQ, launched
from dejamq_lab.rocketmq import programs
from java_clients import jars_of, java, output_of

HERE = Path(__file__).parent / "connectors"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dejamq</groupId>
  <artifactId>connector</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
        <version>3.6.1</version>
      </plugin>
    </plugins>
  </build>
</project>
"""
READY_S = 60
NETTY = ("-Dio.netty.noUnsafe=true", "-Djava.util.logging.config.file=/dev/null")
"""Netty 4.0 looks for classes that newer JVMs do not show, and says so."""


class Connector(NamedTuple):
    """The class of its program, and what of RocketMQ it is built on."""

    program: str
    version: str
    artifact: str = "rocketmq-client"
    group: str = "org.apache.rocketmq"

    def class_path(self) -> list[Path]:
        """Raises Missing."""
        folder = jar_cache("rocketmq-connector", f"{self.program.lower()}-{self.version}")
        folder.mkdir(parents=True, exist_ok=True)
        pom = folder / "pom.xml"
        pom.write_text(POM.format(group=self.group, artifact=self.artifact, version=self.version))
        jars = fetched(pom, folder / "jars", f"{self.artifact}-{self.version}.jar")
        return programs.compiled(jars, folder / "classes", HERE / f"{self.program}.java")


CONNECTORS = {
    "flink": Connector("Flink", "5.1.1", "rocketmq-tools"),
    "storm": Connector("Storm", "4.2.0"),
    "spark": Connector("Spark", "4.9.4"),
    "ignite": Connector("Ignite", "4.4.0"),
    "mysql": Connector("MySql", "4.0.0-incubating"),
    "druid": Connector("Druid", "3.2.6", group="com.alibaba.rocketmq"),
}


def main() -> int:
    """Exit status 1 when a program printed something else with dejamq than with RocketMQ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(CONNECTORS), help="by default all: %(default)s")
    names = parser.parse_args().names
    failed = 0
    with tempfile.TemporaryDirectory(prefix="connectors-", ignore_cleanup_errors=True) as name:
        work = Path(name)
        settings = {"transactionTimeOut": 1_000, "transactionCheckInterval": 2_000}
        with RocketMQ(jars_of("5.3.3"), work / "store", work / "real", settings) as real, _dev(work) as ours:
            for connector in names:
                mine, other = (asyncio.run(_said(CONNECTORS[connector], at, work)) for at in (ours, real.namesrv))
                same = mine == other
                failed += not same
                print(f"{connector}: {'ok' if same else 'differs'}", flush=True)
                print(_indented(mine) if same else f"{_indented(mine)}\n  RocketMQ:\n{_indented(other)}", flush=True)
    return 1 if failed else 0


@contextmanager
def _dev(work: Path) -> Iterator[str]:
    """The address of a ``dejamq dev``."""
    log = work / "dev.out"
    with held_block(2, 1) as port:
        address = f"127.0.0.1:{port}"
        command = [sys.executable, "-m", "dejamq_lab.dev", "--listen", address]
        command += ["--set", "transactionTimeOut=1000", "--set", "transactionCheckInterval=2000"]
        server = launched(command, work, log)
        try:
            _wait_until_ready(log)
            yield address
        finally:
            server.terminate()
            server.wait()


def _wait_until_ready(log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while "ready" not in (said := log.read_text("utf-8")):
        if time.monotonic() > deadline:
            raise SystemExit(f"`dejamq dev` is not ready after {READY_S} s: {said}")
        time.sleep(0.1)


async def _said(connector: Connector, namesrv: str, work: Path) -> list[str]:
    """The lines that its program prints, without those of logging."""
    class_path = await asyncio.to_thread(connector.class_path)
    told = await output_of(java(class_path, work, *NETTY, connector.program, namesrv))
    return [line for line in told.splitlines() if line and not line.startswith(("SLF4J", "log4j", "RocketMQLog"))]


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
