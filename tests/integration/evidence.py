"""What tests read of the evidence that ``dejamq collect`` wrote."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def files_of(folder: Path) -> list[Path]:
    """The oldest first; of a pair the gzipped one."""
    found = {path for path in folder.glob("evidence-*") if path.suffix != ".tmp"}
    return sorted(path for path in found if path.with_name(f"{path.name}.gz") not in found)


def lines_of(folder: Path, kind: str = "", **about: Any) -> list[Line]:
    """Lines of this kind with these fields, as a reader takes them: a torn last line of a file is passed over."""
    found: list[Line] = []
    for path in files_of(folder):
        raw = content_of(path)
        found += map(json.loads, raw[: raw.rfind(b"\n") + 1].splitlines())
    wanted = about | ({"kind": kind} if kind else {})
    return [line for line in found if wanted.items() <= line.items()]


def content_of(path: Path) -> bytes:
    """Also of a file that was gzipped since the folder was listed."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        path = path.with_name(f"{path.name}.gz")
        raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def asked_at(folder: Path, kind: str) -> Counter[str]:
    """How many answers of this kind each server gave."""
    return Counter(line["source"] for line in lines_of(folder, kind))


def bodies_of(folder: Path) -> list[str]:
    """Of the trace topic's messages, in the order of their lines."""
    return [line["body"] for line in lines_of(folder, "trace")]
