"""Rooms and arrows of the house, read from the source: what the layers test checks and the picture shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
        "dejamq_broker.store.offline.promotion",
        "dejamq_broker.store.offline.verify",
    ),
}
OURS = frozenset(folder.split("/")[1] for folder in PACKAGES)

# Rooms of each package from the ground up: a file imports from its own room and from those before it. The longest
# name that fits is a file's room; "" is the package's own `__init__`, and what has no other room.
ROOMS = {
    "dejamq_proto": (
        "", "codes", "names", "texts", "loose_json", "standard_output", "signals", "failpoints", "config", "clock",
        "account", "native", "records", "wire", "remoting", "access", "remoting_client", "v2", "serving", "probe",
        "journal.events", "journal",
    ),
    "dejamq_namesrv": (
        "", "config", "topology", "whole_file", "kv_config", "masterships", "routes", "registry", "metrics", "doors",
        "app", "__main__",
    ),
    "dejamq_broker": (
        "", "store.files", "store.log", "store.index", "store.queues", "store.replica", "store.offline", "store",
        "base", "filters", "tables", "members", "writing", "deferred.transactions", "deferred", "timer", "dedup",
        "replication", "paths", "pop", "table_set", "operators", "registrar", "domain", "doors.hearing", "doors.fast",
        "doors.v1", "doors.remoting", "doors.v2", "doors", "app", "failover", "__main__",
    ),
    "dejamq": (
        "native", "values", "net", "receiving", "handling", "rebalance", "sending", "clients", "transactions",
        "telemetry", "lite", "simple", "admin", "inbox", "", "sync", "integrations",
    ),
    "dejamq_analytics": (
        "topics", "duck", "frames", "sources", "evidence", "options", "rules", "rules.history", "rules.anomalies",
        "rules.copies", "rules.pairs", "rules.declared", "survey", "groups", "spark", "pipeline", "report", "since",
        "log_audit", "run", "chronicle", "", "trial_audit", "follow", "__main__",
    ),
    "dejamq_lab": (
        "errors", "duplicates", "broker_duplicates", "auditing", "foreign", "cluster", "control", "dev", "",
        "pytest_plugin", "testcontainers", "machines", "scenario.script", "scenario.actors", "scenario.stage", "demo",
        "scenario", "scenario.trial", "rocketmq", "explore", "bench.client", "bench.peers", "bench",
    ),
    "dejamq_cli": (
        "terminal", "access", "groups", "history", "collecting", "console", "commands", "command_line", "", "__main__",
    ),
}  # fmt: skip


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


def modules(house: Path) -> dict[str, Path]:
    """Every module of ours by its name, without the generated stubs."""
    return {
        ".".join(path.relative_to((house / folder).parent).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in PACKAGES
        for path in sorted((house / folder).rglob("*.py"))
        if "_pb2" not in path.name
    }


def all_imports(house: Path) -> Iterator[Import]:
    for module, path in modules(house).items():
        yield from imports_of(path, module, path.relative_to(house))


def room_of(module: str) -> str | None:
    """The room of a module: the longest name that fits. None: it has no room."""
    package, _, rest = module.partition(".")
    fitting = [room for room in ROOMS.get(package, ()) if within(rest, room)]
    return max(fitting, key=len, default="" if not rest and "" in ROOMS.get(package, ()) else None)


def room_of_name(name: str) -> str | None:
    """The room of an imported name, which may be a thing of its package's `__init__` or a generated stub."""
    package = name.partition(".")[0]
    room = room_of(name)
    return "" if room is None and "" in ROOMS.get(package, ()) else room


def row(package: str, room: str) -> int:
    """The place of a room in its package's order."""
    return ROOMS[package].index(room)


def full_name(name: str, room: str) -> str:
    """A room's name with its package's in front."""
    package = name.partition(".")[0]
    return f"{package}.{room}" if room else package


def arrows(house: Path) -> dict[tuple[str, str], int]:
    """How many imports go from one room to another, by their full names."""
    counts: dict[tuple[str, str], int] = {}
    for found in all_imports(house):
        mine, other = room_of(found.importer), room_of_name(found.name)
        if mine is None or other is None or found.name.partition(".")[0] not in ROOMS:
            continue
        ends = full_name(found.importer, mine), full_name(found.name, other)
        if ends[0] != ends[1]:
            counts[ends] = counts.get(ends, 0) + 1
    return counts


def circles(house: Path) -> list[list[str]]:
    """Groups of files that import one another in a circle, imports on use and for types among them."""
    there = modules(house)
    graph: dict[str, set[str]] = {module: set() for module in there}
    for found in all_imports(house):
        target = found.name
        while target and target not in there:
            target = target.rpartition(".")[0]
        if target and target != found.importer:
            graph[found.importer].add(target)
    reached = {module: _reachable(graph, module) for module in graph}
    rings = {
        frozenset({one, *(two for two in reached[one] if one in reached[two])}) for one in graph if one in reached[one]
    }
    return sorted(sorted(ring) for ring in rings)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph[module]
    return found
