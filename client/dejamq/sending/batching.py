"""The backlog of one broker, and how it is cut into runs: pure decisions, no clock, no network.

While runs are in flight to a broker, further sends to it gather here; no send waits for a timer.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate, chain
from math import inf
from typing import Any

import msgspec
import numpy as np
from dejamq_proto.wire.messages import Key, SendRun, SendRunResult, Words

from dejamq.native import Permutation
from dejamq.net.stream import AnswerCallback
from dejamq.sending.call_ids import following
from dejamq.sending.hooks import SendContext
from dejamq.sending.queue_choice import WINDOW_RECORDS
from dejamq.sending.run_records import encode_records
from dejamq.sending.sends import (
    DEDUP,
    NO_WAIT,
    REPLY,
    REWRITE,
    TRANSACTION,
    Sends,
    by_deadline,
    columns_of,
    deal,
    different,
    each_one_object,
    numbered,
)

MAX_RUN_RECORDS = 850
MAX_RUN_BYTES = 1 << 20
UNDIVIDED = 128
"""Up to this many waiting sends leave as one run. Of more, half leave now and the rest wait to fill the next run.

A run costs producer and broker some hundred µs each, whatever its size: to divide 64 records costs more than their
senders gain by it.
"""
FEW_OF_A_QUEUE = 32
"""A full run with fewer records of a queue than this, on average, has its window regrouped (``WINDOW_RECORDS``)."""


class BrokerBacklog:
    """Sends waiting for one broker, and its runs in flight.

    Owned by the event loop. Sends in ``in_flight`` have left and are not known to be stored. Sends in ``waiting``
    are surely not on their way, so an expired one there fails definitely.
    """

    __slots__ = ("broker_name", "first_deadline", "in_flight", "rests_until", "waiting")

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.waiting: deque[Sends] = deque()
        self.in_flight: list[Flight] = []
        self.first_deadline = inf  # nothing that waits expires before
        self.rests_until = 0.0  # its broker failed; nothing leaves before this time (s, monotonic)

    def add(self, sends: Sends) -> None:
        """Queue sends behind the others."""
        self.waiting.append(sends)
        self.first_deadline = min(self.first_deadline, sends.first_deadline)

    def put_back(self, sends: Sends) -> None:
        """Return sends to the front."""
        if sends:
            self.waiting.appendleft(sends)
            self.first_deadline = min(self.first_deadline, sends.first_deadline)

    def of_one_patience(self, sends: Sends, patient: Sequence[bool]) -> Sends:
        """The first ones that all may, or all may not, go elsewhere when the answer takes too long; others wait."""
        end = next((number for number, one in enumerate(patient) if one is not patient[0]), len(sends))
        first = sends.cut(end)
        self.put_back(sends)
        return first

    def take_run(self) -> Sends:
        """What goes together next, that of one queue side by side and in order.

        The broker stores them so, and a reader of the queue gets them as one copy instead of one a record.
        """
        sends = take_run(self.waiting)
        try:
            return sends if sends.together else sends.by_queue()
        except BaseException:
            self.put_back(sends)
            raise

    def take_expired(self, now: float) -> list[Sends]:
        """Remove what waited too long."""
        if now < self.first_deadline:
            return []
        expired, left = by_deadline(self.waiting, now)
        self.waiting = deque(left)
        self.first_deadline = min((sends.first_deadline for sends in left), default=inf)
        return expired


class Lanes(dict[str, BrokerBacklog]):
    """Those of all brokers, by broker name; one is made when somebody looks for it."""

    def __missing__(self, broker_name: str) -> BrokerBacklog:
        lane = self[broker_name] = BrokerBacklog(broker_name)
        return lane

    def add(self, sends: Sends) -> None:
        """Queue sends that have their queues behind what waits for their brokers."""
        for name, of_broker in sends.by_broker() if sends else ():
            self[name].add(of_broker)


class Flight(msgspec.Struct, eq=False):
    """One run under way.

    ``seq`` is the run's number in both journals, ``sizes`` are the records' lengths in bytes, one element a
    send. Times are monotonic seconds: ``first_deadline`` of its sends, and ``patience``, when all of them go
    elsewhere. ``contexts`` are what hooks were told, one a send; empty without hooks.
    """

    lane: BrokerBacklog
    sends: Sends
    sizes: Words
    seq: int
    address: str
    first_deadline: float
    answer: AnswerCallback[SendRunResult] | None = None
    departed: float = 0.0
    patience: float = inf
    contexts: list[SendContext] = []

    @property
    def due(self) -> float:
        """When somebody has to look at it although no answer came."""
        return min(self.first_deadline, self.patience)


def take_run(waiting: deque[Sends]) -> Sends:
    """Cut the next run, of which some wait: of one kind, in order, at most half of many, 850 records, about 1 MiB.

    A run of a ``send_batch`` is never mixed with other sends and never divided, however large: all of it is
    stored or nothing, as RocketMQ's MessageBatch promises.
    """
    limit, first = _most(_many(waiting)), waiting.popleft()
    try:
        return first if first.whole else _cut(waiting, first, limit)
    except BaseException:
        if first:  # or its futures would never be resolved
            waiting.appendleft(first)
        raise


def _cut(waiting: deque[Sends], first: Sends, limit: int) -> Sends:
    """At most so many, those that wait first."""
    if not first.together:
        for more in next_ones(waiting, first, limit - len(first)):
            first.extend(more)
        many_queues = limit == MAX_RUN_RECORDS and len(different(first.queues[:limit])) * FEW_OF_A_QUEUE > limit
        if many_queues and not first.tries:
            flood = [first, *next_ones(waiting, first, WINDOW_RECORDS - len(first))]
            try:
                runs = runs_of(flood)
            except BaseException:
                waiting.extendleft(part for part in reversed(flood[1:]) if part)
                raise
            waiting.extendleft(reversed(runs))
            first = waiting.popleft()
    count = fitting(first.sizes[:limit])
    if count == len(first):
        return first
    waiting.appendleft(first)
    return first.cut(count)


def next_ones(waiting: deque[Sends], like: Sends, room: int) -> Iterator[Sends]:
    """Take out what waits first and may be in one run with ``like``, so many sends at most.

    Of the last ones only what there is room for: to take all and cut them off again would move each send twice.
    """
    while room > 0 and waiting and waiting[0].joins(like):
        sends = waiting.popleft()
        if len(sends) > room:
            waiting.appendleft(sends)
            sends = sends.cut(room)
        room -= len(sends)
        yield sends


def runs_of(parts: list[Sends]) -> list[Sends]:
    """Those of each queue side by side, as ``Sends.by_queue`` puts them, in as large runs as can be. The parts are left
    empty.

    They stay columns that are moved as a whole: a look at each message costs more than all of this, as most of them
    are in no cache any more.
    """
    names, queues = columns_of(parts), list(chain.from_iterable(sends.queues for sends in parts))
    queues = each_one_object(queues) if "extras" in names else queues
    first, order = parts[0], Permutation(queues)
    call_ids = reduce(following, [sends.call_ids for sends in parts])
    ends = _ends(*order.deal([list(chain.from_iterable(sends.sizes for sends in parts))], [len(call_ids)]))
    try:
        dealt = deal(parts, names, order, queues, ends)
    except BaseException:
        first.call_ids = call_ids
        raise
    runs = []
    for begin, end, *columns in zip((0, *ends[:-1]), ends, *dealt, strict=True):
        named: dict[str, Any] = dict(zip(names, columns, strict=True))
        runs.append(msgspec.structs.replace(first, call_ids=call_ids[begin:end], together=True, **named))
    return runs


def fitting(sizes: list[int]) -> int:
    """How many of the first ones a run has bytes for, at least one."""
    if sum(sizes) <= MAX_RUN_BYTES:
        return len(sizes)
    return max(1, bisect_right(list(accumulate(sizes)), MAX_RUN_BYTES))


def _ends(sizes: list[int]) -> list[int]:
    """Where runs of them end."""
    ends = [0]
    while ends[-1] < len(sizes):
        ends.append(ends[-1] + fitting(sizes[ends[-1] : ends[-1] + MAX_RUN_RECORDS]))
    return ends[1:]


def _many(waiting: Iterable[Sends]) -> int:
    """How many wait, or so many that one more makes no difference."""
    number = 0
    for sends in waiting:
        number += len(sends)
        if number >= 2 * MAX_RUN_RECORDS:
            break
    return number


def _most(number: int) -> int:
    """How many of so many may go."""
    return number if number <= UNDIVIDED else min(MAX_RUN_RECORDS, (number + 1) // 2)


def build_run(sends: Sends, *, group: str, default_queue_nums: int, born_ms: int = 0) -> SendRun:
    """The run these are on the wire, their records born at that time (ms); the caller adds who sends it.

    ``queue_index`` and ``tags_codes`` are left out where they would say nothing: one queue for all, no tag at
    all.
    """
    stretches = sends.stretches
    numbers = numbered(queue for queue, _ in stretches)
    queues: list[Key] = [(queue.topic, queue.queue_id) for queue in numbers]
    kind, (sizes, pieces) = sends.kind & ~DEDUP, encode_records(sends, stretches, born_ms)
    run = SendRun(
        group=group, queues=queues, default_queue_nums=default_queue_nums, records=pieces, sizes=sizes,
        no_wait_store=kind == NO_WAIT, rewrite=kind in (REWRITE, TRANSACTION), reply=kind == REPLY,
        dedup=sends.kind != kind,
    )  # fmt: skip
    if len(queues) > 1:
        index = np.array([numbers[queue] for queue, _ in stretches], "<u4")
        run.queue_index = index.repeat([count for _, count in stretches])
    commons = sends.common_stretches
    if any(common.tags_code for common, _ in commons):
        tags_codes = np.array([common.tags_code for common, _ in commons], "<i4")
        run.tags_codes = tags_codes.repeat([count for _, count in commons])
    return run
