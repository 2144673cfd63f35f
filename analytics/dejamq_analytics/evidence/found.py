"""Which files there are, and of which kind each is: by its name, and by its first lines where the name says nothing."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from dejamq_analytics.evidence import client_log, go_log, offset_files, server_logs
from dejamq_analytics.evidence.text_lines import raw_lines
from dejamq_analytics.evidence.trace import FIELD, KINDS
from dejamq_analytics.sources.paths import BadInput, local_path

LOOKED_AT = 3000
LAYERS = frozenset({
    "logs", "rocketmqlogs", "other_days", "otherdays", "store", "config", "commitlog", "snapshots", "trace", "evidence",
})  # fmt: skip
"""Folders of RocketMQ's own: the one above them is the machine's."""
CLIENT, GO, SERVER = "log of a Java client", "log of a Go client", "log of a server"
LOGS = (CLIENT, GO, SERVER)
OFFSETS, TRACE, POLLED, STORE, UNKNOWN = (
    "file of offsets", "exported trace", "answers that dejamq collect polled", "store", "not known"
)  # fmt: skip
SERVERS = re.compile(r"(broker|store|storeerror|lock|filter|transaction|namesrv|broker_default)(?=[._\d-]).*log")
NAMES = [
    (re.compile(r"rocketmq_client.*log"), CLIENT),
    (SERVERS, SERVER),
    (re.compile(r"evidence-\d+\.jsonl(\.gz)?$"), POLLED),
    (offset_files.NAME, OFFSETS),
]
IGNORED = re.compile(r"(\.tmp|abort|checkpoint|lock|truth\.json|\.idx)$")


class Found(NamedTuple):
    """One file, its kind, and the machine that it seems to be of."""

    path: Path
    kind: str
    host: str
    shown: str


def found_in(folders: Iterable[str]) -> list[Found]:
    """Every file below these folders. Stores are named by their folder. Raises BadInput for what is not there."""
    files: list[Found] = []
    for folder in folders:
        root = local_path(folder)
        if root is None or not root.exists():
            raise BadInput(f"no such directory of evidence: {folder}")
        files += _below(root)
    return files


def _below(root: Path) -> Iterator[Found]:
    if root.is_file():
        yield Found(root, kind_of(root), root.parent.name, root.name)
        return
    stores = {folder.parent for folder in root.rglob("commitlog") if folder.is_dir()}
    for store in sorted(stores):
        yield Found(store, STORE, host_of(store, root), str(store.relative_to(root)))
    for path in sorted(root.rglob("*")):
        inside = any(path.is_relative_to(store) and "config" not in path.parts for store in stores)
        if not path.is_file() or inside or IGNORED.search(path.name) or path.name.startswith("."):
            continue
        yield Found(path, kind_of(path), host_of(path.parent, root), str(path.relative_to(root)))


def host_of(folder: Path, root: Path) -> str:
    """The folder that a machine's files were copied into."""
    parts = folder.relative_to(root).parts
    named = [part for part in parts if part not in LAYERS]
    return "/".join(named) or root.resolve().name


def kind_of(path: Path) -> str:
    """Of one file."""
    for pattern, kind in NAMES:
        if pattern.match(path.name):
            return kind
    return _by_content(path)


def _by_content(path: Path) -> str:
    for _, text in islice(raw_lines(path), LOOKED_AT):
        if any(f"{kind}{FIELD}" in text for kind in KINDS):
            return TRACE
        if text.startswith('{"kind":"session"'):
            return POLLED
        if go_log.is_one(text):
            return GO
        if client_log.is_one(text):
            return CLIENT
        if server_logs.is_one(text):
            return SERVER
    return UNKNOWN
