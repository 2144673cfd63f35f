"""Steps that wait for brokers to know something."""

from types import SimpleNamespace
from typing import Any

import pytest
from dejamq import MessageQueue
from dejamq.admin.offsets import OffsetMove, QueueProgress
from dejamq_lab.scenario import waits
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.text import catalogue


class Told:
    """An ``Admin`` whose group commits one queue of two late, or never."""

    def __init__(self, late: int) -> None:
        self.asked, self._late = 0, late

    def __call__(self, namesrv: str) -> "Told":
        return self

    async def __aenter__(self) -> "Told":
        return self

    async def __aexit__(self, *raised: object) -> None:
        return

    @property
    def committed(self) -> int:
        return 2 if self.asked > self._late else 1

    async def progress(self, group: str) -> list[QueueProgress]:
        self.asked += 1
        return [QueueProgress(MessageQueue("orders", "a", number), 10, 0, 10, None) for number in range(self.committed)]

    async def plan_reset(self, group: str, topic: str, *, to_end: bool) -> list[OffsetMove]:
        before = [10 if number < self.committed else None for number in range(2)]
        return [OffsetMove(MessageQueue(topic, "a", at), one, 10, "") for at, one in enumerate(before)]


def waiting(monkeypatch: pytest.MonkeyPatch, told: Told) -> waits.Waits:
    monkeypatch.setattr(waits, "Admin", told)
    stage: Any = SimpleNamespace(scenario=catalogue()["O9"], cluster=SimpleNamespace(namesrv=""))
    return waits.Waits(stage)


async def test_all_is_committed_when_each_queue_with_messages_has_an_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(late=5)
    await waiting(monkeypatch, told).wait(steps.Committed(group="g"))
    assert told.asked == 6


async def test_a_queue_that_never_gets_one_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "UNREAD_S", 0.05)
    told = Told(late=1_000_000)
    await waiting(monkeypatch, told).wait(steps.Committed(group="g"))
    assert told.asked > 1
