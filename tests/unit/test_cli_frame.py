"""What all commands have in common: tables, JSON, times, watching, questions, errors in one line."""

import datetime
import json
import math
import os
import sys
from collections.abc import Awaitable
from typing import Any

import pytest
import typer
from cli_runner import NOBODY, run_here
from dejamq import Admin
from dejamq_cli.access import watch
from dejamq_cli.access.admin_session import ask, ask_half, finish, refuse_half
from dejamq_cli.access.watch import show_or_watch, with_seconds
from dejamq_cli.terminal import dry_run
from dejamq_cli.terminal.output import Format, OutputClosed, say, show_fields, tell
from dejamq_cli.terminal.tables import blocks, table
from dejamq_cli.terminal.times import time_ms
from dejamq_proto.codes import BrokerUnavailable, ConfigError, SendTimeout

NOW_MS = 1_800_000_000_000


# --- tables


def test_a_table_has_the_keys_of_the_json_as_headings_and_numbers_stand_right() -> None:
    rows = [{"broker": "a", "lag": 7, "live": True}, {"broker": "broker-b", "lag": 1000, "live": None}]
    assert table(rows, None).splitlines() == ["broker     lag  live", "a            7  yes", "broker-b  1000  -"]


def test_a_table_that_does_not_fit_the_terminal_is_shown_as_blocks_and_nothing_is_cut() -> None:
    rows: list[dict[str, Any]] = [{"id": "A" * 60, "queues": [1, 2]}, {"id": "B" * 60, "queues": []}]
    text = "\n\n".join(f"id      {letter * 60}\nqueues  {queues}" for letter, queues in (("A", "1, 2"), ("B", "-")))
    assert table(rows, 60) == text
    assert table(rows, 80).count("\n") == 2
    assert table(rows, None).count("\n") == 2


def test_a_table_that_does_not_fit_the_terminal_loses_first_what_is_not_needed() -> None:
    rows = [{"id": "A" * 60, "host": "h" * 30, "lag": 7}]
    assert table(rows, 80, ("id", "lag")).splitlines()[0].split() == ["id", "lag"]
    assert table(rows, None, ("id", "lag")).splitlines()[0].split() == ["id", "host", "lag"]
    assert "h" * 30 in table(rows, 30, ("id", "lag"))


def test_what_looks_like_markup_is_shown_as_it_is() -> None:
    assert table([{"topic": "[red]x[/red]", "note": ":smile:"}], None).splitlines()[1] == "[red]x[/red]  :smile:"


def test_a_name_that_somebody_chose_does_not_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2Jc1\nc2 \u4f60"
    assert table([{"client_id": hostile}], None).splitlines() == ["client_id", "\\x1b[2Jc1\\nc2 \u4f60"]
    assert blocks([{"client_id": hostile}]) == "client_id  \\x1b[2Jc1\\nc2 \u4f60"
    say("no \x1b[2J group")
    assert capsys.readouterr().err == "dejamq: no \\x1b[2J group\n"


def test_a_moment_is_told_in_local_time_and_its_key_says_that_it_is_one() -> None:
    text = blocks([{"stored_timestamp_ms": NOW_MS}])
    assert text == f"stored  {datetime.datetime.fromtimestamp(NOW_MS / 1000)}"


def test_one_thing_is_a_name_and_a_value_a_line_or_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    show_fields({"name": "a", "up_for": 3}, Format.TABLE)
    show_fields({"name": "a", "up_for": 3}, Format.JSON)
    assert capsys.readouterr().out == 'name    a\nup_for  3\n{"name":"a","up_for":3}\n'


def test_output_that_nobody_reads_ends_the_command_and_nothing_complains(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(OutputClosed):
            tell("nobody reads this")
        tell("nor this")


# --- times


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", NOW_MS),
        ("10m ago", NOW_MS - 600_000),
        ("1.5 h ago", NOW_MS - 5_400_000),
        ("250ms ago", NOW_MS - 250),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-02T00:00:00.005+00:00", 86_400_005),
        ("1970-01-02T00:00:00Z", 86_400_000),
        ("1900-01-01T00:00:00Z", 1),
        ("999999w ago", 1),
        ("9" * 400 + "d ago", 1),
    ],
)
def test_a_moment_may_be_written_in_several_ways(text: str, wanted: int) -> None:
    assert time_ms(text, NOW_MS, option="--to-time") == wanted


def test_a_moment_without_a_zone_is_local_also_as_rocketmq_writes_it() -> None:
    local = time_ms("2026-01-31T12:00:00.250", NOW_MS, option="--to-time")
    assert time_ms("2026-01-31#12:00:00:250", NOW_MS, option="--to-time") == local


@pytest.mark.parametrize(
    "text", ["yesterday", "10m", "2026-13-01", "1700000000", "-5", "", "9999999-01-01#0:0:0:0", "9" * 16, "9" * 5000]
)
def test_a_moment_that_is_none_names_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match="--to-time"):
        time_ms(text, NOW_MS, option="--to-time")


# --- watching


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["group", "lag", "--watch"], ["group", "lag", "--watch=2"]),
        (["--watch", "-o", "json"], ["--watch=2", "-o", "json"]),
        (["--watch", "5", "x"], ["--watch", "5", "x"]),
        (["--watch", "0.5"], ["--watch", "0.5"]),
        (["--watch=7"], ["--watch=7"]),
        (["send", "t", "--", "--watch"], ["send", "t", "--", "--watch"]),
        ([], []),
    ],
)
def test_watch_may_stand_alone(given: list[str], wanted: list[str]) -> None:
    assert with_seconds(given) == wanted


class Looks:
    """Answers one look after the other, then Ctrl-C."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    async def __call__(self) -> tuple[Any, dict[str, Any]]:
        if not self._answers:
            raise KeyboardInterrupt
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, {}


def show(answer: Any, output: Format) -> None:
    tell(f"<{answer}>")


def test_each_look_of_a_watch_is_one_line_of_json_until_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        show_or_watch(Looks([1], [2]), show, Format.JSON, 0.1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["answer"] for line in lines] == [[1], [2]]
    assert lines[0]["timestamp_ms"] < lines[1]["timestamp_ms"]


def test_a_watch_outlives_a_cluster_that_does_not_answer_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        show_or_watch(Looks("before", BrokerUnavailable("nobody there"), "after"), show, Format.TABLE, 0.1)
    told = capsys.readouterr()
    assert [line for line in told.out.splitlines() if line.startswith("<")] == ["<before>", "<after>"]
    assert told.err == "dejamq: nobody there\n"
    assert watch.CLEAR not in told.out  # no terminal: nothing is wiped away


def test_what_is_wrong_with_the_question_ends_a_watch() -> None:
    with pytest.raises(ConfigError):
        show_or_watch(Looks(ConfigError("no such broker")), show, Format.TABLE, 0.1)


@pytest.mark.parametrize("every_s", [0, -1, math.nan, math.inf])
def test_nobody_looks_all_the_time_nor_never(every_s: float) -> None:
    with pytest.raises(ConfigError, match=r"every 0\.1 s"):
        show_or_watch(Looks("x"), show, Format.TABLE, every_s)


# --- changes


def test_a_script_has_to_say_that_data_is_to_be_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    dry_run.confirm("everything goes", yes=True)
    with pytest.raises(ConfigError, match="everything goes; add --yes"):
        dry_run.confirm("everything goes", yes=False)


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr(typer, "confirm", confirm)
    if answer:
        dry_run.confirm("everything goes", yes=False)
    else:
        with pytest.raises(typer.Exit) as ended:
            dry_run.confirm("everything goes", yes=False)
        assert ended.value.exit_code == 1
    assert asked == ["everything goes. Go on?"]


# --- half a cluster


class HalfAdmin(Admin):
    """Of two brokers one does not answer; asks nobody."""

    async def leave_out_silent(self) -> dict[str, Any]:
        return {"broker-b": SendTimeout("no answer from h:2: time-out after 3000 ms")}


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dejamq_cli.access.admin_session.Admin", HalfAdmin)


async def answer(admin: Admin) -> str:
    return "half"


def test_half_a_cluster_answers_and_the_status_is_that_it_cannot_tell(
    half: None, capsys: pytest.CaptureFixture[str]
) -> None:
    told, silent = ask_half(NOBODY, answer)
    assert told == "half"
    with pytest.raises(typer.Exit) as ended:
        finish(silent)
    assert ended.value.exit_code == 3
    assert capsys.readouterr().err == (
        "dejamq: broker-b does not answer (time-out after 3000 ms); what it has is missing here\n"
    )


def test_findings_count_more_than_what_is_missing_and_nothing_of_both_goes_on() -> None:
    with pytest.raises(typer.Exit) as ended:
        finish({"broker-b": SendTimeout("x")}, findings=True)
    assert ended.value.exit_code == 1
    finish({})


def test_half_a_cluster_is_not_changed(half: None) -> None:
    def change(admin: Admin) -> Awaitable[None]:
        return refuse_half(admin, "the group cannot be paused")

    with pytest.raises(BrokerUnavailable, match=r"broker-b \(time-out after 3000 ms\); nothing was changed"):
        ask(NOBODY, change)


# --- errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topic", "list", "--nonsense"), ["--nonsense", "see: dejamq topic list --help"]),
        (("topic", "lst"), ["'lst'", "'list'", "dejamq topic --help"]),
        (("nothing",), ["'nothing'", "dejamq --help"]),
        (("topic", "create"), ["argument", "dejamq topic create --help"]),
        (("topic", "list", "-o", "xml"), ["xml", "'json'"]),
        (("topic", "list", "--namesrv", "nowhere"), ["host:port"]),
    ],
)
def test_bad_use_is_one_line_that_names_the_help(arguments: tuple[str, ...], words: list[str]) -> None:
    ran = run_here(*arguments)
    assert (ran.status, ran.output) == (2, "")
    assert all(word in ran.one_line() for word in words), ran.errors


def test_a_group_of_commands_alone_shows_its_help_and_is_bad_use() -> None:
    ran = run_here("topic")
    assert ran.status == 2
    assert "create" in ran.output + ran.errors


def test_without_a_name_server_the_line_says_how_to_get_one() -> None:
    ran = run_here("topic", "list", "--namesrv", NOBODY)
    assert (ran.status, ran.output) == (3, "")
    assert f"no dejamq name server answers at {NOBODY} (Connection refused)" in ran.one_line()
    assert "dejamq cluster up" in ran.errors


def test_completion_says_nothing_when_nobody_answers() -> None:
    from dejamq_cli.access.completion import topic_names

    context = typer.Context.__new__(typer.Context)
    context.params = {"namesrv": NOBODY}
    assert topic_names(context, "o") == []


# --- bad use


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("send", "orders", "--file", "/nonexistent"), "/nonexistent: No such file or directory"),
        (("send", "orders", "--file", "/"), "/: Is a directory"),
        (("dlq", "export", "billing", "--file", "/nonexistent/x"), "/nonexistent/x: No such file or directory"),
        (("dlq", "export", "billing", "--file", "/"), "/: Is a directory"),
        (("cluster", "up", "--dir", "/proc/none"), "/proc/none: No such file or directory"),
        (("cluster", "up", "--journal-level", "loud"), "'loud' is not one of 'off', 'audit', 'forensic'"),
    ],
)
def test_a_file_or_choice_that_cannot_be_is_bad_use_before_anybody_is_asked(
    arguments: tuple[str, ...], words: str
) -> None:
    ran = run_here(*arguments, *(() if arguments[0] == "cluster" else ("--namesrv", NOBODY)))
    assert ran.status == 2
    assert words in ran.one_line()


def test_consume_says_where_it_begins() -> None:
    told = " ".join(run_here("consume", "--help").output.split())
    assert "at the beginning; with --follow or --group at the end, unless --from says otherwise" in told
