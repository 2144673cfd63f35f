"""``dejamq send``: messages from the command line, a file or a pipe."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from dejamq import BacklogFull, Message, Producer, SendResult
from dejamq_proto.codes import ConfigError
from dejamq_proto.names import check_sendable

from dejamq_cli.output import DEFAULT_NAMESRV, Format, Namesrv, Output, show_rows

GROUP = "DEJAMQ_CLI_PRODUCER"
MOST_ROWS = 20


def send(
    topic: Annotated[str, typer.Argument(help="Where to; made by the first send where brokers may create topics.")],
    body: Annotated[str | None, typer.Argument(help="The body; - reads it from standard input.")] = None,
    file: Annotated[Path | None, typer.Option(help="Take the body from this file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Every line is a message of its own.")] = False,
    tags: Annotated[str | None, typer.Option(help="The tag.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A business key; repeatable.")] = None,
    delay_level: Annotated[int, typer.Option(min=0, max=18, help="RocketMQ's 1 to 18 (1s … 2h).")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Send it so many times.")] = 1,
    rate: Annotated[float, typer.Option(min=0, help="At most so many a second; 0: as fast as it goes.")] = 0,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Send messages and show where each one is stored. Exit status 0 when all of them are."""
    check_sendable(topic)
    if (body is None) == (file is None):
        raise ConfigError("give a BODY (or - for standard input), or --file")
    bodies = _bodies(body, file, lines)
    messages = [
        Message(topic, text, tags=tags, keys=tuple(key or ()), delay_level=delay_level)
        for _ in range(count)
        for text in bodies
    ]
    results = asyncio.run(_send(namesrv, messages, rate))
    if output is Format.TABLE and len(results) > MOST_ROWS:
        print(f"sent {len(results)} messages to {topic}")
    else:
        show_rows([_row(result) for result in results], output, empty="nothing to send")


def _bodies(body: str | None, file: Path | None, lines: bool) -> list[bytes]:
    if file is not None:
        content = file.read_bytes()
    else:
        content = sys.stdin.buffer.read() if body == "-" else (body or "").encode()
    return content.splitlines() if lines else [content]


async def _send(namesrv: str, messages: list[Message], rate: float) -> list[SendResult]:
    """All of them, or the first error; what was sent before it stays sent."""
    async with Producer(GROUP, namesrv=namesrv) as producer:
        futures = [await _submit(producer, message, pause) for message, pause in _paced(messages, rate)]
        return list(await asyncio.gather(*futures))


async def _submit(producer: Producer, message: Message, pause_s: float) -> "asyncio.Future[SendResult]":
    await asyncio.sleep(pause_s)
    while True:
        try:
            return producer.submit(message)
        except BacklogFull:
            await producer.drain()


def _paced(messages: list[Message], rate: float) -> Iterator[tuple[Message, float]]:
    for number, message in enumerate(messages):
        yield message, 1 / rate if rate and number else 0


def _row(result: SendResult) -> dict[str, Any]:
    return {
        "message_id": result.message_id,
        "status": result.status.name,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        "offset_message_id": result.offset_message_id,
    }
