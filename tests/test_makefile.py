"""The Makefile names tests and pages by their files: each of them is there."""

import subprocess
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent.parent


@pytest.mark.parametrize("target", ["test", "sanitize"])
def test_every_file_that_a_target_names_is_there(target: str) -> None:
    """A renamed test would end the target with an error only where somebody runs it."""
    told = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target], cwd=HOUSE, capture_output=True, text=True, check=True
    ).stdout
    named = {word for word in told.split() if word.startswith("tests/") and word.endswith(".py")}
    assert len(named) > 5
    assert sorted(name for name in named if "*" not in name and not (HOUSE / name).exists()) == []
