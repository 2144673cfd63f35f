"""``dejamq send``: messages from the command line, a file or a pipe."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer
from dejamq import Message, Producer, SendResult
from dejamq.clients.signals import StopSignals
from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.names import check_sendable

from dejamq_cli.access import sources
from dejamq_cli.access.completion import Topic
from dejamq_cli.access.stream_sender import StreamFeeder, StreamTally
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.numbers import fits_32
from dejamq_cli.terminal.output import (
    DEFAULT_NAMESRV,
    INTERRUPTED,
    Format,
    Namesrv,
    Output,
    say,
    show_object,
    show_rows,
    tell,
)
from dejamq_cli.terminal.progress import Progress
from dejamq_cli.terminal.stopping import stop_signals, until
from dejamq_cli.terminal.times import time_ms

GROUP = "DEJAMQ_CLI_PRODUCER"
MOST_ROWS = 20
BRIEF = ("message_id", "status", "broker", "queue_id", "queue_offset")

EXAMPLES = examples(
    "dejamq send orders 'order 17' --tags paid --key order-17",
    "tail -f access.log | dejamq send access - --lines",
    "dejamq send orders 'order 17' --dedup-id order-17",
    "dejamq send orders --file order.bin --count 1000 --rate 50",
)


def send(
    topic: Topic,
    body: Annotated[str | None, typer.Argument(metavar="[BODY]", help="The body; - reads it from a pipe.")] = None,
    file: Annotated[Path | None, typer.Option(metavar="F", help="Take the body from this file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Every line is a message, sent as soon as it comes.")] = False,
    tags: Annotated[str | None, typer.Option(metavar="TAG", help="The tag, which consumers can filter by.")] = None,
    key: Annotated[list[str] | None, typer.Option(metavar="KEY", help="A business key; repeatable.")] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Store it once: not if the broker knows a message of the topic with this id."),
    ] = None,
    delay_level: Annotated[
        int,
        typer.Option(
            min=0,
            callback=fits_32,
            metavar="L",
            help="Deliver later: RocketMQ's levels, 1 (1 s) to 18 (2 h), or the brokers' own (message_delay_level).",
        ),
    ] = 0,
    delay_ms: Annotated[
        int | None, typer.Option(min=0, metavar="MS", help="Deliver so many milliseconds after it is stored.")
    ] = None,
    deliver_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Deliver at this time: 2026-01-31T12:00, or ms since 1970.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Send each one so many times.")] = 1,
    rate: Annotated[
        float, typer.Option(min=0, metavar="R", help="At most so many a second; 0: as fast as it goes.")
    ] = 0,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Send messages and show where each one is stored.

    With -o json there is one object a line, as soon as a message is stored. It ends at the first message that fails,
    and says which one and what became of those under way. Exit status 0: all are stored.
    """
    check_sendable(topic)
    if (body is None) == (file is None):
        raise ConfigError("give a BODY (or - for standard input), or --file")
    if lines and file is None and body != "-":
        raise ConfigError("--lines goes with - (standard input) or --file")
    if file is not None:
        sources.check(file)
    if dedup_id is not None and (lines or count > 1):
        raise ConfigError("--dedup-id goes with one message: of several with one id the first alone is stored")
    if sum((bool(delay_level), delay_ms is not None, deliver_at is not None)) > 1:
        raise ConfigError("give one of --delay-level, --delay-ms and --deliver-at")
    now_ms = time.time_ns() // 1_000_000
    deliver_at_ms = None if deliver_at is None else time_ms(deliver_at, now_ms, option="--deliver-at")
    like = Message(
        topic, b"-", tags=tags, keys=tuple(key or ()),
        delay_level=delay_level, delay_ms=delay_ms, deliver_at_ms=deliver_at_ms, dedup_id=dedup_id,
    )  # fmt: skip
    source = file if file is not None else body or ""
    producer, bodies = Producer(GROUP, namesrv=namesrv), Bodies(source, lines, count)
    status = asyncio.run(_send(producer, bodies, like, SentSummary(topic, output), rate))
    raise typer.Exit(status)


class Bodies:
    """The bodies to send: a text, standard input (``-``), or a file; whole or in lines."""

    def __init__(self, source: str | Path, lines: bool, count: int) -> None:
        self._source, self._lines, self._count = source, lines, count
        self.left_out = 0
        """Empty lines: a message needs at least one byte."""

    async def messages(self, like: Message, limit: int) -> AsyncIterator[Message]:
        """Messages like this one with these bodies, each with an id of its own. Raises OSError, MessageTooLarge."""
        async for body in self._bodies(limit):
            if not body and not self._lines:
                raise ConfigError("the body is empty; a message needs at least one byte")
            if not body:
                self.left_out += 1
                continue
            for _ in range(self._count):
                yield like.replace(body=body)

    async def _bodies(self, limit: int) -> AsyncIterator[bytes]:
        if isinstance(self._source, str) and self._source != "-":
            yield os.fsencode(self._source)  # as it was typed, be it text or not
            return
        with sources.opened(self._source if isinstance(self._source, Path) else None) as stream:
            if not self._lines:
                yield await sources.whole(stream, limit)
                return
            async for line in sources.lines(stream, limit):
                yield line


class SentSummary:
    """Results on standard output: a few as a table, many as a number; in JSON each one."""

    def __init__(self, topic: str, output: Format) -> None:
        self._topic, self._output = topic, output
        self._rows: list[dict[str, Any]] = []
        self._progress = Progress(f"sent to {topic}")

    def results(self, results: list[SendResult]) -> None:
        """These are stored. Raises OutputClosed."""
        self._progress.add(len(results))
        if self._output is Format.JSON:
            for result in results:
                show_object(_row(result))
        elif len(self._rows) <= MOST_ROWS:
            self._rows += map(_row, results[: MOST_ROWS + 1])

    def end(self) -> None:
        """After the last one."""
        self._progress.end()
        if self._output is Format.TABLE and self._progress.count > MOST_ROWS:
            tell(f"sent {self._progress.count} messages to {self._topic}")
        elif self._rows:
            show_rows(self._rows, self._output, empty="", brief=BRIEF)


async def _send(producer: Producer, bodies: Bodies, like: Message, told: SentSummary, rate: float) -> int:
    """The exit status. Raises what went wrong first, after everything under way has ended."""
    with stop_signals() as asked:
        async with producer:
            sending = StreamFeeder(producer, told.results, rate)
            problem = await _stream(sending, bodies.messages(like, producer.config.max_message_size), asked)
    told.end()
    if bodies.left_out:
        lines = "1 empty line was" if bodies.left_out == 1 else f"{bodies.left_out} empty lines were"
        say(f"{lines} left out: a message needs at least one byte")
    _say_end(sending.tally, interrupted=asked.stopped.is_set())
    if problem is not None:
        raise problem
    return INTERRUPTED if asked.stopped.is_set() else 0


async def _stream(sending: StreamFeeder, messages: AsyncIterator[Message], asked: StopSignals) -> Exception | None:
    """Feed until the end, a failure or a signal; then wait for sends under way. Returns the first failure, or None."""
    answering = asyncio.ensure_future(sending.answers())
    problem: Exception | None = None
    try:
        await until(sending.feed(messages), asked.stopped, sending.ended)
    except (DejamqError, OSError) as error:
        problem = error
    sending.finish()
    await until(_ended(answering), asked.hurried)
    return sending.tally.error or problem


async def _ended(task: "asyncio.Task[None]") -> None:
    await task


def _say_end(tally: StreamTally, *, interrupted: bool) -> None:
    """How far it came, where it did not come to the end."""
    if tally.submitted < 2 or (tally.error is None and not interrupted and not tally.unheard):
        return
    parts = [f"{tally.stored} stored"]
    if tally.not_stored:
        parts.append(f"{tally.not_stored} not stored")
    if tally.unknown:
        parts.append(f"{tally.unknown} unknown: they may be stored or not")
    if tally.error is not None:
        why = f"message {tally.failed} failed"
    else:
        why = "stopped" if interrupted else "nobody reads the output any more"
    say(f"{why}; of {tally.submitted} messages {', '.join(parts)}")


def _row(result: SendResult) -> dict[str, Any]:
    row = {
        "message_id": result.message_id,
        "status": result.status.name,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        "offset_message_id": result.offset_message_id,
    }
    return row | {"duplicate": True} if result.duplicate else row
