"""``dejamq consume``: look at a topic's messages, or take them for a group."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Any

import typer
from dejamq import Admin, ConsumeFrom, MessageQueue, PushConsumer, ReceivedMessage
from dejamq.net.broker import BrokerLink
from dejamq_proto.codes import BrokerUnavailable, Code, ConfigError, DejamqError
from dejamq_proto.names import check_group, check_topic
from dejamq_proto.texts import number_of

from dejamq_cli.access.admin_session import Silent, ask, finish, say_silent
from dejamq_cli.access.completion import Topic, group_names
from dejamq_cli.access.group_reader import Taking
from dejamq_cli.access.topic_reader import Start, TopicReading
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.message_text import described, one_line, place_text
from dejamq_cli.terminal.output import (
    DEFAULT_NAMESRV,
    INTERRUPTED,
    Format,
    Namesrv,
    Output,
    show_object,
    tell,
    tell_bytes,
)
from dejamq_cli.terminal.stopping import stop_signals, until
from dejamq_cli.terminal.times import FORMS, LEAST_EPOCH_MS, time_ms

Show = Callable[[ReceivedMessage], None]
EXAMPLES = examples(
    "dejamq consume orders --from '10m ago'",
    "dejamq consume orders --follow -o json",
    "dejamq consume orders --group billing --from begin --count 1",
)


def consume(
    topic: Topic,
    group: Annotated[
        str | None, typer.Option(metavar="G", help="Take them for this group and commit.", autocompletion=group_names)
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="begin|end|TIME|OFFSET", help=f"TIME is {FORMS}.")
    ] = None,
    count: Annotated[int, typer.Option(min=0, metavar="N", help="Stop after so many; 0: no limit.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for further messages until Ctrl-C.")] = False,
    raw: Annotated[bool, typer.Option("--body", help="Write only the bodies, a line end after each.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Show messages, by store time over all queues.

    It begins at the beginning; with --follow or --group at the end, unless --from says otherwise.

    Without --group it only reads: nothing is committed, nobody is disturbed. With --group it is a member of that group
    for as long as it runs: a message is acknowledged once it is written, and --from is for a group without offsets.

    It ends at what is the end of the queues now, with --group when none came for 3 s, with --follow at Ctrl-C.
    """
    check_topic(topic)
    if raw and output is Format.JSON:
        raise ConfigError("--body writes bytes, -o json objects: give one of them")
    show = shower(output, raw)
    begin = start or ("end" if follow or group else "begin")
    silent: Silent = {}
    if group is None:
        interrupted, silent = asyncio.run(_read(namesrv, topic, start_of(begin), follow, show, count))
    else:
        settings = group_start(begin)
        check_group(group)
        if not follow:
            ask(namesrv, lambda admin: _check_topic_exists(admin, topic))
        taking = Taking(PushConsumer(group, namesrv=namesrv, max_concurrency=1, **settings), topic, show, count)
        interrupted = asyncio.run(taking.run(follow=follow))
    if interrupted:
        say_silent(silent)
        raise typer.Exit(INTERRUPTED)
    finish(silent)


def shower(output: Format, raw: bool) -> Show:
    """How one message is written. It raises OutputClosed."""
    if raw:
        return lambda message: tell_bytes(message.body + b"\n")
    if output is Format.JSON:
        return lambda message: show_object(described(message))
    return lambda message: tell(line_of(message))


def line_of(message: ReceivedMessage) -> str:
    """Place, id, tag and keys, body: in one line whatever the body has."""
    labels = " ".join(filter(None, (message.tags, *message.keys)))
    return f"{place_text(message)}  {message.message_id}  [{labels}]  {one_line(message.body)}"


async def _read(namesrv: str, topic: str, start: Start, follow: bool, show: Show, count: int) -> tuple[bool, Silent]:
    """Whether a signal ended it, and the brokers that did not answer."""
    with stop_signals() as asked:
        async with TopicReading(namesrv, topic, start) as reading:
            await until(_show_all(reading, follow, show, count), asked.stopped)
            return asked.stopped.is_set(), reading.silent


async def _show_all(reading: TopicReading, follow: bool, show: Show, count: int) -> None:
    shown = 0
    async with aclosing(reading.messages(follow=follow)) as messages:
        async for message in messages:
            show(message)
            shown += 1
            if shown == count:
                return


async def _check_topic_exists(admin: Admin, topic: str) -> None:
    """A consumer would wait for it. Raises RouteNotFound when every name server that answers knows none."""
    answers = (await admin.routes(topic)).values()
    errors = [one for one in answers if isinstance(one, DejamqError)]
    if len(errors) == len(answers):
        silent = [one for one in errors if isinstance(one, ConnectionError | TimeoutError)]
        if len(silent) == len(errors):
            raise BrokerUnavailable(str(silent[0]), code=Code.NO_NAME_SERVER)
        raise next(one for one in errors if one not in silent)


def start_of(text: str) -> Start:
    """Where to begin in each queue. Raises ConfigError."""

    async def begin(link: BrokerLink, queue: MessageQueue) -> int:
        return await link.min_offset(queue.topic, queue.queue_id)

    async def end(link: BrokerLink, queue: MessageQueue) -> int:
        return await link.max_offset(queue.topic, queue.queue_id)

    async def offset(link: BrokerLink, queue: MessageQueue) -> int:
        return max(int(text), await begin(link, queue))

    if text in ("begin", "end"):
        return begin if text == "begin" else end
    if _is_offset(text):
        return offset
    since_ms = _time_ms(text)

    async def since(link: BrokerLink, queue: MessageQueue) -> int:
        return await link.search_offset(queue.topic, queue.queue_id, since_ms)

    return since


def group_start(text: str) -> dict[str, Any]:
    """Where a group begins that has never committed; one that has goes on from there. Raises ConfigError."""
    if text in ("begin", "end"):
        return {"consume_from": ConsumeFrom.FIRST_OFFSET if text == "begin" else ConsumeFrom.LAST_OFFSET}
    if _is_offset(text):
        raise ConfigError("--from OFFSET is for reading without --group; a group begins at begin, end or a TIME")
    return {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp_ms": _time_ms(text)}


def _is_offset(text: str) -> bool:
    """Small numbers are places in queues, large ones times."""
    return number_of(text, LEAST_EPOCH_MS - 1) is not None


def _time_ms(text: str) -> int:
    return time_ms(text, time.time_ns() // 1_000_000, option="--from (begin, end, an offset, or a time)")
