"""Tests ask `inspect()` and public names. Each look at a private attribute of another object is counted here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
OF_NAMED_TUPLES = ("_asdict", "_fields", "_make", "_replace")
"""Public, although their names are not."""

# A number here may fall and not rise. What several tests look at becomes a field of an `inspect()`.
ALLOWED = {
    "analytics/journals.py": 1,
    "analytics/test_follow_chunks.py": 1,
    "analytics/test_java.py": 1,
    "analytics/test_large.py": 2,
    "analytics/test_session.py": 1,
    "integration/test_admin_topic_life.py": 2,
    "integration/test_broker_watched.py": 1,
    "integration/test_fast_port.py": 2,
    "integration/test_left_open.py": 3,
    "integration/test_push_consumer_broadcasting.py": 2,
    "integration/test_push_consumer_ordered_churn.py": 6,
    "integration/test_transactions.py": 1,
    "lab/test_stage_inproc.py": 1,
    "store/power_loss.py": 1,
    "store/store_machine.py": 1,
    "store/test_store_append.py": 1,
    "store/test_store_append_edges.py": 1,
    "store/test_store_disk.py": 1,
    "store/test_store_flush_settings.py": 2,
    "store/test_store_index.py": 4,
    "store/test_store_late.py": 3,
    "store/test_store_memory.py": 7,
    "store/test_store_query.py": 1,
    "store/test_store_queues_again.py": 1,
    "store/test_store_read_few.py": 2,
    "store/test_store_restart.py": 1,
    "store/test_store_retention.py": 8,
    "store/test_store_scan.py": 2,
    "store/test_store_sync_here.py": 4,
    "unit/commands_unheard.py": 1,
    "unit/test_broker_holds.py": 2,
    "unit/test_broker_measured.py": 3,
    "unit/test_broker_rules.py": 2,
    "unit/test_broker_transactions.py": 3,
    "unit/test_client_retire.py": 3,
    "unit/test_client_transactions.py": 3,
    "unit/test_client_unique_id.py": 1,
    "unit/test_clock.py": 2,
    "unit/test_consumer_batches.py": 2,
    "unit/test_consumer_fetcher.py": 2,
    "unit/test_consumer_rebalancer.py": 2,
    "unit/test_consumer_received.py": 1,
    "unit/test_consumer_room.py": 2,
    "unit/test_consumer_statistics.py": 1,
    "unit/test_demo_parts.py": 3,
    "unit/test_framed.py": 1,
    "unit/test_hostile_limits.py": 6,
    "unit/test_inbox.py": 1,
    "unit/test_lab_dialogue.py": 3,
    "unit/test_lite_running.py": 1,
    "unit/test_lite_shelf.py": 1,
    "unit/test_metrics_server.py": 1,
    "unit/test_native_collector.py": 2,
    "unit/test_order_dispatcher.py": 6,
    "unit/test_order_lane.py": 2,
    "unit/test_order_locks.py": 2,
    "unit/test_process_queue.py": 2,
    "unit/test_run_native.py": 1,
}


def looks(source: str) -> Iterator[int]:
    """The lines where a private attribute of something else than `self` or `cls` is read or set."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        own = ast.unparse(node.value) in ("self", "cls", "super()")
        if not own and node.attr not in OF_NAMED_TUPLES:
            yield node.lineno


def counted(folder: Path) -> dict[str, int]:
    """How many looks each file has, without those that have none."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.py"))}
    counts = {name: len(list(looks(path.read_text(encoding="utf-8")))) for name, path in files.items()}
    return {name: count for name, count in counts.items() if count}


def test_no_file_looks_more_often_into_private_attributes_than_is_allowed() -> None:
    more = {name: count for name, count in counted(TESTS).items() if count > ALLOWED.get(name, 0)}
    assert not more, f"give what is looked at a public name or a field of an inspect(): {more}"


def test_what_is_allowed_is_what_is_there() -> None:
    found = counted(TESTS)
    less = {name: found.get(name, 0) for name, count in ALLOWED.items() if found.get(name, 0) < count}
    assert not less, f"lower the numbers in ALLOWED to these: {less}"


def test_a_look_is_a_private_attribute_of_another_object() -> None:
    assert list(looks("a._b\nself._c\nself.d._e = 1\na._replace(f=2)\na.__class__\nsuper()._g()")) == [1, 3]
