"""The fixtures `seed` and `chance`: a failure that came by chance can be had again."""

import re
from pathlib import Path

import pytest

CONFTEST = (Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8")
UNLUCKY = """
def test_of_luck(chance, seed):
    assert not chance.random(), seed
"""


@pytest.fixture
def unlucky(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("DEJAMQ_SEED", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(UNLUCKY)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def told(tree: pytest.Pytester) -> tuple[str, str]:
    """The seed that is shown, and the number that came of it."""
    said = tree.runpytest_inprocess("-p", "no:cacheprovider").stdout.str()
    shown, number = re.search(r"again with DEJAMQ_SEED=(\d+)", said), re.search(r"AssertionError: (\d+)", said)
    drawn = re.search(r"assert not (0\.\d+)", said)
    assert shown
    assert number
    assert drawn
    assert shown[1] == number[1]
    return shown[1], drawn[1]


def test_a_failure_shows_its_seed_which_gives_it_again(
    unlucky: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = told(unlucky)
    monkeypatch.setenv("DEJAMQ_SEED", first[0])
    assert told(unlucky) == first
