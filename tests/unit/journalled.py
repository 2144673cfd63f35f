"""What processes under test wrote to their journals."""

from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto.journal.lines import whole_lines

Line = dict[str, Any]


def journalled(place: Path, event: str = "", of: str = "*") -> list[Line]:
    """The lines of one journal, or of a folder's whose names begin with ``of``, each in its order.

    Only whole ones: a process that still runs may be in the middle of its last.
    """
    paths = [place] if place.is_file() else sorted(place.glob(f"{of}.jsonl"))
    found = [msgspec.json.decode(line) for path in paths for line in whole_lines(path)]
    return [line for line in found if event in ("", line["event"])]
