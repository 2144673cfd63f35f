"""Tables whose files are written beside the event loop: many changes share a write, and nothing waits but who must."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.base import json_file, table_file
from dejamq_broker.base.table_file import TableFile
from dejamq_broker.tables.topics import TopicConfig, TopicTable
from dejamq_proto.codes import Code, DejamqError


class Disk:
    """What ``json_file.write`` does is decided by the test; all contents that it was given are kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers, self.error = threading.Event(), ""
        self.answers.set()
        self.written: list[Any] = []
        self.threads: set[int] = set()
        self._real = json_file.write
        monkeypatch.setattr(json_file, "write", self._write)

    def _write(self, path: Path, content: Any) -> None:
        self.threads.add(threading.get_ident())
        assert self.answers.wait(30)
        if self.error:
            raise DejamqError(self.error, code=Code.SERVICE_NOT_AVAILABLE)
        self.written.append(content)
        self._real(path, content)


@pytest.fixture
async def disk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.answers.set()


def content(value: int) -> Callable[[], Any]:
    return lambda: {"value": value}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_changes_that_come_during_a_write_share_the_next_one(tmp_path: Path, disk: Disk) -> None:
    file = TableFile(tmp_path / "t.json")
    disk.answers.clear()
    for value in range(100):
        file.write(content(value))
        await asyncio.sleep(0)
    await until(lambda: disk.threads)
    waiting = [asyncio.ensure_future(file.kept()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    disk.answers.set()
    await asyncio.gather(*waiting)
    assert len(disk.written) <= 2
    assert json.loads((tmp_path / "t.json").read_text()) == {"value": 99}
    assert threading.get_ident() not in disk.threads


async def test_who_waits_for_a_disk_that_hangs_is_told_in_time(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, "PATIENCE_S", 0.05)
    file = TableFile(tmp_path / "t.json")
    disk.answers.clear()
    file.write(content(1))
    with pytest.raises(DejamqError, match="goes on trying") as late:
        await file.kept()
    assert (late.value.code, late.value.definite) == (Code.SERVICE_NOT_AVAILABLE, False)
    disk.answers.set()
    await until(lambda: disk.written == [{"value": 1}])


async def test_a_file_that_cannot_be_written_is_told_and_tried_again(tmp_path: Path, disk: Disk) -> None:
    file = TableFile(tmp_path / "t.json")
    disk.error = "no space"
    file.write(content(1))
    for _ in range(2):  # also the one that comes when a try has failed already
        with pytest.raises(DejamqError, match="no space"):
            await file.kept()
    disk.error = ""
    await file.kept()
    assert disk.written == [{"value": 1}]


async def test_a_topic_is_there_at_once_and_on_disk_when_it_is_kept(tmp_path: Path, disk: Disk) -> None:
    table = TopicTable(tmp_path / "topics.json", lambda: 0, lambda: None)
    disk.answers.clear()
    table.update(TopicConfig("orders"))
    assert table.get("orders") is not None
    assert not (tmp_path / "topics.json").exists()
    disk.answers.set()
    await table.kept()
    again = TopicTable(tmp_path / "topics.json", lambda: 0, lambda: None)
    again.load()
    assert again.get("orders") == table.get("orders")
    assert again.version == table.version
