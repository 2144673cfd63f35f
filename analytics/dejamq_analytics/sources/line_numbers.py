"""The file and line of journal lines that are known by boot id and number."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec
from dejamq_proto.journal.lines import boot_id, files_in
from dejamq_proto.loose_json import BAD_JSON

from dejamq_analytics.sources.paths import local_path

Line = tuple[str, int]


class _Numbered(msgspec.Struct):
    boot_id: str
    seq: int


_decode = msgspec.json.Decoder(_Numbered).decode


def places(journals: Iterable[str], wanted: AbstractSet[Line]) -> dict[Line, str]:
    """``FILE:LINE`` of each of these lines that a journal on this machine has. Other files are not opened."""
    folders = [folder for journal in journals if (folder := local_path(journal)) is not None]
    processes = {process for process, _ in wanted}
    found: dict[Line, str] = {}
    for folder in folders:
        for file in files_in(folder):
            if boot_id(file) in processes:
                found |= _in_file(file, wanted)
    return found


def _in_file(file: Path, wanted: AbstractSet[Line]) -> dict[Line, str]:
    found = {}
    with file.open("rb") as lines:
        for number, text in enumerate(lines, 1):
            try:
                line = _decode(text)
            except BAD_JSON:  # torn
                continue
            if (line.boot_id, line.seq) in wanted:
                found[line.boot_id, line.seq] = f"{file.name}:{number}"
    return found
