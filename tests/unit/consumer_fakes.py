"""A broker that exists only in memory, for tests of the consumer's parts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from dejamq.handling.dispatcher import Dispatcher
from dejamq.handling.overdue import GiveBack
from dejamq.handling.retry_send import RetrySend
from dejamq.handling.send_back import SendBack
from dejamq.handling.subscriptions import Subscriptions
from dejamq.net.broker import Claimed
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.counts import QueueCounts
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.fetcher import Fetcher, GivingUp, Submit
from dejamq.receiving.hooks import ConsumeHooks, Filters
from dejamq.receiving.offset_store import OffsetStore
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.receiving.received import ReceivedMessage, receive
from dejamq.values.config import ConsumerConfig, client_config
from dejamq.values.message import MessageQueue
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.writer import open_journal
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.records import record
from dejamq_proto.records.record import Record, encode_properties
from dejamq_proto.send_pb2 import SendBackRequest
from dejamq_proto.wire.messages import Key, PullAnswer, SendRun, SendRunResult

QUEUE = MessageQueue("orders", "broker-a", 0)
QUICK = {
    "pull_time_delay_when_exception_ms": 5, "flow_control_interval_ms": 5, "consume_retry_delay_ms": 5,
    "rebalance_wait_interval_ms": 50, "rebalance_min_interval_ms": 5,
}  # fmt: skip


def stored(offset: int, *, topic: str = "orders", body: bytes = b"", **properties: str) -> bytes:
    """A record as a broker keeps it."""
    texts = encode_properties({"UNIQ_KEY": f"{offset:032X}", **properties})
    body = body or b"body-%d" % offset
    return record.encode(
        Record(
            topic=topic, queue_id=0, body=body, raw_properties=texts, queue_offset=offset, log_offset=offset * 100,
            store_host=("127.0.0.1", 10911), reconsume_times=int(properties.get("TIMES", 0)),
        )
    )  # fmt: skip


def answer(records: Iterable[bytes], next_offset: int) -> PullAnswer:
    pieces = list(records)
    return PullAnswer(
        sizes=np.array([len(piece) for piece in pieces], "<u4"), records=tuple(pieces), next_offset=next_offset
    )


class Seen(PullAnswer, weakref=True):
    """An answer of which one can tell, by a weak reference, whether it is still there."""

    @classmethod
    def of(cls, given: PullAnswer) -> "Seen":
        return cls(**msgspec.structs.asdict(given))


class FakeLink:
    """Answers pulls from ``records``; keeps everything it was told. ``refuse`` makes calls fail by name."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.answers: list[PullAnswer] = []
        self.refuse: dict[str, DejamqError] = {}
        self.pulls: list[PullRequest] = []
        self.committed: dict[tuple[str, int], int] = {}
        self.sent_back: list[SendBackRequest] = []
        self.sent: list[SendRun] = []
        self.lock_calls: list[list[Key]] = []
        self.locked_by_others: set[Key] = set()
        self.unlocked: list[Key] = []
        self.claim_calls: list[dict[Key, int]] = []
        self.claimed_by_others: set[Key] = set()
        self.off = ""
        self.released: list[tuple[Key, int, int]] = []
        self.members = ["me"]
        self.asked_for_members = 0
        self.max = 0

    async def pull(self, request: PullRequest) -> PullAnswer:
        self.pulls.append(request)
        await asyncio.sleep(0)
        self._check("pull")
        if self.answers:
            return self.answers.pop(0)
        found = self.records[request.queue_offset : request.queue_offset + request.max_messages]
        if found:
            return answer(found, request.queue_offset + len(found))
        await asyncio.sleep(0.01)
        return PullAnswer(code=Code.PULL_NOT_FOUND, next_offset=request.queue_offset)

    async def query_offset(self, group: str, topic: str, queue_id: int, *, seq: int = 0) -> int | None:
        self._check("query_offset")
        return self.committed.get((topic, queue_id))

    async def update_offset(
        self, group: str, topic: str, queue_id: int, queue_offset: int, *, oneway: bool = False, seq: int = 0
    ) -> None:
        self._check("update_offset")
        self.committed[topic, queue_id] = queue_offset

    def update_offset_oneway(self, group: str, topic: str, queue_id: int, queue_offset: int, *, seq: int = 0) -> None:
        self.committed[topic, queue_id] = queue_offset

    async def send_run(self, run: SendRun) -> SendRunResult:
        self._check("send_run")
        self.sent.append(run)
        return SendRunResult(seq=run.seq)

    async def lock_batch(self, group: str, keys: Sequence[Key], *, timeout_ms: float, seq: int = 0) -> set[Key]:
        self.lock_calls.append(list(keys))
        self._check("lock_batch")
        return set(keys) - self.locked_by_others

    def unlock_batch_oneway(
        self, group: str, keys: Sequence[Key], *, timeout_ms: float, seq: int = 0
    ) -> asyncio.Future[None]:
        self.unlocked += keys
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def claim(self, group: str, claims: Sequence[tuple[Key, int]]) -> Claimed:
        self.claim_calls.append(dict(claims))
        await asyncio.sleep(0)
        self._check("claim")
        others = self.claimed_by_others
        return Claimed({key: number or len(self.claim_calls) for key, number in claims if key not in others}, self.off)

    async def release(self, group: str, returned: Sequence[tuple[Key, int, int]], *, seq: int = 0) -> set[Key]:
        await asyncio.sleep(0)
        self._check("release")
        self.released += returned
        return {key for key, _, _ in returned}

    def release_oneway(self, group: str, returned: Sequence[tuple[Key, int, int]]) -> None:
        self.released += returned

    async def consumer_list(self, group: str, *, seq: int = 0) -> list[str]:
        self._check("consumer_list")
        self.asked_for_members += 1
        return self.members

    async def max_offset(self, topic: str, queue_id: int) -> int:
        return self.max

    async def min_offset(self, topic: str, queue_id: int) -> int:
        return 0

    async def search_offset(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        return timestamp_ms

    async def send_back(self, request: SendBackRequest) -> None:
        self._check("send_back")
        self.sent_back.append(request)

    def _check(self, method: str) -> None:
        if method in self.refuse:
            raise self.refuse[method]


def context(link: FakeLink, directory: Path | None = None, level: str = "forensic", **settings: Any) -> ConsumerContext:
    config = client_config(ConsumerConfig, "127.0.0.1:1", {**QUICK, **settings})
    journal = open_journal(directory, role="consumer", process="me", boot_id="b00", level=level)
    numbers = iter(range(1, 1 << 30))
    return ConsumerContext("g", "me", config, journal, lambda: next(numbers), lambda name: link)


def owned_queue(start: int = 0, queue: MessageQueue = QUEUE) -> OwnedQueue:
    return OwnedQueue(1, queue, ProcessQueue(start), start)


def received(owned: OwnedQueue, *offsets: int, **properties: Any) -> list[ReceivedMessage]:
    """Messages that a pull just put into the process queue."""
    topic = owned.queue.topic
    raw = [stored(offset, topic=topic, **properties) for offset in offsets]
    messages = receive(answer(raw, offsets[-1] + 1), owned.queue, "b00")[1]
    owned.process_queue.put(offsets, [len(message.body) for message in messages])
    return messages


def a_fetcher(
    made: ConsumerContext, deliveries: Deliveries, offsets: OffsetStore, submit: Submit, **wires: Any
) -> Fetcher:
    """Of a consumer that holds nothing in one queue and has no filter, unless ``wires`` say otherwise."""
    given: dict[str, Any] = {
        "moves": GivingUp(lambda: None), "cached_bytes": lambda: 0, "queue_count": lambda: 1,
        "counts": lambda queue: QueueCounts(), "filters": Filters(),
    }  # fmt: skip
    return Fetcher(made, deliveries, offsets, submit, **(given | wires))


async def _retry_queues() -> Sequence[MessageQueue]:
    return [MessageQueue("%RETRY%g", "broker-a", 0)]


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def several() -> BaseException:
    return BaseExceptionGroup("several", [SystemExit(), KeyboardInterrupt()])


RAISED: list[Callable[[], BaseException]] = [
    asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, StopAsyncIteration, several,
    Speechless,
]  # fmt: skip
"""What a handler or another function of a program may raise."""


@asynccontextmanager
async def dispatching(
    handler: Callable[..., Any], *, link: FakeLink | None = None, directory: Path | None = None, batch_size: int = 0,
    level: str = "forensic", workers: int = 4, tries: int | None = None,
    send_back: Callable[[ConsumerContext, Deliveries], GiveBack] | None = None, hooks: ConsumeHooks | None = None,
    **settings: Any,
) -> AsyncIterator[Dispatcher]:  # fmt: skip
    made = context(link or FakeLink(), directory, level, **settings)
    subscriptions = Subscriptions("g", lambda: 0, hooks=hooks)
    subscriptions.add("orders", handler, tags="*", batch_size=batch_size)
    deliveries = Deliveries(made)
    retries = RetrySend(made, deliveries, _retry_queues)
    give_back = send_back(made, deliveries) if send_back else SendBack(made, deliveries, tries, retries)
    dispatcher = Dispatcher(made, subscriptions, deliveries, give_back, max_concurrency=workers)
    tasks = [asyncio.create_task(dispatcher.work()) for _ in range(workers)]
    try:
        yield dispatcher
    finally:
        await dispatcher.drain(1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        dispatcher.close()
        deliveries.close()
        made.journal.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)
