"""Tests that run side by side (`pytest -n`): a worker that ends in the middle of one."""

from pathlib import Path

import pytest

CONFTEST = (Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8")
NO_BROKER = """
@pytest.fixture(scope="session", autouse=True)
def roomy_disk() -> None:
    pass
"""
"""It takes the place of the fixture that brings a whole broker into each worker."""
ENDING = """
import os
from pathlib import Path

def test_before():
    pass

def test_that_ends_its_worker():
    with Path("ended").open("a") as file:
        file.write("x")
    os._exit(1)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_test_that_ends_its_worker_fails_once_and_the_others_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST + NO_BROKER)
    pytester.makepyfile(test_ending=ENDING, test_other="def test_other(): pass")
    result = pytester.runpytest_subprocess("-p", "xdist", "-n", "2", "--dist", "loadscope", timeout=250)
    result.assert_outcomes(passed=2, failed=1)
    assert (pytester.path / "ended").read_text() == "x"
