"""``python tests/analytics/prove_tables.py``: a finding is in a Delta or Iceberg table once, whatever kills an audit.

For each format `dejamq audit` is run on growing journals and ended by SIGKILL, each time at another moment of its
second half. When it was run to its end at last, each finding is in the table once. Delta and Iceberg are made for Spark
4.1, which pip puts into ``build/``, as Maven does with their jars. Part of ``make prove``; needs a JDK and Maven.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import stories_brokers  # noqa: F401  # its stories register themselves
from dejamq_lab.machines.jars import fetched, jar_cache
from journals import History
from stories import STORIES

SPARK = "4.1.4"
NAMES = ("o1", "o7", "l1", "o12", "p1-undelivered", "o9", "o10", "o17")
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dejamq</groupId>
  <artifactId>tables</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    {dependencies}
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
ONE = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)
JARS = {
    "delta": [("io.delta", "delta-spark_4.1_2.13", "4.4.0"), ("io.delta", "delta-storage", "4.4.0")],
    "iceberg": [("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")],
}
COUNT = """
import sys
from dejamq_analytics.spark.session import make_session
where, kind, *settings = sys.argv[1:]
spark = make_session("local[1]", dict(one.split("=", 1) for one in settings), quick=True)
table = spark.read.format(kind).load(where) if "/" in where else spark.table(where)
print("rows", table.count(), table.select("finding_id").distinct().count())
"""


def settings_of(kind: str, folder: Path) -> dict[str, str]:
    jars = jar_cache("tables", kind)
    jars.mkdir(parents=True, exist_ok=True)
    pom = jars / "pom.xml"
    pom.write_text(POM.format(dependencies="".join(ONE.format(*one) for one in JARS[kind])))
    _, artifact, version = JARS[kind][-1]
    names = ",".join(
        str(path) for path in sorted(fetched(pom, jars / "jars", f"{artifact}-{version}.jar").glob("*.jar"))
    )
    extensions = {
        "delta": {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
        "iceberg": {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "warehouse"),
        },
    }  # fmt: skip
    return {"spark.jars": names, "spark.driver.memory": "1g", **extensions[kind]}


def spark_of_the_tables() -> Path:
    """A folder with the PySpark that Delta and Iceberg are made for."""
    folder = jar_cache("pyspark", SPARK)
    if not (folder / "pyspark" / "version.py").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, f"pyspark=={SPARK}"], check=True)
    return folder


class Audits:
    """Runs of the command for one format."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder, self._journal, self._where = folder, folder / "journal", str(folder / "lake")
        self._journal.mkdir(parents=True)
        place = ["--write-path", self._where] if kind == "delta" else ["--write-table", "lake.audit"]
        self._table = f"{self._where}/findings" if kind == "delta" else "lake.audit_findings"
        self._kind, self._settings = kind, [f"{key}={value}" for key, value in settings_of(kind, folder).items()]
        conf = [text for one in self._settings for text in ("--conf", one)]
        self._command = [
            sys.executable,
            "-m",
            "dejamq_analytics",
            str(self._journal),
            *place,
            "--write-format",
            kind,
            *conf,
        ]
        self._environment = os.environ | {"PYTHONPATH": str(spark_of_the_tables())}

    def add(self, name: str) -> None:
        """One more story."""
        history = History(self._journal, name)
        STORIES[name](history)
        history.end()

    def run(self, ended_after_s: float | None = None) -> tuple[float, str]:
        """How long it took, and what it said. ``ended_after_s``: SIGKILL for it and its Java."""
        began_s = time.monotonic()
        process = subprocess.Popen(
            self._command, cwd=self._folder, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        try:
            _, said = process.communicate(timeout=ended_after_s)
        except subprocess.TimeoutExpired:
            process.kill()  # its Java ends with it, amid what it does
            _, said = process.communicate()
        return time.monotonic() - began_s, said

    def counts(self) -> list[int]:
        """Rows and different findings."""
        command = [sys.executable, "-c", COUNT, self._table, self._kind, *self._settings]
        ran = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=True
        )
        return [int(number) for number in ran.stdout.split("rows", 1)[1].split()]


def proved(kind: str, kills: int, seed: int, folder: Path) -> bool:
    audits, chance = Audits(kind, folder), random.Random(seed)
    audits.add(NAMES[0])
    whole_s, said = audits.run()
    if "1 new findings" not in said:
        raise SystemExit(f"{kind}: the first audit did not write its finding:\n{said[-3000:]}")
    ended = 0
    for number in range(kills):
        audits.add(NAMES[1 + number % (len(NAMES) - 1)] if number < len(NAMES) - 1 else NAMES[0])
        # most of what can go wrong is near the end, where the tables are written
        took_s, said = audits.run(whole_s * chance.uniform(0.5, 1.05))
        ended += "new anomalies" not in said
        print(f"  {kind}: ended after {took_s:.1f} s", flush=True)
    _, said = audits.run()
    rows, findings = audits.counts()
    again = audits.run()[1]
    good = rows == findings and "0 new findings" in again and audits.counts() == [rows, findings]
    print(json.dumps({"format": kind, "kills": ended, "rows": rows, "findings": findings, "good": good}), flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", default=list(JARS), help="of: " + " ".join(JARS))
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tables-", ignore_cleanup_errors=True) as name:
        good = [proved(kind, given.kills, given.seed, Path(name) / kind) for kind in given.formats]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
