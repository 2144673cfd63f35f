"""Timed messages under SIGKILL; and their judge on trial."""

from pathlib import Path
from typing import Any

import pytest
from timer_kill import TIMER, judge, stopped


@pytest.mark.timeout(180)
async def test_a_broker_that_is_killed_and_stopped_loses_no_timed_message_and_repeats_only_what_a_kill_forgot(
    tmp_path: Path, seed: int
) -> None:
    judged = await stopped(tmp_path, 4, seed)
    judged.check()
    assert judged.waited > 20


def waits(log_offset: int) -> dict[str, Any]:
    properties = {"UNIQ_KEY": "k", "TIMER_OUT_MS": "5000", "TIMER_DELIVER_MS": "6000"}
    return {"topic": TIMER, "queue_offset": 3, "log_offset": log_offset, "store_timestamp": 0, "properties": properties}


def came(log_offset: int, at_ms: int = 6000) -> dict[str, Any]:
    properties = {"UNIQ_KEY": "k", "TIMER_OUT_MS": "5000"}
    return {"topic": "t", "log_offset": log_offset, "store_timestamp": at_ms, "properties": properties}


def boot(log_max: int, *, clean: bool = False) -> dict[str, Any]:
    return {"event": "BOOT", "log_max": log_max, "clean": clean}


def wrote(read_ms: int, queue_offset: int) -> dict[str, Any]:
    progress = f'{{"read_ms":{read_ms},"queue_offset":{queue_offset}}}'
    return {"event": "PROGRESS_FLUSH", "service": "timer", "progress": progress}


def test_what_never_came_is_lost_and_what_came_early_is_told() -> None:
    assert judge([waits(0)], [boot(0)]).lost == ["k"]
    assert judge([waits(0), came(1, 5999)], [boot(0)]).early == ["k"]


@pytest.mark.parametrize(
    ("lines", "explained"),
    [
        ([boot(5)], True), ([], False), ([boot(5, clean=True)], False),
        ([wrote(6000, 4), boot(5)], True), ([wrote(6000, 4), wrote(6000, 4), boot(5)], False),
        ([wrote(5000, 4), wrote(6000, 4), boot(5)], True),
    ],
    ids=[
        "a crash between", "no restart", "a clean restart", "killed while it wrote", "written twice",
        "written before it was delivered",
    ],
)  # fmt: skip
def test_a_repeat_is_explained_only_by_a_crash_that_forgot_the_delivery(
    lines: list[dict[str, Any]], explained: bool
) -> None:
    judged = judge([waits(0), came(1), came(9)], [boot(0, clean=True), *lines])
    assert (judged.repeated, judged.outside) == (1, [] if explained else ["k"])
