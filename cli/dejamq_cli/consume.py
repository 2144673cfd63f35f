"""``dejamq consume``: look at a topic's messages, or take them for a group."""

import asyncio
import base64
import datetime
from typing import Annotated, Any

import typer
from dejamq import ConsumeFrom, MessageQueue, PushConsumer, ReceivedMessage
from dejamq.rpc_broker import BrokerLink
from dejamq_proto.codes import ConfigError
from dejamq_proto.names import check_topic

from dejamq_cli.output import DEFAULT_NAMESRV, Format, Namesrv, Output, show_object
from dejamq_cli.reading import Start, read_topic

IDLE_S = 3.0
CLOSE_TIMEOUT_MS = 1_000


def consume(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    group: Annotated[str | None, typer.Option(help="Take the messages for this group and commit them.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="begin, end, a TIME (ISO 8601) or an OFFSET.")] = None,
    count: Annotated[int, typer.Option(min=0, help="Stop after so many messages; 0: no limit.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for further messages until Ctrl-C.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Show messages. Without --group it only reads: nothing is committed, nobody is disturbed.

    Without --follow it ends at what is the end of the queues now; with --group when none came for 3 s.
    """
    check_topic(topic)
    printer = Printer(output, count)
    if group is None:
        asyncio.run(_read(namesrv, topic, start_of(start or ("end" if follow else "begin")), follow, printer))
    else:
        consumer = PushConsumer(group, namesrv=namesrv, max_concurrency=1, **group_start(start or "end"))
        asyncio.run(_consume(consumer, topic, follow, printer))


class Printer:
    """Shows at most ``count`` messages; ``full`` is set with the last one, ``moved`` with each."""

    def __init__(self, output: Format, count: int) -> None:
        self._output, self._left = output, count or -1
        self.full, self.moved = asyncio.Event(), asyncio.Event()

    def show(self, message: ReceivedMessage) -> None:
        if self._output is Format.JSON:
            show_object(described(message))
        else:
            print(_line(message), flush=True)
        self.moved.set()
        self._left -= 1
        if not self._left:
            self.full.set()


async def _read(namesrv: str, topic: str, start: Start, follow: bool, printer: Printer) -> None:
    async for message in read_topic(namesrv, topic, start, follow=follow):
        printer.show(message)
        if printer.full.is_set():
            return


async def _consume(consumer: PushConsumer, topic: str, follow: bool, printer: Printer) -> None:
    async def handle(message: ReceivedMessage) -> None:
        if printer.full.is_set():
            await asyncio.Future()  # one too many: cancelled by the close, neither acknowledged nor counted as a try
        printer.show(message)

    consumer.subscribe(topic, handle)
    await consumer.start()
    try:
        await consumer.wait_assigned()
        await _until_enough(printer, follow)
    finally:
        await consumer.close(CLOSE_TIMEOUT_MS)


async def _until_enough(printer: Printer, follow: bool) -> None:
    """Return when the count is reached, or, unless it follows, when nothing came for a while."""
    while not printer.full.is_set():
        printer.moved.clear()
        try:
            async with asyncio.timeout(None if follow else IDLE_S):
                await printer.moved.wait()
        except TimeoutError:
            return


def start_of(text: str) -> Start:
    """Where to begin in each queue. Raises ConfigError."""

    async def begin(link: BrokerLink, queue: MessageQueue) -> int:
        return await link.min_offset(queue.topic, queue.queue_id)

    async def end(link: BrokerLink, queue: MessageQueue) -> int:
        return await link.max_offset(queue.topic, queue.queue_id)

    async def offset(link: BrokerLink, queue: MessageQueue) -> int:
        return int(text)

    async def since(link: BrokerLink, queue: MessageQueue) -> int:
        return await link.search_offset(queue.topic, queue.queue_id, _time_ms(text))

    if text in ("begin", "end"):
        return begin if text == "begin" else end
    if text.isdigit():
        return offset
    _time_ms(text)
    return since


def group_start(text: str) -> dict[str, Any]:
    """Where a group begins that has never committed; one that has goes on from there. Raises ConfigError."""
    if text in ("begin", "end"):
        return {"consume_from": ConsumeFrom.FIRST_OFFSET if text == "begin" else ConsumeFrom.LAST_OFFSET}
    if text.isdigit():
        raise ConfigError("--from OFFSET is for reading without --group; a group begins at begin, end or a TIME")
    return {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp_ms": _time_ms(text)}


def described(message: ReceivedMessage) -> dict[str, Any]:
    """A message for programs; a body that is not text comes as ``body_base64``."""
    row: dict[str, Any] = {
        "topic": message.topic,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": message.keys,
        "broker": message.queue.broker_name,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "reconsume_times": message.reconsume_times,
        "properties": dict(message.properties),
    }
    try:
        row["body"] = message.body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(message.body).decode()
    return row


def _line(message: ReceivedMessage) -> str:
    place = f"{message.queue.broker_name}:{message.queue.queue_id}@{message.queue_offset}"
    labels = " ".join(filter(None, (message.tags, *message.keys)))
    return f"{place}  {message.message_id}  [{labels}]  {message.body.decode(errors='backslashreplace')}"


def _time_ms(text: str) -> int:
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ConfigError(f"--from is begin, end, a time such as 2026-01-31T12:00 or an offset, not {text!r}") from None
