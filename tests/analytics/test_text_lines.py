"""Lines of a log are read many at once; which ones, and their numbers, are those of a reader that takes each."""

import gzip
import re
from pathlib import Path
from types import ModuleType

import pytest
from dejamq_analytics.evidence import client_log, go_log, server_logs, text_lines, translate
from dejamq_analytics.evidence.text_lines import GMT8, lines_of, raw_lines
from hypothesis import given
from hypothesis import strategies as st

RECORDED = Path(__file__).parents[1] / "data" / "rocketmq"
LONGEST, BLOCK = 12, 7
CLUES = ("ab", "bca", "c\xe4")
LETTERS = (b"a", b"b", b"c", b"\xc3\xa4", b"\xff", b"\r", b"\n", b"\n\n", b"abca")


def one_by_one(content: bytes) -> list[tuple[int, str]]:
    """Each line from its beginning, as far as it may go."""
    lines = content.split(b"\n")
    ended = lines if lines[-1] else lines[:-1]
    return [(number, line[:LONGEST].decode("utf-8", "replace").rstrip("\r\n")) for number, line in enumerate(ended, 1)]


@given(
    letters=st.lists(st.sampled_from(LETTERS), max_size=60),
    packed=st.booleans(),
    clues=st.lists(st.sampled_from(CLUES), max_size=3),
)
def test_lines_read_in_blocks_are_those_that_a_reader_of_each_line_finds(
    tmp_path_factory: pytest.TempPathFactory, letters: list[bytes], packed: bool, clues: list[str]
) -> None:
    content = b"".join(letters)
    log = tmp_path_factory.getbasetemp() / "some.log"
    log.write_bytes(gzip.compress(content) if packed else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "LONGEST_LINE", LONGEST)
        patch.setattr(text_lines, "BLOCK", BLOCK)
        read = [*raw_lines(log, clues)]
    every = one_by_one(content)
    wanted = [line for line in every if not clues or any(clue in line[1] for clue in clues)]
    assert [line for line in read if line in wanted] == wanted, "none is missing"
    assert all(line in every for line in read), "only a clue behind the longest line tells of more"


@pytest.mark.parametrize("reader", [client_log, server_logs])
def test_every_line_of_use_of_the_recorded_runs_has_a_clue(reader: ModuleType) -> None:
    patterns = [re.compile(pattern) for pattern in reader.PATTERNS.values()]
    used = {
        line.text for log in RECORDED.rglob("*.log") for line in lines_of(log, GMT8)
        if any(pattern.match(line.text) for pattern in patterns)
    }  # fmt: skip
    assert len(used) > 100
    missed = {text for text in used if not any(clue in text for clue in reader.CLUES)}
    of_use = {text for text in missed if "subscription changed" not in text or "SQL92" in text}
    assert of_use == set(), "a change of tags is of none"


def test_clues_leave_out_no_line_of_use_of_a_go_client() -> None:
    logs = [log for log in RECORDED.rglob("*.log") if [*go_log.marks(raw_lines(log), "", "")]]
    assert logs
    for log in logs:
        assert [*go_log.marks(raw_lines(log, go_log.CLUES), "", "")] == [*go_log.marks(raw_lines(log), "", "")], log


def test_logs_that_are_read_side_by_side_tell_what_one_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for large_bytes in (translate.LARGE_BYTES, 0):
        monkeypatch.setattr(translate, "LARGE_BYTES", large_bytes)
        into = tmp_path / str(large_bytes)
        into.mkdir()
        told = translate.translate(translate.Reading([str(RECORDED / "o1")]), into)
        made.append((told.said, {path.name: path.read_bytes() for path in into.rglob("*.jsonl")}))
    assert made[0] == made[1]
    assert len(made[0][1]) > 2
