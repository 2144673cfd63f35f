"""Imports point one way: the walls of the house, read from the source without running it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from rooms import (
    HOUSE,
    OURS,
    PACKAGES,
    ROOMS,
    Import,
    all_imports,
    circles,
    modules,
    room_of,
    room_of_name,
    row,
    within,
)

# Spark is heavy and an extra: the lab audits only when it is asked to.
ONLY_ON_USE = (("dejamq_lab", "dejamq_analytics"), ("dejamq_cli", "dejamq_analytics"))

# Rooms that may know gRPC: helpers of both ends, doors, the SDK's connections, and the lab's own questions and echoes.
GRPC_ROOMS = (
    "dejamq_proto", "dejamq_broker.doors", "dejamq_namesrv.doors", "dejamq.net", "dejamq.admin.calls",
    "dejamq_lab.cluster.rpc_control", "dejamq_lab.bench.rpc_echo", "dejamq_lab.scenario.actors.v2_client",
)  # fmt: skip
# Applications hang the doors.
STUB_ROOMS = ("dejamq_broker.doors", "dejamq_namesrv.doors", "dejamq_broker.app", "dejamq_namesrv.app")
THREAD_ROOMS = (
    "dejamq_broker.store", "dejamq_proto.journal.beside", "dejamq.sync", "dejamq.handling.handler_threads",
    "dejamq.values.unique_id", "dejamq_lab.scenario.script.ledger", "dejamq_lab.rocketmq.links",
    "dejamq_analytics.sources.interrupts", "dejamq_analytics.spark.interrupts", "dejamq_analytics.sources.pool",
)  # fmt: skip


def is_in(module: str, rooms: tuple[str, ...]) -> bool:
    return any(within(module, room) for room in rooms)


def points_up(found: Import) -> bool:
    """Whether an import of another package of ours is not one that PACKAGES allows."""
    package = found.importer.split(".")[0]
    target = found.name.split(".")[0]
    if target not in OURS or target == package:
        return False
    if (package, target) in ONLY_ON_USE and not found.on_use:
        return True
    allowed = next(names for folder, names in PACKAGES.items() if folder.endswith("/" + package))
    return not is_in(found.name, allowed)


def climbs(found: Import) -> bool:
    """Whether an import inside a package goes to a room that comes after the importer's own, or to none."""
    package = found.importer.split(".")[0]
    if found.name.split(".")[0] != package:
        return False
    mine, other = room_of(found.importer), room_of_name(found.name)
    return mine is None or other is None or row(package, other) > row(package, mine)


def store_escapes(found: Import) -> bool:
    """Whether the store, a library without network, knows something of the broker around it."""
    store = "dejamq_broker.store"
    return within(found.importer, store) and within(found.name, "dejamq_broker") and not within(found.name, store)


def grpc_escapes(found: Import) -> bool:
    """Whether gRPC is imported outside the rooms that speak it."""
    return found.name.split(".")[0].startswith("grpc") and not is_in(found.importer, GRPC_ROOMS)


def stub_escapes(found: Import) -> bool:
    """Whether protobuf is known behind a server's doors: other protocols have doors beside gRPC's."""
    is_server = within(found.importer, "dejamq_broker") or within(found.importer, "dejamq_namesrv")
    is_stub = any(part.endswith(("_pb2", "_pb2_grpc")) for part in found.name.split("."))
    return is_server and is_stub and not is_in(found.importer, STUB_ROOMS)


def thread_escapes(found: Import) -> bool:
    """Whether threads are used where the event loop does the work."""
    return within(found.name, "threading") and not is_in(found.importer, THREAD_ROOMS)


RULES = {
    "imports point one way, the audit is imported on use": points_up,
    "a file imports from its own room and from the rooms before it": climbs,
    "the store knows nothing of the broker": store_escapes,
    "grpc belongs to dejamq_proto, the doors and the SDK's connections": grpc_escapes,
    "behind a door nobody knows protobuf": stub_escapes,
    "threads belong to the store, journals, dejamq.sync, handlers, ids, a ledger, relays, Ctrl-C": thread_escapes,
}


def violations(house: Path) -> list[str]:
    """What breaks a rule in the tree at `house`, one line each."""
    return [f"{found} ({rule})" for found in all_imports(house) for rule, breaks in RULES.items() if breaks(found)]


def test_imports_point_one_way() -> None:
    assert violations(HOUSE) == []


def test_no_files_import_one_another_in_a_circle() -> None:
    assert circles(HOUSE) == []


def test_every_room_of_the_table_is_in_the_house() -> None:
    there = modules(HOUSE)
    named = {f"{package}.{room}" if room else package for package, rooms in ROOMS.items() for room in rooms}
    assert sorted(named - {room for room in named if any(within(module, room) for module in there)}) == []


def test_every_room_says_who_owns_it_and_where_to_enter() -> None:
    rooms = [path for folder in PACKAGES for path in (HOUSE / folder).rglob("__init__.py")]
    silent = [str(path.relative_to(HOUSE)) for path in rooms if "Enter at ``" not in path.read_text(encoding="utf-8")]
    assert silent == []


def test_a_room_has_at_most_25_files() -> None:
    folders = {path.parent for folder in PACKAGES for path in (HOUSE / folder).rglob("*.py")}
    counts = {folder: sum("_pb2" not in path.name for path in folder.glob("*.py")) for folder in folders}
    assert {str(folder.relative_to(HOUSE)): count for folder, count in counts.items() if count > 25} == {}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("proto/dejamq_proto/names.py", "import dejamq"),
        ("namesrv/dejamq_namesrv/app.py", "from dejamq_broker.base import config"),
        ("broker/dejamq_broker/app.py", "def late():\n    import dejamq.clients.producer"),
        ("client/dejamq/clients/producer.py", "from dejamq_lab import Cluster"),
        ("analytics/dejamq_analytics/sources/journals.py", "from dejamq import Message"),
        ("lab/dejamq_lab/scenario/judge.py", "from dejamq_analytics import audit"),
        ("lab/dejamq_lab/scenario/judge.py", "import dejamq_cli"),
        ("cli/dejamq_cli/commands/store.py", "from dejamq_broker.store import message_store"),
        ("broker/dejamq_broker/store/log/sync.py", "from dejamq_broker.store.message_store import MessageStore"),
        ("broker/dejamq_broker/store/log/sync.py", "from ..queues.consume_queues import ConsumeQueues"),
        ("broker/dejamq_broker/store/files/paths.py", "from ..reput import Reput"),
        ("broker/dejamq_broker/tables/topics.py", "from dejamq_broker.members.clients import Clients"),
        ("broker/dejamq_broker/paths/send.py", "from dejamq_broker.doors.v1.send import SendService"),
        ("broker/dejamq_broker/without_a_room.py", "from dejamq_broker.base.config import BrokerConfig"),
        ("client/dejamq/values/message.py", "from dejamq.net.instance import Instance"),
        ("broker/dejamq_broker/tables/topics.py", "import grpc.aio"),
        ("broker/dejamq_broker/tables/topics.py", "from grpc_health.v1 import health"),
        ("broker/dejamq_broker/tables/topics.py", "from dejamq_proto.common_pb2 import Caller"),
        ("client/dejamq/receiving/fetcher.py", "from threading import Lock"),
    ],
)
def test_an_import_through_a_wall_is_reported(tmp_path: Path, path: str, source: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(source, encoding="utf-8")
    assert len(violations(tmp_path)) == 1


def test_the_store_that_imports_the_broker_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "broker/dejamq_broker/store/flush.py"
    path.parent.mkdir(parents=True)
    path.write_text("from dejamq_broker.base.config import BrokerConfig", encoding="utf-8")
    assert any("the store knows nothing" in line for line in violations(tmp_path))


def test_two_files_that_import_one_another_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "broker/dejamq_broker/tables"
    folder.mkdir(parents=True)
    (folder / "topics.py").write_text("from dejamq_broker.tables.offsets import Offsets", encoding="utf-8")
    (folder / "offsets.py").write_text("from dejamq_broker.tables import topics", encoding="utf-8")
    assert circles(tmp_path) == [["dejamq_broker.tables.offsets", "dejamq_broker.tables.topics"]]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "broker/dejamq_broker/doors/v1/send.py",
            "import grpc\nfrom dejamq_proto import send_pb2\nfrom dejamq_broker.tables.topics import Topics",
        ),
        (
            "broker/dejamq_broker/store/flush.py",
            "import threading\nfrom .log.commit_log import CommitLog\nfrom .files import paths",
        ),
        (
            "broker/dejamq_broker/store/__init__.py",
            "from .message_store import MessageStore\nfrom .files import errors",
        ),
        ("client/dejamq/sync/producer.py", "import threading\nfrom dejamq.clients import producer"),
        ("lab/dejamq_lab/scenario/run.py", "import dejamq\n\ndef audit():\n    from dejamq_analytics import audit"),
        (
            "cli/dejamq_cli/commands/store.py",
            "from dejamq_broker.store.dump import main\nfrom dejamq_lab import Cluster",
        ),
        ("proto/dejamq_proto/wire/calling.py", "import grpc.aio"),
    ],
)
def test_an_import_through_a_door_is_allowed(tmp_path: Path, path: str, source: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(source, encoding="utf-8")
    assert violations(tmp_path) == []


def test_no_two_classes_have_one_name() -> None:
    """A reader who meets a name knows its class. Only the SDK's blocking twins share the names of what they wrap."""
    places: dict[str, list[str]] = {}
    for name, path in modules(HOUSE).items():
        for found in ast.parse(path.read_text()).body:
            if isinstance(found, ast.ClassDef):
                places.setdefault(found.name, []).append(name)
    shared = {
        name: found for name, found in places.items()
        if sum(not module.startswith("dejamq.sync.") for module in found) > 1
    }  # fmt: skip
    assert shared == {}
