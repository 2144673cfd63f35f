"""What waits for one broker, and how it is cut into runs: pure decisions, no clock, no network.

While runs are under way to a broker, further sends to it gather here; nobody waits for a timer.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import groupby, islice
from math import inf
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from dejamq_proto.wire import Key, SendRun, Words

from dejamq.encoding import UNIQUE_NAME, Template
from dejamq.message import Message, MessageQueue, SendResult
from dejamq.run_records import encode_records
from dejamq.selectors import Selector
from dejamq.send_hooks import SendContext

MAX_RUN_RECORDS = 850
MAX_RUN_BYTES = 1 << 20
UNDIVIDED = 16  # so few are one run; of more, half goes and the other half fills the next run meanwhile

PLAIN, NO_WAIT, REWRITE, REPLY, TRANSACTION = 0, 1, 2, 3, 4  # kinds of records that a run cannot mix

_QUEUE_ID, _DEADLINE = attrgetter("queue.queue_id"), attrgetter("deadline")


class Call(msgspec.Struct, eq=False, gc=False):
    """One ``send`` of a program, from submission to its result or error.

    ``before``, the message's id and ``rest`` are the bytes of its record behind the body; ``size`` is that of all of
    it. ``deadline`` is monotonic time in seconds.
    """

    message: Message
    common: Template
    rest: bytes
    kind: int
    call_id: int
    deadline: float
    size: int
    future: asyncio.Future[SendResult] | None  # None: oneway
    mode: str = "sync"  # how the program made it, for the journal: sync, async, batch, request, oneway
    pinned: bool = False  # this queue or none
    select: Selector | None = None  # chooses the queue; without it they take turns
    before: bytes = b""
    queue: MessageQueue | None = None
    batch: int = 0  # calls with one number go and fail together
    tries: int = 0  # times it left
    retries: int = 0  # times a failure made it leave again
    indefinite: bool = False  # an earlier try may have stored it
    packed: bytes = b""  # the body as it travels, where that is not the message's
    kept: SendResult | None = None  # an earlier try stored it, less durably than asked

    @property
    def properties(self) -> bytes:
        """The properties field of the record."""
        return UNIQUE_NAME + self.message.message_id.encode() + self.rest

    @property
    def ended(self) -> bool:
        """Its result, failure or cancellation is there already."""
        return self.future is not None and self.future.done()


class Lane:
    """Calls waiting for one broker, and its runs under way.

    Owned by the event loop. What is in ``in_flight`` has left and is not known to be stored; what is in
    ``waiting`` has surely not left, which is why an expired call there fails definitely.
    """

    __slots__ = ("broker_name", "first_deadline", "in_flight", "waiting")

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.waiting: deque[Call] = deque()
        self.in_flight: list[Flight] = []
        self.first_deadline = inf  # no waiting call expires before

    def add(self, calls: Sequence[Call]) -> None:
        """Queue calls behind the others."""
        self.waiting.extend(calls)
        self.first_deadline = min(self.first_deadline, min(map(_DEADLINE, calls)))

    def put_back(self, calls: Sequence[Call]) -> None:
        """Return calls to the front, in their order."""
        self.waiting.extendleft(reversed(calls))
        self.first_deadline = min([self.first_deadline, *(call.deadline for call in calls)])

    def take_run(self) -> list[Call]:
        """The next calls that go together, those of one queue side by side and in order; empty when none waits.

        The broker stores them so, and a reader of the queue gets them as one copy instead of one a record.
        """
        calls = take_run(self.waiting)
        return _side_by_side(calls) if len(calls) > 1 else calls

    def take_expired(self, now: float) -> list[Call]:
        """Remove what waited too long."""
        if now < self.first_deadline:
            return []
        expired = [call for call in self.waiting if call.deadline <= now]
        self.waiting = deque(call for call in self.waiting if call.deadline > now)
        self.first_deadline = min((call.deadline for call in self.waiting), default=inf)
        return expired


class Flight(msgspec.Struct, eq=False):
    """One run under way.

    ``seq`` is the run's number in both journals, ``sizes`` are the records' lengths in bytes, one element a
    call. Times are monotonic seconds: ``first_deadline`` of its calls, and ``patience``, when all of them go
    elsewhere. ``contexts`` are what hooks were told, one a call; empty without hooks.
    """

    lane: Lane
    calls: list[Call]
    sizes: Words
    seq: int
    address: str
    first_deadline: float
    future: Any = None  # asyncio.Future[SendRunResult]
    departed: float = 0.0
    patience: float = inf
    contexts: list[SendContext] = []

    @property
    def due(self) -> float:
        """When somebody has to look at it although no answer came."""
        return min(self.first_deadline, self.patience)


def take_run(waiting: deque[Call]) -> list[Call]:
    """Cut the next run: calls of one kind in order, at most half of many, 850 records, about 1 MiB.

    >>> take_run(deque())
    []

    A run of a ``send_batch`` is never mixed with other calls and never divided, however large: all of it is
    stored or nothing, as RocketMQ's MessageBatch promises.
    """
    number = len(waiting)
    if not number:
        return []
    kind, batch, room = waiting[0].kind, waiting[0].batch, MAX_RUN_BYTES
    count = limit = number if batch or number <= UNDIVIDED else min(MAX_RUN_RECORDS, (number + 1) // 2)
    for index, call in enumerate(islice(waiting, limit)):
        room -= call.size
        if call.batch != batch or call.kind != kind or (room < 0 and index and not batch):
            count = index
            break
    return [waiting.popleft() for _ in range(count)]


def _side_by_side(calls: list[Call]) -> list[Call]:
    """The calls by queue id, in order within each. Nearly always the queues took turns, and slices do."""
    queue_ids = [call.queue.queue_id for call in calls if call.queue is not None]
    turn = queue_ids[: queue_ids.index(queue_ids[0], 1)] if queue_ids.count(queue_ids[0]) > 1 else queue_ids
    rounds = len(calls) // len(turn) + 1
    if len(set(turn)) == len(turn) and (turn * rounds)[: len(calls)] == queue_ids:
        return [call for queue_id in sorted(turn) for call in calls[turn.index(queue_id) :: len(turn)]]
    return sorted(calls, key=_QUEUE_ID)


def build_run(calls: Sequence[Call], *, group: str, default_queue_nums: int, born_ms: int = 0) -> SendRun:
    """The run these calls are on the wire, their records born at that time (ms); the caller adds who sends it.

    ``queue_index`` and ``tags_codes`` are left out where they would say nothing: one queue for all, no tag at
    all.
    """
    spans = [(queue, len(list(same))) for queue, same in groupby([call.queue for call in calls]) if queue is not None]
    numbers = {queue: number for number, queue in enumerate(dict.fromkeys(queue for queue, _ in spans))}
    queues: list[Key] = [(queue.topic, queue.queue_id) for queue in numbers]
    tags_codes, kind = [call.common.tags_code for call in calls], calls[0].kind
    sizes, pieces = encode_records(calls, [queue.queue_id for queue, count in spans for _ in range(count)], born_ms)
    run = SendRun(
        group=group, queues=queues, default_queue_nums=default_queue_nums, records=pieces, sizes=sizes,
        no_wait_store=kind == NO_WAIT, rewrite=kind in (REWRITE, TRANSACTION), reply=kind == REPLY,
    )  # fmt: skip
    if len(queues) > 1:
        run.queue_index = np.repeat(
            np.array([numbers[queue] for queue, _ in spans], "<u4"), [count for _, count in spans]
        )
    if any(tags_codes):
        run.tags_codes = np.array(tags_codes, "<i4")
    return run
