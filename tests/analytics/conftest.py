"""One audit for all stories, as each has a group of its own. Rules are shown on DuckDB, which has no JVM to start;
``test_engines`` holds Spark to the same findings, and what concerns Spark alone has one small Spark.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="the audit needs the extra 'analytics'")

import stories_brokers  # noqa: F401  # its stories register themselves
import stories_delay  # noqa: F401
import stories_direct  # noqa: F401
import stories_handlers  # noqa: F401
import stories_locks  # noqa: F401
import stories_marks  # noqa: F401
import stories_offsets  # noqa: F401
import stories_owners  # noqa: F401
import stories_pops  # noqa: F401
import stories_producers  # noqa: F401
import stories_replicas  # noqa: F401
import stories_tails  # noqa: F401
import stories_transactions  # noqa: F401
from dejamq_analytics import AuditResult, audit
from dejamq_analytics.duck.session import DuckSession
from dejamq_analytics.frames import DUCKDB, SPARK, using
from dejamq_analytics.spark.session import make_session
from pyspark.sql import SparkSession
from stories import STORIES, write_all
from tails import one_of_them
from told import Auditor, Told


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's first audit takes most of a minute on a busy machine, and it falls into some test's set-up."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }  # fmt: skip
    session = make_session("local[2]", settings, quick=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def quick() -> SparkSession:
    """DuckDB, for audits; its type is that of the session whose place it takes."""
    return cast(SparkSession, DuckSession())


@pytest.fixture(params=[pytest.param(SPARK, marks=pytest.mark.spark), DUCKDB])
def in_either(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Rules that the test calls itself, once with each engine."""
    session: SparkSession = request.getfixturevalue("spark" if request.param == SPARK else "quick")
    with using(request.param):
        yield session


@pytest.fixture
def audited_by_spark(spark: SparkSession) -> Iterator[Auditor]:
    """As ``audited``, by Spark; what it cached goes when the test ends."""

    def run(journals: Sequence[str], **options: Any) -> AuditResult:
        return audit(spark, journals, **options)

    yield run
    spark.catalog.clearCache()


@pytest.fixture
def audited(quick: SparkSession, tmp_path: Path) -> Auditor:
    """Audit the journals in ``tmp_path``."""

    def run(stores: Sequence[Path] = (), journals: Sequence[str] = (), **options: Any) -> AuditResult:
        return audit(quick, journals or [str(tmp_path)], [str(store) for store in stores], **options)

    return run


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journals of all stories."""
    directory, aside = tmp_path_factory.mktemp("stories"), tmp_path_factory.mktemp("aside")
    write_all(directory)
    cut = [one_of_them(name, write, aside) for name, write in STORIES.items()]
    (directory / "cut.jsonl").write_bytes(b"".join(cut))
    return directory


@pytest.fixture(scope="session")
def told(quick: SparkSession, stories: Path) -> Told:
    return Told(audit(quick, [str(stories)]))
