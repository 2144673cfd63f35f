"""``dejamq offset``: where a group goes on in each queue, and moving that."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from dejamq import Admin, MessageQueue
from dejamq.admin.offsets import OffsetMove, QueueProgress
from dejamq_proto.codes import ConfigError
from dejamq_proto.names import check_group, check_topic
from dejamq_proto.texts import MOST_32, number_of

from dejamq_cli.access.admin_session import ask, ask_half, finish, refuse_half
from dejamq_cli.access.completion import Group, Topic, group_names, topic_names
from dejamq_cli.groups.lists import check_there
from dejamq_cli.terminal.dry_run import DryRun, say_dry_run
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.numbers import fits_64
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, Format, Namesrv, Output, show_rows
from dejamq_cli.terminal.times import time_ms

app = typer.Typer(help="Offsets: where a group goes on in each queue, and moving that.", no_args_is_help=True)
OneTopic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.", autocompletion=topic_names)
]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="The group that is moved.", autocompletion=group_names)]


@app.command(epilog=examples("dejamq offset get billing --topic orders"))
def get(
    group: Group, topic: OneTopic = None, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE
) -> None:
    """What the group has committed: the next offset to consume, beside what the queue holds.

    Queues of which it has committed nothing are not there. Exit status 1 when there is none at all.
    """
    check_group(group)

    async def look(admin: Admin) -> list[QueueProgress]:
        found = await admin.progress(group, topic)
        if topic is not None and not found:
            await check_there(admin, topic)
        return found

    progress, silent = ask_half(namesrv, look)
    rows = [
        {
            "topic": one.queue.topic, "broker": one.queue.broker_name, "queue_id": one.queue.queue_id,
            "committed": one.committed, "min_offset": one.min_offset, "max_offset": one.max_offset, "lag": one.lag,
        }
        for one in progress
    ]  # fmt: skip
    show_rows(rows, output, empty=f"{group} has committed nothing")
    finish(silent, findings=not rows and not silent)


@app.command(
    epilog=examples(
        "dejamq offset reset billing orders --to-time '10m ago' --dry-run",
        "dejamq offset reset billing orders --to-offset 0 --queue broker-a:0",
    )
)
def reset(
    group: Group,
    topic: Topic,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="To what was stored at this time or later.")
    ] = None,
    to_offset: Annotated[
        int | None,
        typer.Option(min=0, callback=fits_64, metavar="OFFSET", help="To this offset, kept within the queue."),
    ] = None,
    to_begin: Annotated[bool, typer.Option("--to-begin", help="To the oldest message.")] = False,
    to_end: Annotated[bool, typer.Option("--to-end", help="Past the newest message.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --to-time: also forwards, over messages that were not consumed.")
    ] = False,
    queue: Annotated[list[str] | None, typer.Option(metavar="BROKER:ID", help="Only this queue; repeatable.")] = None,
    dry_run: DryRun = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Let the group go on elsewhere in every queue of the topic, whether it has members now or not.

    A move back delivers again: the audit counts these deliveries as expected (a rewind), not as duplicates. TIME is
    2026-01-31T12:00 (local without a zone), '10m ago', now, or milliseconds since 1970.
    """
    chosen = [to_time is not None, to_offset is not None, to_begin, to_end]
    if sum(chosen) != 1:
        raise ConfigError("give one of --to-time, --to-offset, --to-begin, --to-end")
    where: dict[str, Any] = {
        "to_time_ms": None if to_time is None else time_ms(to_time, time.time_ns() // 1_000_000, option="--to-time"),
        "to_offset": to_offset, "to_begin": to_begin, "to_end": to_end, "force": force,
        "queues": _queues(topic, queue or []),
    }  # fmt: skip

    async def move(admin: Admin) -> Sequence[OffsetMove]:
        await refuse_half(admin, f"{group} cannot be moved")
        return await (admin.plan_reset if dry_run else admin.reset_offsets)(group, topic, **where)

    check_group(group)
    check_topic(topic)
    _show_moves(ask(namesrv, move), output, dry_run)


@app.command(epilog=examples("dejamq offset clone billing billing-again orders --dry-run"))
def clone(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The group to look at.", autocompletion=group_names)],
    target: Target,
    topic: Topic,
    dry_run: DryRun = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Let TARGET go on where SOURCE is now in every queue of the topic."""

    async def move(admin: Admin) -> Sequence[OffsetMove]:
        await refuse_half(admin, f"{target} cannot be moved")
        return await (admin.plan_clone if dry_run else admin.clone_offsets)(source, target, topic)

    for name in (source, target):
        check_group(name)
    _show_moves(ask(namesrv, move), output, dry_run)


@app.command(epilog=examples("dejamq offset skip billing orders --dry-run"))
def skip(
    group: Group,
    topic: Topic,
    dry_run: DryRun = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Pass over everything that waits: the group goes on with what is stored from now on.

    What is passed over stays stored, and comes with: dejamq offset reset GROUP TOPIC --to-time TIME.
    """

    async def move(admin: Admin) -> Sequence[OffsetMove]:
        await refuse_half(admin, f"{group} cannot be moved")
        if dry_run:
            return await admin.plan_reset(group, topic, to_end=True)
        return await admin.skip_offsets(group, topic)

    check_group(group)
    _show_moves(ask(namesrv, move), output, dry_run)


def _show_moves(moves: Sequence[OffsetMove], output: Format, dry_run: bool) -> None:
    rows = [
        {
            "topic": one.queue.topic, "broker": one.queue.broker_name, "queue_id": one.queue.queue_id,
            "before": one.before, "after": one.after,
            "again": _again(one.before, one.after), "passed_over": _again(one.after, one.before), "reason": one.reason,
        }
        for one in moves
    ]  # fmt: skip
    show_rows(rows, output, empty="no queue is moved")
    if dry_run:
        say_dry_run()


def _again(high: int | None, low: int | None) -> int | None:
    """How many offsets lie between, if the first is above the second."""
    return None if high is None or low is None else max(0, high - low)


def _queues(topic: str, texts: list[str]) -> list[MessageQueue] | None:
    """None for all of them. Raises ConfigError."""
    found = []
    for text in texts:
        broker, _, queue_id = text.rpartition(":")
        number = number_of(queue_id, MOST_32)
        if not broker or number is None:
            raise ConfigError(f"--queue takes BROKER:ID, e.g. broker-a:0, not {text!r}")
        found.append(MessageQueue(topic, broker, number))
    return found or None
