"""Numbers and texts that no request can carry are bad use, said in one line before anybody is asked."""

import os
import sys
from pathlib import Path

import pytest
from dejamq_cli.command_line import main
from dejamq_cli.terminal.output import BAD_USE
from dejamq_proto.texts import MOST_64, number_of

NOBODY = ["--namesrv", "127.0.0.1:1"]
HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "orders", "--queues", "99999999999"],
        ["topic", "create", "orders", "--read-queues", "99999999999"],
        ["topic", "create", "orders", "--write-queues", "99999999999"],
        ["message", "at", "orders", "broker-a", "99999999999", "0"],
        ["message", "at", "orders", "broker-a", "0", HUGE],
        ["consume", "orders", "--from", HUGE],
        ["offset", "reset", "billing", "orders", "--to-offset", HUGE],
        ["offset", "reset", "billing", "orders", "--to-time", HUGE],
        ["offset", "reset", "billing", "orders", "--to-begin", "--queue", "broker-a:99999999999"],
        ["group", "plan", "--queues", "99999999999", "--members", "a"],
    ],
    ids=" ".join,
)
def test_a_number_that_is_too_large_is_bad_use(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dejamq", *arguments, *NOBODY])
    assert main() == BAD_USE
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_argument_that_is_no_text_is_bad_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    monkeypatch.setattr(sys, "argv", ["dejamq", "message", "history", os.fsdecode(b"\xff"), "--journal", str(tmp_path)])
    assert main() == BAD_USE
    assert "no text in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "²", "٣", str(1 << 63), "9" * 5000])
def test_what_is_no_number_that_fits_is_none(text: str) -> None:
    assert number_of(text, MOST_64) is None


@pytest.mark.parametrize("value", [0, 17, MOST_64])
def test_a_number_that_fits_is_taken(value: int) -> None:
    assert number_of(str(value), MOST_64) == value
