"""Nothing half made is seen by what looks at all objects while garbage is collected, in each compiled function."""

import subprocess
import sys
from pathlib import Path

import dejamq.native
import dejamq_proto.native
import pytest

if not (dejamq.native.COMPILED and dejamq_proto.native.COMPILED):
    pytest.skip("dejamq was installed without its compiled parts", allow_module_level=True)

import dejamq.native._native
import dejamq_proto.native._native

WALK = Path(__file__).with_name("native_walk.py")
FUNCTIONS = [
    f"{module.__name__}.{name}"
    for module in (dejamq.native._native, dejamq_proto.native._native)
    for name in vars(module)
    if not name.startswith("_")
]  # fmt: skip


@pytest.fixture(scope="module")
def walked() -> list[str]:
    """The functions that a process went through: a walk over something half made ends it."""
    done = subprocess.run([sys.executable, str(WALK)], capture_output=True, text=True, timeout=120, check=False)
    return done.stdout.split()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_walk_over_all_young_objects_while_it_works_finds_nothing_half_made(function: str, walked: list[str]) -> None:
    assert function in walked
