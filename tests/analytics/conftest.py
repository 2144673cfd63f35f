"""One small Spark for all tests of the audit, and one audit for all stories: each has a group of its own."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
import stories_producers  # noqa: F401
import stories_replicas  # noqa: F401
import stories_tails  # noqa: F401
import stories_transactions  # noqa: F401
from dejamq_analytics import AuditResult, audit
from dejamq_analytics.session import make_session
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
def spark() -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g"}
    session = make_session("local[2]", settings, quick=True)
    yield session
    session.stop()


@pytest.fixture
def audited(spark: SparkSession, tmp_path: Path) -> Iterator[Auditor]:
    """Audit the journals in ``tmp_path``; what Spark cached for it goes when the test ends."""

    def run(stores: Sequence[Path] = (), journals: Sequence[str] = (), **options: Any) -> AuditResult:
        return audit(spark, journals or [str(tmp_path)], [str(store) for store in stores], **options)

    yield run
    spark.catalog.clearCache()


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journals of all stories."""
    directory, aside = tmp_path_factory.mktemp("stories"), tmp_path_factory.mktemp("aside")
    write_all(directory)
    cut = [one_of_them(name, write, aside) for name, write in STORIES.items()]
    (directory / "cut.jsonl").write_bytes(b"".join(cut))
    return directory


@pytest.fixture(scope="session")
def told(spark: SparkSession, stories: Path) -> Told:
    return Told(audit(spark, [str(stories)]))
