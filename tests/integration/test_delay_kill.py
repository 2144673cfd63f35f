"""Delayed and retried messages under SIGKILL, the short form of prove_delay_kill.py; and its judge on trial."""

from pathlib import Path
from typing import Any

import pytest
from delay_kill import stopped
from delay_proof import SCHEDULE, Judged, judge

LEVELS_MS = (1000, 5000)


@pytest.mark.timeout(120)
async def test_a_broker_that_is_killed_and_then_stopped_loses_no_delayed_message_and_repeats_only_what_a_kill_forgot(
    tmp_path: Path,
    seed: int,
) -> None:
    told = await stopped(tmp_path, 2, seed)
    told.check()
    assert told.judged.waited > 20


def waits(log_offset: int, *, offset: int = 0, key: str = "k") -> dict[str, Any]:
    """Waits at level 1 since the log offset's own time in ms."""
    return {
        "topic": SCHEDULE, "queue_id": 0, "queue_offset": offset, "log_offset": log_offset,
        "store_timestamp": log_offset, "reconsume_times": 0, "properties": {"UNIQ_KEY": key},
    }  # fmt: skip


def delivered(log_offset: int, key: str = "k") -> dict[str, Any]:
    return {
        "topic": "t", "queue_id": 0, "queue_offset": 0, "log_offset": log_offset, "store_timestamp": log_offset,
        "reconsume_times": 0, "properties": {"UNIQ_KEY": key, "REAL_TOPIC": "t"},
    }  # fmt: skip


def boot(log_max: int, *, clean: bool = False) -> dict[str, Any]:
    return {"event": "BOOT", "log_max": log_max, "clean": clean}


def wrote(next_offset: int) -> dict[str, Any]:
    return {"event": "PROGRESS_FLUSH", "progress": f'{{"1":{next_offset}}}'}


def judged(records: list[dict[str, Any]], *lines: dict[str, Any]) -> Judged:
    return judge(records, [boot(0, clean=True), *lines], LEVELS_MS)


def test_a_message_that_was_never_delivered_is_lost() -> None:
    assert judged([waits(0)]).lost == [("k", 0)]
    assert judged([waits(0), delivered(1000)]).lost == []


def test_a_message_before_its_time_is_early_be_it_by_a_millisecond() -> None:
    assert judged([waits(0), delivered(999)]).early == [("k", 0)]
    assert judged([waits(0), delivered(1000)]).early == []


def test_one_copy_for_each_that_waited_is_no_repeat() -> None:
    assert judged([waits(0), waits(1), delivered(1001), delivered(1002)]).repeated == []


@pytest.mark.parametrize(
    ("lines", "explained"),
    [
        ([boot(2000)], True),
        ([], False),
        ([boot(2000, clean=True)], False),
        ([boot(500)], False),
        ([boot(9000)], False),
        ([wrote(1), boot(2000)], True),
        ([wrote(1), wrote(1), boot(2000)], False),
        ([wrote(0), wrote(0), boot(2000)], True),
        ([boot(2000), boot(2000, clean=True)], True),
    ],
    ids=[
        "a crash between", "no restart", "a clean restart", "a crash before both", "a crash after both",
        "killed while it wrote", "written twice", "not past it", "a clean restart after the crash",
    ],
)  # fmt: skip
def test_a_repeat_is_explained_only_by_a_crash_that_forgot_the_delivery(
    lines: list[dict[str, Any]], explained: bool
) -> None:
    found = judged([waits(0), delivered(1000), delivered(3000)], *lines)
    assert found.repeated == [("k", 0)]
    assert found.outside == ([] if explained else [("k", 0)])
