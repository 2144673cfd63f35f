"""Imports point one way: the walls of the house, read from the source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]

# Folder and import package -> what of ours it may import. A name stands for itself and everything below it.
PACKAGES = {
    "proto/dejamq_proto": (),
    "namesrv/dejamq_namesrv": ("dejamq_proto",),
    "broker/dejamq_broker": ("dejamq_proto",),
    "client/dejamq": ("dejamq_proto",),
    "analytics/dejamq_analytics": ("dejamq_proto",),
    "lab/dejamq_lab": ("dejamq_proto", "dejamq_namesrv", "dejamq_broker", "dejamq", "dejamq_analytics"),
    "cli/dejamq_cli": (
        "dejamq_proto",
        "dejamq",
        "dejamq_lab",
        "dejamq_analytics",
        "dejamq_broker.store.dump",
        "dejamq_broker.store.promotion",
        "dejamq_broker.store.verify",
    ),
}
OURS = frozenset(folder.split("/")[1] for folder in PACKAGES)
# Spark is heavy and an extra: the lab audits only when it is asked to.
ONLY_ON_USE = (("dejamq_lab", "dejamq_analytics"), ("dejamq_cli", "dejamq_analytics"))

# Inside the store, from the top down; a file imports from rows below its own only.
STORE = "dejamq_broker.store"
STORE_ROWS = (
    ("__init__", "__main__"),
    ("dump", "promotion", "verify"),
    ("slave_store", "slave_note"),
    ("message_store", "verify_log", "verify_index", "verify_files"),
    ("store_reading",),
    ("verify_queues", "verify_index_file"),
    ("replica",),
    ("append", "reput", "flush", "recovery", "retention", "reading", "query"),
    ("queue_flush", "pages_ahead", "log_sync", "recovery_walk"),
    ("consume_queues", "next_file", "at_rest", "late", "log_copy", "incoming"),
    ("queue_again", "coverage"),
    ("commit_log", "consume_queue", "index", "disk", "log_cut", "deleted"),
    ("index_trust",),
    ("index_file", "entry_tail"),
    ("entry_files",),
    ("file_queue", "checkpoint", "start_point", "unsupported"),
    ("mapped_file", "directory_lock"),
    ("entries", "index_keys", "torn"),
    ("paths", "config", "log_scan", "directories"),
    ("texts", "promises"),
    ("batch", "errors", "findings", "described", "other_threads", "outcome"),
)


@dataclass(frozen=True)
class Import:
    """One imported name, in full (`from a.b import c` is a.b.c), and where it stands."""

    importer: str
    path: Path
    line: int
    name: str
    on_use: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.importer} imports {self.name}"


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def imports_of(path: Path, importer: str, relative_path: Path) -> Iterator[Import]:
    """Every import in one file. Those inside a function run when it is called: they are `on_use`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    on_use = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        for name in imported_names(node, importer, is_package=path.name == "__init__.py"):
            yield Import(importer, relative_path, getattr(node, "lineno", 0), name, id(node) in on_use)


def imported_names(node: ast.AST, importer: str, *, is_package: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        parents = importer.split(".")
        kept = len(parents) - node.level + is_package
        base = ".".join([*parents[:kept], *([base] if base else [])])
    return [f"{base}.{alias.name}" for alias in node.names]


def all_imports(house: Path) -> Iterator[Import]:
    for folder in PACKAGES:
        top = house / folder
        for path in sorted(top.rglob("*.py")):
            module = ".".join(path.relative_to(top.parent).with_suffix("").parts)
            yield from imports_of(path, module.removesuffix(".__init__"), path.relative_to(house))


def points_up(found: Import) -> bool:
    """Whether an import of ours is not one that PACKAGES allows."""
    package = found.importer.split(".")[0]
    target = found.name.split(".")[0]
    if target not in OURS or target == package:
        return False
    if (package, target) in ONLY_ON_USE and not found.on_use:
        return True
    allowed = next(names for folder, names in PACKAGES.items() if folder.endswith("/" + package))
    return not any(within(found.name, name) for name in allowed)


def store_row(module: str) -> int | None:
    """The row of a store module in STORE_ROWS; the package itself is its `__init__`. None: it has no row."""
    name = module.removeprefix(STORE).removeprefix(".").split(".")[0] or "__init__"
    return next((row for row, names in enumerate(STORE_ROWS) if name in names), None)


def climbs_in_store(found: Import) -> bool:
    """Whether an import inside the store does not go down. A file without a row may not be there."""
    if not within(found.importer, STORE) or not within(found.name, STORE):
        return within(found.importer, STORE) and within(found.name, "dejamq_broker")
    mine, other = store_row(found.importer), store_row(found.name)
    # `from dejamq_broker.store import X` names a thing of `__init__`, unless X is a file of the store.
    return mine is None or mine >= (0 if other is None else other)


def grpc_escapes(found: Import) -> bool:
    """Whether gRPC is imported outside the proto helpers and the servicers' and callers' own files."""
    is_door = within(found.importer, "dejamq_proto") or found.path.name.startswith("rpc")
    return found.name.split(".")[0].startswith("grpc") and not is_door


def stub_escapes(found: Import) -> bool:
    """Whether protobuf is known behind a server's doors: others (RocketMQ's own protocols) will be cut beside gRPC."""
    is_server = within(found.importer, "dejamq_broker") or within(found.importer, "dejamq_namesrv")
    is_stub = any(part.endswith(("_pb2", "_pb2_grpc")) for part in found.name.split("."))
    is_door = found.path.name.startswith("rpc") or found.path.name == "app.py"  # which hangs the doors
    return is_server and is_stub and not is_door


def thread_escapes(found: Import) -> bool:
    """Whether threads are used where the event loop does the work."""
    may = (STORE, "dejamq.sync", "dejamq.handler_threads", "dejamq_lab.scenario.ledger", "dejamq_analytics.interrupts")
    return within(found.name, "threading") and not any(within(found.importer, part) for part in may)


RULES = {
    "imports point one way, the audit is imported on use": points_up,
    "the store's files import downwards only, and nothing of the broker": climbs_in_store,
    "grpc belongs to dejamq_proto and the rpc*.py files": grpc_escapes,
    "behind a servicer nobody knows protobuf": stub_escapes,
    "threads belong to the store, dejamq.sync, plain handlers, the lab's ledger and an audit's Ctrl-C": thread_escapes,
}


def violations(house: Path) -> list[str]:
    """What breaks a rule in the tree at `house`, one line each."""
    return [f"{found} ({rule})" for found in all_imports(house) for rule, breaks in RULES.items() if breaks(found)]


def test_imports_point_one_way() -> None:
    assert violations(HOUSE) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("proto/dejamq_proto/names.py", "import dejamq"),
        ("namesrv/dejamq_namesrv/app.py", "from dejamq_broker import config"),
        ("broker/dejamq_broker/app.py", "def late():\n    import dejamq.producer"),
        ("client/dejamq/producer.py", "from dejamq_lab import Cluster"),
        ("analytics/dejamq_analytics/read.py", "from dejamq import Message"),
        ("lab/dejamq_lab/verdict.py", "from dejamq_analytics import audit"),
        ("lab/dejamq_lab/verdict.py", "import dejamq_cli"),
        ("cli/dejamq_cli/store.py", "from dejamq_broker.store import message_store"),
        ("broker/dejamq_broker/store/flush.py", "from .message_store import MessageStore"),
        ("broker/dejamq_broker/store/flush.py", "from dejamq_broker.store import MessageStore"),
        ("broker/dejamq_broker/store/flush.py", "from dejamq_broker.store.reput import Reput"),
        ("broker/dejamq_broker/store/paths.py", "from ..config import BrokerConfig"),
        ("broker/dejamq_broker/store/without_a_row.py", "from .paths import LOCK"),
        ("broker/dejamq_broker/topics.py", "import grpc.aio"),
        ("broker/dejamq_broker/topics.py", "from grpc_health.v1 import health"),
        ("broker/dejamq_broker/topics.py", "from dejamq_proto.common_pb2 import Caller"),
        ("client/dejamq/fetcher.py", "from threading import Lock"),
    ],
)
def test_an_import_through_a_wall_is_reported(tmp_path: Path, path: str, source: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(source, encoding="utf-8")
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "broker/dejamq_broker/rpc_send.py",
            "import grpc\nfrom dejamq_proto import send_pb2\nfrom .topics import Topics",
        ),
        (
            "broker/dejamq_broker/store/flush.py",
            "import threading\nfrom .commit_log import CommitLog\nfrom . import paths",
        ),
        ("broker/dejamq_broker/store/__init__.py", "from .message_store import MessageStore\nfrom . import errors"),
        ("client/dejamq/sync.py", "import threading\nfrom . import producer"),
        ("lab/dejamq_lab/verdict.py", "import dejamq\n\ndef audit():\n    from dejamq_analytics import audit"),
        ("cli/dejamq_cli/store.py", "from dejamq_broker.store.dump import main\nfrom dejamq_lab import Cluster"),
        ("proto/dejamq_proto/calling.py", "import grpc.aio"),
    ],
)
def test_an_import_through_a_door_is_allowed(tmp_path: Path, path: str, source: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(source, encoding="utf-8")
    assert violations(tmp_path) == []
