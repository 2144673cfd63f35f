"""What a message costs in the consumer's process without a network: decode, hold, handle, journal, by processor time.

A link that answers every pull in the next turn of the loop stands for the broker; it has frames as a broker sends them,
made before. The lowest of the rounds counts. A copy of each body, and nothing else, is measured in the same run.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from dejamq.handling.dispatcher import Dispatcher
from dejamq.handling.send_back import SendBack
from dejamq.handling.subscriptions import Subscriptions
from dejamq.lite.polling import Polling
from dejamq.lite.shelf import Shelf
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.counts import QueueCounts
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.fetcher import Fetcher, GivingUp, Submit
from dejamq.receiving.hooks import Filters
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.config import LitePullConfig, client_config
from dejamq.values.message import MessageQueue
from dejamq_proto.codes import Code
from dejamq_proto.journal.writer import Journal, Level, open_journal
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.records.record import Record, encode, encode_properties
from dejamq_proto.wire.messages import PullAnswer

QUEUE = MessageQueue("bench", "broker-a", 0)
WORKERS = 20


class Shelves:
    """A broker's link that has everything in frames of ``at_once`` messages, and holds what asks beyond the end."""

    def __init__(self, messages: int, at_once: int, body: bytes) -> None:
        self._at_once, self._count, self._frames = at_once, messages, list[bytes]()
        for first in range(0, messages, at_once):
            records = [stored(offset, body) for offset in range(first, min(first + at_once, messages))]
            answer = PullAnswer(
                seq=1, code=Code.SUCCESS, next_offset=first + len(records), max_offset=messages,
                sizes=np.array(list(map(len, records)), "<u4"), records=records,
            )  # fmt: skip
            self._frames.append(answer.encode())

    def pull(self, request: PullRequest) -> asyncio.Future[PullAnswer]:
        request.SerializeToString()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[PullAnswer] = loop.create_future()
        if request.queue_offset < self._count:
            loop.call_soon(self._answer, future, self._frames[request.queue_offset // self._at_once])
        return future

    def _answer(self, future: asyncio.Future[PullAnswer], frame: bytes) -> None:
        if not future.done():
            future.set_result(PullAnswer.decode(frame))


def stored(offset: int, body: bytes) -> bytes:
    """A record as a broker keeps it."""
    properties = encode_properties({"UNIQ_KEY": f"{offset:032X}", "WAIT": "true"})
    host = ("127.0.0.1", 10911)
    return encode(Record(
        QUEUE.topic, 0, body, properties, queue_offset=offset, log_offset=offset * 1200, store_host=host,
    ))  # fmt: skip


class Consumer:
    """The parts of a consumer that a message goes through, at its first message of one queue."""

    def __init__(self, link: Any, journal: Journal) -> None:
        numbers = iter(range(1, 1 << 60))
        config = client_config(LitePullConfig, "127.0.0.1:1", {})
        self.context = ConsumerContext("g", "me", config, journal, lambda: next(numbers), lambda name: link)
        self.count = self.size = 0

    async def pushed(self, messages: int, *, batch_size: int = 0, wait: bool = False) -> None:
        """All messages to a handler that reads each body; with ``wait`` it gives way to others in between."""
        everything = asyncio.Event()

        async def one(message: ReceivedMessage) -> None:
            self.count += 1
            self.size += len(message.body)
            if wait:
                await asyncio.sleep(0)
            if self.count == messages:
                everything.set()

        async def many(received: list[ReceivedMessage]) -> None:
            self.count += len(received)
            for message in received:
                self.size += len(message.body)
            if self.count == messages:
                everything.set()

        subscriptions, deliveries = Subscriptions("g", lambda: 0), Deliveries(self.context)
        subscriptions.add(QUEUE.topic, many if batch_size else one, tags="*", batch_size=batch_size)
        nowhere: Any = None
        send_back = SendBack(self.context, deliveries, None, nowhere)
        dispatcher = Dispatcher(self.context, subscriptions, deliveries, send_back, max_concurrency=WORKERS)
        offsets = RemoteOffsetStore(self.context, deliveries)
        fetcher = self._fetcher(deliveries, offsets, dispatcher.submit)
        owned = OwnedQueue(1, QUEUE, ProcessQueue(0), 0)
        tasks = [asyncio.create_task(dispatcher.work()) for _ in range(WORKERS)]
        tasks.append(asyncio.create_task(fetcher.run(owned)))
        await everything.wait()
        await asyncio.sleep(0)
        await self._end(tasks, deliveries)
        dispatcher.close()

    def _fetcher(self, deliveries: Deliveries, offsets: RemoteOffsetStore, submit: Submit) -> Fetcher:
        return Fetcher(
            self.context, deliveries, offsets, submit, moves=GivingUp(lambda: None), cached_bytes=lambda: 0,
            queue_count=lambda: 1, counts=lambda queue: QueueCounts(), filters=Filters(),
        )  # fmt: skip

    async def polled(self, messages: int) -> None:
        """All messages by polls of 500; of each the body and the id are read."""
        deliveries = Deliveries(self.context, kind="poll")
        shelf = Shelf(deliveries, 10_000, lambda: len(owned.process_queue), set())
        fetcher = self._fetcher(deliveries, RemoteOffsetStore(self.context, deliveries), shelf.put)
        owned = OwnedQueue(1, QUEUE, shelf.queue(QUEUE, 0), 0)
        running: Any = SimpleNamespace(
            config=self.context.config, shelf=shelf, closing=False, rebalancer=SimpleNamespace(assignment=[owned])
        )
        polling = Polling(running, True)
        task = asyncio.create_task(fetcher.run(owned))
        while self.count < messages:
            found = await polling.messages(500, None)
            self.count += len(found)
            for message in found:
                self.size += len(message.body) + len(message.message_id)
        await self._end([task], deliveries)

    async def _end(self, tasks: list[asyncio.Task[None]], deliveries: Deliveries) -> None:
        deliveries.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def core_us(work: Callable[[], Awaitable[None]], messages: int) -> float:
    began = time.process_time()
    await work()
    return (time.process_time() - began) / messages * 1e6


async def bare_copies(messages: int, body: bytes) -> None:
    view, kept = memoryview(body + b"."), b""
    for _ in range(messages):
        kept = view[:-1].tobytes()
    assert kept == body


async def measure(given: argparse.Namespace, folder: Path) -> None:
    body, messages = bytes(given.body_bytes), given.messages
    link = Shelves(messages, given.at_once, body)

    def consumer(level: Level) -> Consumer:
        return Consumer(link, open_journal(folder, role="consumer", process="p", boot_id="0" * 16, level=level))

    works: dict[str, Callable[[], Awaitable[None]]] = {
        "a bare copy of the body": lambda: bare_copies(messages, body),
        "each one": lambda: consumer(Level.AUDIT).pushed(messages),
        "batches of 64": lambda: consumer(Level.AUDIT).pushed(messages, batch_size=64),
        "polls of 500": lambda: consumer(Level.AUDIT).polled(messages),
        "handlers that wait": lambda: consumer(Level.AUDIT).pushed(messages, wait=True),
        "each one, forensic": lambda: consumer(Level.FORENSIC).pushed(messages),
        "each one, no journal": lambda: consumer(Level.OFF).pushed(messages),
    }
    found: dict[str, list[float]] = {name: [] for name in works if given.only in name}
    for _ in range(given.rounds):
        for name in found:
            found[name].append(await core_us(works[name], messages))
    for name, values in found.items():
        print(f"{name:24} {min(values):6.2f} us a message, by core time ({max(values):.2f} at most)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1 << 15)
    parser.add_argument("--at-once", type=int, default=900, help="messages that a pull brings")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="the works whose name contains this")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(given, Path(folder)))


if __name__ == "__main__":
    main()
