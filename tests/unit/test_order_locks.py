"""Queue locks at the broker (RocketMQ: RebalanceLockManagerTest, RebalanceLockManager)."""

import random
from pathlib import Path
from typing import Any

import pytest
from broker_parts import Parts, parts_in
from dejamq_broker.members.lock_service import LockService
from dejamq_broker.members.locks import LockTable, QueueAt
from dejamq_broker.tables.offsets import Asker
from dejamq_proto.journal.writer import Journal, Level, open_journal
from dejamq_proto.records.record import Record
from journalled import journalled

LIFE_MS = 60_000
FIRST, SECOND, THIRD = (QueueAt("orders", number) for number in range(3))


def table() -> LockTable:
    return LockTable(LIFE_MS)


def granted(locks: LockTable, client_id: str, *queues: QueueAt, now_ms: int = 0, group: str = "g") -> list[QueueAt]:
    return [each.queue for each in locks.lock(group, client_id, queues, now_ms) if each.granted]


def test_the_same_client_renews_its_lock() -> None:
    locks = table()
    assert granted(locks, "a", FIRST) == [FIRST]
    assert granted(locks, "a", FIRST, now_ms=LIFE_MS) == [FIRST]
    assert granted(locks, "b", FIRST, now_ms=2 * LIFE_MS) == [], "its life began again with the renewal"


def test_another_client_is_refused_while_the_lock_lives() -> None:
    locks = table()
    granted(locks, "a", FIRST)
    (answer,) = locks.lock("g", "b", [FIRST], LIFE_MS)
    assert (answer.granted, answer.owner, answer.age_ms) == (False, "a", LIFE_MS)


def test_a_lock_that_was_not_renewed_for_its_life_is_taken_over() -> None:
    locks = table()
    granted(locks, "a", FIRST)
    assert granted(locks, "b", FIRST, now_ms=LIFE_MS + 1) == [FIRST]
    assert granted(locks, "a", FIRST, now_ms=LIFE_MS + 2) == []


def test_a_refused_client_does_not_renew_the_lock_of_its_owner() -> None:
    locks = table()
    granted(locks, "a", FIRST)
    granted(locks, "b", FIRST, now_ms=LIFE_MS)
    assert granted(locks, "b", FIRST, now_ms=LIFE_MS + 1) == [FIRST]


def test_a_batch_is_granted_in_part() -> None:
    locks = table()
    granted(locks, "a", SECOND)
    assert granted(locks, "b", FIRST, SECOND, THIRD) == [FIRST, THIRD]


def test_unlocking_somebody_elses_lock_is_ignored() -> None:
    locks = table()
    granted(locks, "a", FIRST)
    (answer,) = locks.unlock("g", "b", [FIRST], 1)
    assert (answer.granted, answer.owner) == (False, "a")
    assert granted(locks, "b", FIRST, now_ms=2) == []


def test_an_unlocked_queue_is_free_for_anybody_at_once() -> None:
    locks = table()
    granted(locks, "a", FIRST)
    locks.unlock("g", "a", [FIRST, SECOND], 1)
    assert granted(locks, "b", FIRST, now_ms=2) == [FIRST]


def test_groups_do_not_lock_each_other_out() -> None:
    locks = table()
    granted(locks, "a", FIRST)
    assert granted(locks, "b", FIRST, group="h") == [FIRST]


def test_two_processes_with_one_client_id_both_hold_the_lock() -> None:
    """Cause R4: the owner is the client id."""
    locks = LockService("broker-a", LIFE_MS, _no_journal(), lambda: 0)
    assert locks.lock("g", [FIRST], Asker("a", "boot-1")) == [FIRST]
    assert locks.lock("g", [FIRST], Asker("a", "boot-2")) == [FIRST]


def test_all_locks_of_a_group_are_expired_when_none_is_alive() -> None:
    locks = table()
    assert locks.all_expired("g", 0), "nobody ever locked"
    granted(locks, "a", FIRST)
    granted(locks, "a", SECOND, now_ms=10)
    assert not locks.all_expired("g", LIFE_MS + 5), "one of them is alive"
    assert locks.all_expired("g", LIFE_MS + 11)
    granted(locks, "a", FIRST, now_ms=LIFE_MS + 11)
    locks.unlock("g", "a", [FIRST], LIFE_MS + 12)
    assert locks.all_expired("g", LIFE_MS + 12), "given back is not held"


def test_no_queue_ever_has_two_owners_whose_locks_live(chance: random.Random) -> None:
    locks, believed = table(), dict[tuple[str, QueueAt], int]()
    now_ms = 0
    for _ in range(3000):
        now_ms += chance.randrange(LIFE_MS // 8)
        client_id, queue = chance.choice("abc"), chance.choice((FIRST, SECOND))
        if chance.random() < 0.2:
            locks.unlock("g", client_id, [queue], now_ms)
            believed.pop((client_id, queue), None)
        elif granted(locks, client_id, queue, now_ms=now_ms):
            believed[client_id, queue] = now_ms
        for wanted in (FIRST, SECOND):
            owners = [who for (who, what), at in believed.items() if what == wanted and now_ms - at <= LIFE_MS]
            assert len(owners) <= 1, (now_ms, owners)


def test_every_request_is_journalled_with_the_owner_before_it(tmp_path: Path) -> None:
    now_ms = [1000]
    journal = open_journal(tmp_path, role="broker", process="b", boot_id="b0", level="forensic")
    locks = LockService("broker-a", LIFE_MS, journal, lambda: now_ms[0])
    locks.lock("g", [FIRST], Asker("a", "boot-a", 7))
    now_ms[0] += 5
    locks.lock("g", [FIRST], Asker("b", "boot-b", 8))
    locks.unlock("g", [FIRST], Asker("b", "boot-b", 9))
    locks.unlock("g", [FIRST], Asker("a", "boot-a", 10))
    journal.close()
    told = [
        (line["event"], line["client_id"], line.get("granted", True), line.get("owner", ""), line.get("age_ms", 0))
        for line in _lines(tmp_path)
    ]
    assert told == [
        ("LOCK", "a", True, "", 0), ("LOCK", "b", False, "a", 5), ("UNLOCK", "b", False, "a", 5),
        ("UNLOCK", "a", True, "a", 5),
    ]  # fmt: skip
    assert (
        _lines(tmp_path)[1] | {"broker_name": "broker-a", "topic": "orders", "queue_id": 0, "request_seq": 8}
        == (_lines(tmp_path)[1])
    )
    assert [line.get("life_ms", 0) for line in _lines(tmp_path)] == [LIFE_MS, 0, 0, 0]


@pytest.mark.parametrize(("locked", "topic"), [(False, "%RETRY%g"), (True, "%DLQ%g")])
def test_what_an_ordered_group_sends_to_its_retry_topic_is_a_dead_letter(
    tmp_path: Path, locked: bool, topic: str
) -> None:
    """RocketMQ asks isLockAllExpired: only ordered groups lock, and they try again where they are."""
    with parts_in(tmp_path) as parts:
        parts.groups.require("g")
        parts.retries._ordered = lambda group: locked and group == "g"
        assert parts.retries.redirect(_retry(0)).topic == topic
        assert parts.retries.redirect(_retry(1)).topic == topic
        assert parts.everywhere(topic) == [], "redirecting stores nothing by itself"


def test_a_locked_queue_of_one_group_makes_no_dead_letters_of_another(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        _lock_in(parts, "other")
        assert parts.retries.redirect(_retry(1)).topic == "%RETRY%g"


def _lock_in(parts: Parts, group: str) -> None:
    parts.groups.require("g")
    parts.retries._ordered = lambda asked: asked == group


def _retry(times: int) -> Record:
    return Record(topic="%RETRY%g", queue_id=0, body=b"x", raw_properties=b"", reconsume_times=times)


def _no_journal() -> Journal:
    return Journal(None, role="broker", process="", boot_id="", level=Level.OFF)


def _lines(directory: Path) -> list[dict[str, Any]]:
    (path,) = directory.glob("*.jsonl")
    return journalled(path)
