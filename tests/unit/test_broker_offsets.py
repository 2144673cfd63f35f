"""The offset table: RocketMQ's rules for commits, queries and files."""

import json
from pathlib import Path

import pytest
from broker_tables import offset_table
from dejamq_broker.tables.offsets import Asker, OffsetTable, Position
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.writer import Journal, Level
from journalled import journalled

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
AT = Position("g", "t", 3)


class Queues:
    def __init__(self, minimum: int, in_memory: bool) -> None:
        self._minimum, self._in_memory = minimum, in_memory

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self._minimum

    def entry_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        return self._in_memory


def table_in(directory: Path, journal: Path | None = None) -> OffsetTable:
    level = Level.FORENSIC if journal else Level.OFF
    lines = Journal(journal, role="broker", process="b", boot_id="x", level=level)
    return offset_table(directory / "consumerOffset.json", lines, lambda: 1000)


@pytest.mark.parametrize(
    ("stored", "minimum", "in_memory", "answer"),
    [(7, 100, False, 7), (0, 0, True, 0), (None, 0, True, 0), (None, 0, False, None), (None, 5, True, None)],
)
def test_a_query_answers_the_stored_offset_or_zero_for_a_young_queue_or_nothing(
    tmp_path: Path, stored: int | None, minimum: int, in_memory: bool, answer: int | None
) -> None:
    table = table_in(tmp_path)
    if stored is not None:
        table.commit(AT, stored, by="sync")
    if answer is not None:
        assert table.query(AT, Queues(minimum, in_memory)) == answer
        return
    with pytest.raises(DejamqError) as caught:
        table.query(AT, Queues(minimum, in_memory))
    assert caught.value.code is Code.QUERY_NOT_FOUND


def test_a_lower_commit_is_accepted_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = table_in(tmp_path)
    table.commit(AT, 9, by="sync")
    table.commit(AT, 4, by="oneway", asker=Asker("late"))
    assert table.get(AT) == 4
    assert "offset_lowered" in caplog.text
    assert "late" in caplog.text


def test_a_negative_offset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DejamqError) as caught:
        table_in(tmp_path).commit(AT, -1, by="sync")
    assert caught.value.code is Code.INVALID_PARAMETER


async def test_a_flush_is_what_the_next_start_reads(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.commit(AT, 9, by="sync")
    await table.flush()
    table.commit(AT, 12, by="sync")
    again = table_in(tmp_path)
    assert again.load() == "main"
    assert again.get(AT) == 9
    assert list(again.of_group("g")) == [("t", 3, 9)]


async def test_an_unchanged_table_is_not_written_again(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    await table.flush()
    assert not table.path.exists()
    table.commit(AT, 9, by="sync")
    await table.flush()
    table.path.unlink()
    await table.flush()
    assert not table.path.exists()


async def test_the_journal_tells_old_and_new_and_what_was_flushed_and_loaded(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    table = table_in(tmp_path, journal)
    table.load()
    table.commit(AT, 9, by="sync", asker=Asker("c", "boot", 4))
    table.commit(AT, 4, by="piggyback")
    await table.flush()
    table_in(tmp_path, journal).load()
    first, one, two, flushed, loaded = journalled(journal)
    assert (first["event"], first["source"]) == ("OFF_LOAD", "none")
    assert (one["old"], one["new"], one["by"], one["client_boot_id"], one["request_seq"]) == (-1, 9, "sync", "boot", 4)
    assert (two["old"], two["new"], two["by"]) == (9, 4, "piggyback")
    assert (flushed["event"], loaded["event"], loaded["source"]) == ("OFF_FLUSH", "OFF_LOAD", "main")
    assert flushed["digest"] == loaded["digest"] != first["digest"]


@pytest.mark.parametrize(("kind", "offsets"), [("clean", (20, 14)), ("crash", (15, 15))])
async def test_a_real_brokers_file_is_read_and_written_in_its_quoted_form(
    tmp_path: Path, kind: str, offsets: tuple[int, int]
) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_bytes((GOLDEN / kind / "store/config/consumerOffset.json").read_bytes())
    table = table_in(tmp_path)
    assert table.load() == "main"
    assert tuple(table.get(Position("GroupRetry", "Order", number)) for number in (0, 1)) == offsets
    table.commit(Position("new", "Order", 0), 1, by="sync")
    await table.flush()
    assert json.loads(path.read_text())["offsetTable"]["Order@GroupRetry"] == {"0": offsets[0], "1": offsets[1]}
    assert table_in(tmp_path).load() == "main"
