"""``dejamq message``: single messages, by id, key or place, and the life of one."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from dejamq import Admin, MessageQueue, ReceivedMessage
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import check_topic

from dejamq_cli.access.admin_session import Silent, ask_half, finish
from dejamq_cli.access.completion import Topic, broker_names
from dejamq_cli.access.lookup import consumed_by, copies_of
from dejamq_cli.history.files import journal_files
from dejamq_cli.history.search import find
from dejamq_cli.history.show import lines_of
from dejamq_cli.history.telling import tell as story_of
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.message_text import body_text, described, described_whole, one_line, place_text, text_of
from dejamq_cli.terminal.numbers import fits_32, fits_64
from dejamq_cli.terminal.output import (
    DEFAULT_NAMESRV,
    Format,
    Namesrv,
    Output,
    show_object,
    show_rows,
    tell,
    tell_bytes,
    terminal_columns,
)
from dejamq_cli.terminal.tables import table
from dejamq_cli.terminal.times import FORMS, time_ms

app = typer.Typer(help="Single messages: by id, by key, by place; and the whole life of one.", no_args_is_help=True)
Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="The client-made id (UNIQ_KEY), or the broker-made one of a stored copy."),
]
Raw = Annotated[bool, typer.Option("--body", help="Write only the body, as it is, to standard output.")]
BRIEF = ("stored_timestamp_ms", "message_id", "keys")
Found = tuple[list[ReceivedMessage], list[dict[str, Any]]]
"""The copies of a message, and what each group has committed in their queues."""


@app.command(
    epilog=examples("dejamq message get C000020215B5DAD8F9706B78B9340001", "dejamq message get ID --body > body.bin")
)
def get(
    message_id: Id,
    topic: Annotated[list[str] | None, typer.Option(help="Look only in this topic; repeatable.")] = None,
    raw: Raw = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Show a message, every stored copy of it, and which groups have consumed them.

    Retries, dead letters and what was sent twice are copies: one client-made id, different broker-made ids.
    """
    text = message_id.strip().upper()

    async def question(admin: Admin) -> Found:
        copies = await copies_of(admin, text, topic)
        return copies, await consumed_by(admin, copies)

    _answer(ask_half(namesrv, question), raw, output, f"no broker has a message {message_id}")


@app.command(epilog=examples("dejamq message at orders broker-a 3 1024"))
def at(
    topic: Topic,
    broker: Annotated[str, typer.Argument(metavar="BROKER", autocompletion=broker_names, help="Its broker's name.")],
    queue_id: Annotated[int, typer.Argument(metavar="QUEUE", min=0, callback=fits_32, help="Number of the queue.")],
    queue_offset: Annotated[
        int, typer.Argument(metavar="OFFSET", min=0, callback=fits_64, help="Its place in the queue.")
    ],
    raw: Raw = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Show the message at one place of one queue, and which groups have consumed it."""
    check_topic(topic)
    queue = MessageQueue(topic, broker, queue_id)

    async def question(admin: Admin) -> Found:
        found = [one async for one in admin.read(queue, queue_offset, queue_offset + 1)]
        return found, await consumed_by(admin, found)

    nothing = f"{broker} has no message at offset {queue_offset} of {topic} queue {queue_id}"
    _answer(ask_half(namesrv, question), raw, output, nothing)


@app.command("by-key", epilog=examples("dejamq message by-key orders order-17 --from '2h ago'"))
def by_key(
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="One of the business keys that it was sent with.")],
    begin: Annotated[str | None, typer.Option("--from", metavar="TIME", help=f"Stored since: {FORMS}.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Stored until, included.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """List the messages with a business key, by store time.

    Of each broker the newest 64. Exit status 1 when there is none.
    """
    check_topic(topic)
    now_ms = time.time_ns() // 1_000_000
    begin_ms = time_ms(begin, now_ms, option="--from") if begin else 0
    end_ms = time_ms(end, now_ms, option="--to") if end else 0
    found, silent = ask_half(namesrv, lambda admin: admin.messages_by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms))
    rows = [described(one) if output is Format.JSON else _row(one) for one in found]
    show_rows(rows, output, empty=f"no message of {topic} has the key {key}", brief=BRIEF)
    finish(silent)
    if not found:
        raise typer.Exit(1)


@app.command(epilog=examples("dejamq message history C000020215B5DAD8F9706B78B9340001 --journal .dejamq/journal"))
def history(
    message_id: Id,
    journal: Annotated[
        list[Path],
        typer.Option(
            "--journal",
            metavar="DIR",
            envvar="DEJAMQ_JOURNAL_DIR",
            help="A journal_dir of the processes that had to do with it; repeatable.",
        ),
    ],
    output: Output = Format.TABLE,
) -> None:
    """Tell the life of one message from the journals, in time order.

    No cluster is needed, nor Spark. Who sent it, each stored copy, who got it and with what result, retries, dead
    letters, commits past it. What the journals do not say is said at the end. `dejamq audit` names the cause of a
    duplicate.
    """  # fmt: skip
    story = story_of(find(journal_files(journal), message_id))
    if output is Format.JSON:
        show_object(story)
    else:
        for line in lines_of(story):
            tell(line)


def _answer(answer: tuple[Found, Silent], raw: bool, output: Format, nothing: str) -> None:
    """Show what was found. Raises DejamqError for nothing, where everybody was asked."""
    (copies, groups), silent = answer
    if copies and raw:
        tell_bytes(copies[0].body)
    elif copies and output is Format.JSON:
        row = described_whole(copies[0]) | {"copies": [_copy(one) for one in copies], "groups": groups}
        show_object(row)
    elif copies:
        _show(copies, groups)
    finish(silent)
    if not copies:
        raise DejamqError(nothing, code=Code.QUERY_NOT_FOUND)


def _show(copies: list[ReceivedMessage], groups: list[dict[str, Any]]) -> None:
    tell(text_of(copies[0]))
    tell(f"\n{body_text(copies[0].body)}")
    if len(copies) > 1:
        tell(f"\n{len(copies)} copies, by store time:")
        tell(table([_copy(one) for one in copies], terminal_columns()))
    tell("")
    if groups:
        tell(table(groups, terminal_columns()))
    else:
        tell("no group has committed an offset of its queue")


def _row(message: ReceivedMessage) -> dict[str, Any]:
    """One of a list, for people."""
    return {
        "place": place_text(message),
        "stored_timestamp_ms": message.store_timestamp_ms,
        "message_id": message.message_id,
        "failed_tries": message.reconsume_times,
        "tags": message.tags,
        "keys": message.keys,
        "body": one_line(message.body),
    }


def _copy(message: ReceivedMessage) -> dict[str, Any]:
    """Where one copy lies."""
    return {
        "broker": message.queue.broker_name,
        "topic": message.queue.topic,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "store_timestamp_ms": message.store_timestamp_ms,
        "reconsume_times": message.reconsume_times,
        "offset_message_id": message.offset_message_id,
    }
