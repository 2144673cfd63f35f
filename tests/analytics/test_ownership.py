"""Queues with two owners or none, and locks with two holders, are anomalies; a hand-over is not."""

from collections.abc import Callable
from pathlib import Path

from journals import History, Process
from stories_locks import LIFE_MS, lock, unlock
from told import Auditor

BOTH = ("c1", "c2")


def later(made: History, ms: int) -> None:
    made.clock.now_us += ms * 1000


def handed_over(made: History, *, lag_ms: int = 900) -> tuple[Process, Process]:
    """c1 gives queue 0 up at its next round, and c2 opens it at its own, before or after."""
    older, newer = made.consumer("c1"), made.consumer("c2")
    older.assign("c1", queues="0")
    queue = older.open_queue(0)
    older.assign(*BOTH, queues="")
    older.drop_queue(queue, 0, "reassigned")
    later(made, lag_ms)
    newer.assign(*BOTH, queues="0")
    newer.open_queue(0)
    return older, newer


def opened_before_it_was_dropped(made: History) -> None:
    older, newer = made.consumer("c1"), made.consumer("c2")
    older.assign("c1", queues="0")
    queue = older.open_queue(0)
    newer.assign(*BOTH, queues="0")
    newer.open_queue(0)
    older.assign(*BOTH, queues="")
    older.drop_queue(queue, 0, "reassigned")


def kept(made: History) -> None:
    older, newer = made.consumer("c1"), made.consumer("c2")
    older.assign(*BOTH, queues="0")
    older.open_queue(0)
    newer.assign("c2", queues="0 1")
    newer.open_queue(0)
    older.assign(*BOTH, queues="0")
    newer.assign("c2", queues="0 1")


def orphaned(made: History, *, rounds: int = 2, ms: int = 600) -> None:
    """Both members look so often and neither takes the queue."""
    older, newer = made.consumer("c1"), made.consumer("c2")
    older.assign("c1", queues="0")
    older.drop_queue(older.open_queue(0), 0, "reassigned")
    for _ in range(rounds):
        later(made, ms)
        older.assign(*BOTH, queues="")
        newer.assign(*BOTH, queues="")
    newer.assign("c2", queues="0")
    newer.open_queue(0)


def broadcast(made: History) -> None:
    for name in BOTH:
        member = made.consumer(name)
        member.assign(name, queues="0")
        member.open_queue(0, source="local")
        member.assign(name, queues="0")


def locked_twice(made: History, *, gave_back: bool = False, died: bool = False, ms: int = 1000) -> None:
    """The broker is started again and gives c2 the lock that c1 has for a minute."""
    older, newer, broker = made.consumer("c1"), made.consumer("c2"), made.broker()
    lock(broker, older)
    broker.kill()
    if died:
        older.kill()
    later(made, ms)
    if gave_back:
        unlock(older, 1, forced=False)
    again = made.broker(boot_id=f"{made.name}again".replace("-", ""))
    lock(again, newer)
    lock(again, newer, newer, age_ms=1000)
    if not died:
        older.close()


def test_queues_with_two_owners_or_none_are_told_and_hand_overs_are_not(tmp_path: Path, audited: Auditor) -> None:
    writers: dict[str, Callable[[History], object]] = {
        "handed-over": handed_over, "opened-before": opened_before_it_was_dropped, "kept": kept, "orphaned": orphaned,
        "soon": lambda made: orphaned(made, ms=400), "broadcast": broadcast,
        "one-round": lambda made: orphaned(made, rounds=1, ms=1200), "locked-twice": locked_twice,
        "lock-given-back": lambda made: locked_twice(made, gave_back=True),
        "lock-ended": lambda made: locked_twice(made, ms=LIFE_MS),
        "owner-dead": lambda made: locked_twice(made, died=True),
    }  # fmt: skip
    for name, write in writers.items():
        history = History(tmp_path, name)
        write(history)
        history.end()
    rows = {(row.kind, row.consumer_group, row.queue_id): row for row in audited().anomalies.collect()}
    assert set(rows) == {
        ("two_owners", "kept", 0), ("no_owner", "orphaned", 0), ("two_holders", "locked-twice", 0)
    }  # fmt: skip
    assert rows["two_owners", "kept", 0].detail == "kept-c2 opened it 1 times while kept-c1 held it and kept it"
    assert [line.event for line in rows["two_owners", "kept", 0].evidence] == ["PQ_OPEN", "ASSIGN"]
    twice = rows["two_holders", "locked-twice", 0]
    assert twice.detail == "locked-twice-broker-0 gave it to locked-twice-c2, and locked-twice-c1 had it from " + (
        "locked-twice-broker-0"
    )
    assert [line.event for line in twice.evidence] == ["LOCK", "LOCK"]
    assert "no member of orphaned had it for 12" in rows["no_owner", "orphaned", 0].detail
