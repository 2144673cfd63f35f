"""What Java read and checked of Spark's classes is kept by the second session for all that follow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_analytics.spark import class_archive
from dejamq_analytics.spark.java import MAKES
from test_java import fake_java

SESSION = "from dejamq_analytics.spark.session import make_session; make_session(quick=True).range(3).count()"
FROM_ARCHIVE = "source: shared objects file (top)"
HALF_AN_ARCHIVE = "spark-0.jsa.c0ffee00"


def session(cache: Path, log: Path) -> str:
    """Where the Java of a small session took its classes from. Returns when that Java has ended."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "JDK_JAVA_OPTIONS": f"-Xlog:class+load:file={log}"}
    environment.pop("JAVA_HOME", None)  # of a session of these tests
    done = subprocess.run([sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True, check=True)
    assert "cds" not in done.stdout + done.stderr
    return log.read_text()


def archives(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("dejamq/java-*/*.jsa*"))


@pytest.mark.spark
def test_the_second_session_keeps_its_classes_and_the_third_one_begins_with_them(tmp_path: Path) -> None:
    cache, log = tmp_path / "a cache", tmp_path / "classes.log"
    session(cache, log)
    assert archives(cache) == []
    session(cache, log)
    [archive] = archives(cache)
    assert archive.endswith(".jsa")
    loaded = session(cache, log).splitlines()
    assert sum(FROM_ARCHIVE in line for line in loaded) > len(loaded) / 2


@pytest.mark.spark
def test_a_session_starts_without_an_archive_that_is_damaged(tmp_path: Path) -> None:
    cache, log = tmp_path / "cache", tmp_path / "classes.log"
    session(cache, log)
    [starts] = cache.glob("dejamq/java-*/spark-*.starts")
    starts.with_suffix(".jsa").write_bytes(b"torn" * 4096)
    assert FROM_ARCHIVE not in session(cache, log)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wrapper's home in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = tmp_path / "dejamq" / "java-0"
    fake_java(home, "17")
    return home


def second(home: Path) -> str:
    class_archive.java_options(home, {})
    return class_archive.java_options(home, {})


def test_an_archive_that_is_never_ready_is_made_ever_more_seldom(home: Path) -> None:
    made = [start for start in range(1, 20) if MAKES in class_archive.java_options(home, {})]
    assert made == [2, 4, 8, 16]


def test_what_is_kept_is_of_one_spark(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = second(home).partition(".jsa")[0]
    monkeypatch.setattr("pyspark.__version__", "0.9")
    assert class_archive.java_options(home, {}) == ""
    assert mine not in class_archive.java_options(home, {})


def test_archives_of_other_versions_go_when_there_are_several_and_torn_ones_in_an_hour(home: Path) -> None:
    for age in range(5):
        old = home / f"spark-{age}.jsa"
        old.touch()
        os.utime(old, (age, age))
    (home / HALF_AN_ARCHIVE).touch()
    os.utime(home / HALF_AN_ARCHIVE, (0, 0))
    (home / "spark-0.jsa.of-now").touch()
    assert MAKES in second(home)
    assert sorted(path.name for path in home.glob("*.jsa*")) == ["spark-0.jsa.of-now", "spark-3.jsa", "spark-4.jsa"]


def test_nothing_is_kept_where_the_wrapper_is_temporary(home: Path, tmp_path: Path) -> None:
    assert second(home.rename(tmp_path / "dejamq-java-x")) == ""


def test_nothing_is_kept_where_somebody_chose_how_java_starts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"spark.driver.extraClassPath": "mine.jar"}
    assert [class_archive.java_options(home, chosen) for _ in range(2)] == ["", ""]
    monkeypatch.setenv("SPARK_CONF_DIR", str(home))
    assert second(home) == ""


def test_an_audit_goes_on_where_nothing_can_be_kept(home: Path) -> None:
    home.joinpath("bin", "java").unlink()
    home.joinpath("bin").rmdir()
    home.rmdir()
    assert second(home) == ""
