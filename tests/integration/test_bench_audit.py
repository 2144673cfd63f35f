"""``dejamq bench audit``, small, with a stand-in for the audit that counts the messages by itself."""

import asyncio
from pathlib import Path

import pytest
from dejamq_lab.bench import auditing
from dejamq_lab.bench.client.result import Load
from dejamq_lab.errors import ClusterFailed
from dejamq_proto.journal import lines
from dejamq_proto.journal.events import Deliver

pytestmark = pytest.mark.process


async def count(journals: Path) -> int:
    return await asyncio.to_thread(count_now, journals)


def count_now(journals: Path) -> int:
    return len({key for run in lines.events(lines.files_in(journals), Deliver) for key in run.unique_keys})


async def test_the_journals_that_are_audited_have_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "_audit", count)
    result = await auditing.measure_audit(Load(300, 64))
    assert (result.what, result.messages, result.settings["journal_level"]) == ("audit", 300, "audit")
    assert result.seconds > 0
    assert result.baseline["journal_mb"] > 0


async def test_an_audit_that_missed_messages_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def blind(journals: Path) -> int:
        return await count(journals) - 1

    monkeypatch.setattr(auditing, "_audit", blind)
    with pytest.raises(ClusterFailed, match="saw 39 of 40"):
        await auditing.measure_audit(Load(40, 64))
