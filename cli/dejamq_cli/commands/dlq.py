"""``dejamq dlq``: what a group has given up: looked at, taken along, sent again."""

import csv
import io
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from dejamq import Admin, ReceivedMessage
from dejamq.admin.dead_letters import LetterFacts, Replay, export_row
from dejamq_proto.codes import ConfigError
from dejamq_proto.names import check_group

from dejamq_cli.access.admin_session import ask, ask_half, finish, refuse_half
from dejamq_cli.access.completion import Group, topic_names
from dejamq_cli.terminal.dry_run import DryRun, say_dry_run
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.message_text import one_line, place_text
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, NO, Format, Namesrv, Output, say, show_rows, tell_bytes
from dejamq_cli.terminal.progress import Progress
from dejamq_cli.terminal.times import time_ms

FORMULA = ("=", "+", "-", "@", "\t", "\r")
PLAIN_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")
app = typer.Typer(
    help="Dead letters: what a group gave up after its last try; list, export, replay.", no_args_is_help=True
)
OneTopic = Annotated[
    str | None,
    typer.Option("--topic", metavar="T", help="Only those first sent to this topic.", autocompletion=topic_names),
]
Since = Annotated[str | None, typer.Option("--from", metavar="TIME", help="Only those that died since: '2h ago'.")]
Until = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only those that died until, included.")]


class FileFormat(StrEnum):
    JSON = "json"
    CSV = "csv"


@app.command("list", epilog=examples("dejamq dlq list billing --from '1h ago'"))
def list_(
    group: Group,
    topic: OneTopic = None,
    begin: Since = None,
    end: Until = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """List the group's dead letters: when they died, after how many tries, and why.

    The reason is known where a dejamq consumer gave the message up; RocketMQ's clients do not tell.
    """
    wanted = WantedLetters(group, topic, begin, end)
    letters, silent = ask_half(namesrv, lambda admin: _collect(wanted.letters(admin)))
    rows = [_row(letter, output) for letter in letters]
    show_rows(rows, output, empty=f"{group} has no dead letters", brief=("died_timestamp_ms", "message_id", "reason"))
    finish(silent)


@app.command(epilog=examples("dejamq dlq export billing --format csv --file billing-dead.csv"))
def export(
    group: Group,
    topic: OneTopic = None,
    begin: Since = None,
    end: Until = None,
    format_: Annotated[FileFormat, typer.Option("--format", help="One JSON object a line, or CSV.")] = FileFormat.JSON,
    file: Annotated[Path | None, typer.Option(metavar="F", help="Write here instead of standard output.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
) -> None:
    """Write the group's dead letters to a file or a pipe.

    With all their properties and whole bodies; nothing is taken away. `body` is text where the body is UTF-8;
    `body_base64` always has all of it.
    """
    wanted = WantedLetters(group, topic, begin, end)
    with ExitStack() as opened:
        stream = opened.enter_context(file.open("wb")) if file is not None else None
        write = stream.write if stream is not None else tell_bytes
        count, silent = ask_half(namesrv, lambda admin: _export(wanted.letters(admin), format_, write))
    if file is not None:
        say(f"wrote {count} dead letters to {file}")
    finish(silent)


@app.command(
    epilog=examples(
        "dejamq dlq replay billing --all --dry-run", "dejamq dlq replay billing C000020215B5DAD8F9706B78B9360002"
    )
)
def replay(
    group: Group,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]…", help="Ids of dead letters, client-made or broker-made.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of them, or all that the other options choose.")] = False,
    topic: OneTopic = None,
    begin: Since = None,
    end: Until = None,
    to_topic: Annotated[
        bool, typer.Option("--to-topic", help="To the first topic: all groups that read it get them.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Also those that were replayed before.")] = False,
    dry_run: DryRun = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Send dead letters again, by default to this group alone.

    Each is stored as a new message with the same id and body, all tries before it; the dead letter stays, and is
    not replayed a second time unless --again. Exit status 1 when one of the IDs is none of the group's dead
    letters.
    """
    if bool(ids) == all_:
        raise ConfigError("give the IDs of dead letters, or --all")
    if ids and (topic or begin or end):
        raise ConfigError("--topic, --from and --to choose from --all; with IDs there is nothing to choose")
    wanted = WantedLetters(group, topic, begin, end)
    chosen = {one.strip().upper() for one in ids or ()}

    async def question(admin: Admin) -> tuple[list[Replay], set[str]]:
        await refuse_half(admin, "dead letters cannot be replayed")
        return await _replay(admin, wanted, chosen, {"to_topic": to_topic, "again": again, "dry_run": dry_run})

    done, unknown = ask(namesrv, question)
    nothing = "nothing to replay" if ids else f"{group} has no dead letters to replay"
    show_rows(
        [_replay_row(one, again) for one in done], output, empty=nothing,
        brief=("message_id", "result", "to_topic"),
    )  # fmt: skip
    if dry_run:
        say_dry_run()
    for one in sorted(unknown):
        say(f"{one} is no dead letter of {group}")
    if unknown:
        raise typer.Exit(NO)


class WantedLetters:
    """The dead letters of a group that are meant. Raises InvalidName, and ConfigError for a text that is no time."""

    def __init__(self, group: str, topic: str | None, begin: str | None, end: str | None) -> None:
        check_group(group)
        now_ms = time.time_ns() // 1_000_000
        self.group, self._topic = group, topic
        self._begin_ms = time_ms(begin, now_ms, option="--from") if begin else 0
        self._end_ms = time_ms(end, now_ms, option="--to") if end else 0

    def letters(self, admin: Admin) -> AsyncIterator[ReceivedMessage]:
        """Queue by queue, the oldest first."""
        return admin.dead_letters(self.group, topic=self._topic, begin_ms=self._begin_ms, end_ms=self._end_ms)


async def _collect(letters: AsyncIterator[ReceivedMessage]) -> list[ReceivedMessage]:
    """By the time of their death."""
    found = [letter.detach() async for letter in letters]
    return sorted(found, key=lambda letter: letter.store_timestamp_ms)


async def _export(
    letters: AsyncIterator[ReceivedMessage], format_: FileFormat, write: Callable[[bytes], object]
) -> int:
    """One after the other, so that memory is bounded; how many."""
    progress = Progress("dead letters written")
    async for letter in letters:
        row = export_row(letter)
        if format_ is FileFormat.JSON:
            write(msgspec.json.encode(row) + b"\n")
        else:
            if not progress.count:
                write(csv_line(list(row)))
            write(csv_line([csv_cell(value) for value in row.values()]))
        progress.add(1)
    progress.end()
    return progress.count


def csv_line(cells: list[str]) -> bytes:
    line = io.StringIO()
    # a carriage return alone would end the row for a reader, and only some writers quote it
    quoting: Literal[0, 1] = csv.QUOTE_ALL if any("\r" in cell for cell in cells) else csv.QUOTE_MINIMAL
    csv.writer(line, lineterminator="\n", quoting=quoting).writerow(cells)
    return line.getvalue().encode()


def csv_cell(value: Any) -> str:
    """A text that a spreadsheet would take for a formula has an apostrophe before it; JSON has it as it is."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) and not PLAIN_NUMBER.fullmatch(value) else value
    return msgspec.json.encode(value).decode()


async def _replay(
    admin: Admin, wanted: WantedLetters, chosen: set[str], how: dict[str, bool]
) -> tuple[list[Replay], set[str]]:
    """The end of each replay, and the ids that belong to no dead letter."""
    done, unknown = list[Replay](), set(chosen)
    progress = Progress("dead letters replayed")
    async for letter in wanted.letters(admin):
        names = {letter.message_id.upper(), letter.offset_message_id}
        if chosen and not names & chosen:
            continue
        unknown -= names
        done.append(await admin.replay_dead_letter(wanted.group, letter, **how))
        progress.add(1)
    progress.end()
    return done, unknown


def _row(letter: ReceivedMessage, output: Format) -> dict[str, Any]:
    facts = LetterFacts.of(letter)
    row = {
        "died_timestamp_ms": facts.died_ms,
        "message_id": facts.message_id,
        "topic": facts.topic,
        "tries": facts.tries,
        "reason": facts.reason or None,
        "keys": letter.keys,
        "tags": letter.tags,
        "place": place_text(letter),
        "offset_message_id": facts.offset_message_id,
    }
    if output is Format.TABLE:
        return row | {"body": one_line(letter.body)}
    return row | {"first_offset_message_id": facts.first_offset_message_id, "replay_of": facts.replay_of or None}


def _replay_row(one: Replay, again: bool) -> dict[str, Any]:
    earlier = one.replayed_ms and not again
    what = "replayed" if one.stored else "replayed before" if earlier else "would be replayed"
    return {
        "message_id": one.letter.message_id,
        "result": what,
        "replayed_timestamp_ms": one.replayed_ms or None,
        "to_topic": one.topic,
        "broker": one.queue.broker_name if one.queue else None,
        "queue_id": one.queue.queue_id if one.queue else None,
        "queue_offset": one.queue_offset if one.stored else None,
        "offset_message_id": one.offset_message_id or None,
        "dead_letter": one.letter.offset_message_id,
    }
