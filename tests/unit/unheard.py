"""What commands end with when nobody gets what they say: a full disk, a closed descriptor, a reader that left."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

NOT_WRITTEN = {
    "full": "dejamq: standard output cannot be written: No space left on device\n",
    "closed": "dejamq: standard output cannot be written: it is closed\n",
    "left": "",
}
STATUS = {"full": 3, "closed": 3, "left": 141}


class Unheard(NamedTuple):
    """How one command ended."""

    arguments: list[str]
    way: str
    status: int
    errors: str


def ends(commands: list[tuple[list[str], str]], directory: Path) -> list[Unheard]:
    """Each command with its way of output, a key of STATUS. They end by themselves."""
    listed = directory / "commands.json"
    listed.write_text(json.dumps(commands))
    helper = Path(__file__).parent / "commands_unheard.py"
    ran = subprocess.run([sys.executable, str(helper), str(listed)], stdout=subprocess.PIPE, check=True)
    found = [Unheard(*json.loads(line)) for line in ran.stdout.splitlines()]
    assert len(found) == len(commands)
    return found
