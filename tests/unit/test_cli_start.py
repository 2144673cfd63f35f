"""What the command answers while it still loads."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

INTERRUPTED_WHILE_LOADING = """
import sys


class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "dejamq_cli.commands.topic":
            raise KeyboardInterrupt


sys.meta_path.insert(0, Interrupted())
from dejamq_cli.__main__ import main
sys.exit(main())
"""


def test_ctrl_c_while_the_command_loads_ends_it_as_later_without_a_traceback() -> None:
    command = [sys.executable, "-c", INTERRUPTED_WHILE_LOADING, "topic", "list"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")
