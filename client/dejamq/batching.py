"""What waits for one broker, and how it is cut into runs: pure decisions, no clock, no network.

While runs are under way to a broker, further sends to it gather here; nobody waits for a timer.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf
from operator import attrgetter

import msgspec
import numpy as np
from dejamq_proto.wire import Key, SendRun, SendRunResult, Words

from dejamq.call import NO_WAIT, REPLY, REWRITE, TRANSACTION, Call
from dejamq.rpc_stream import Told
from dejamq.run_records import encode_records
from dejamq.send_hooks import SendContext
from dejamq.sends import Sends, different, numbered
from dejamq.window import MAX_RUN_BYTES, MAX_RUN_RECORDS, WINDOW_RECORDS, fitting, next_ones, runs_of

UNDIVIDED = 128
"""So few are one run; of more, half goes and the other half fills the next run meanwhile.

A run costs producer and broker some hundred µs each, whatever its size: to divide 64 records costs more than their
senders gain by it.
"""
FEW_OF_A_QUEUE = 32

_DEADLINE = attrgetter("deadline")


class Lane:
    """Sends waiting for one broker, and its runs under way.

    Owned by the event loop. What is in ``in_flight`` has left and is not known to be stored; what is in
    ``waiting`` or ``plain`` has surely not left, which is why an expired call there fails definitely. All of
    ``waiting`` go before all of ``plain``: where a call comes behind plain sends, those become calls.
    """

    __slots__ = ("broker_name", "first_deadline", "in_flight", "plain", "waiting")

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.waiting: deque[Call] = deque()
        self.plain: deque[Sends] = deque()
        self.in_flight: list[Flight] = []
        self.first_deadline = inf  # nothing that waits expires before

    @property
    def busy(self) -> bool:
        """Something waits."""
        return bool(self.plain or self.waiting)

    def add(self, calls: Sequence[Call]) -> None:
        """Queue calls behind the others."""
        self._unfold()
        self.waiting.extend(calls)
        self.first_deadline = min(self.first_deadline, min(map(_DEADLINE, calls)))

    def add_plain(self, sends: Sends) -> None:
        """Queue sends, which are not made of calls, behind the others.

        A few of them become calls behind calls, so that programs that make both have no small runs.
        """
        if self.waiting and not self.plain and len(sends) < UNDIVIDED:
            self.add(sends.unfold())
            return
        self.plain.append(sends)
        self.first_deadline = min(self.first_deadline, sends.deadlines[0])

    def put_back(self, calls: Sequence[Call]) -> None:
        """Return calls to the front, in their order."""
        self.waiting.extendleft(reversed(calls))
        self.first_deadline = min([self.first_deadline, *(call.deadline for call in calls)])

    def of_one_patience(self, calls: list[Call], patient: Callable[[Call], bool]) -> list[Call]:
        """The first calls that all may, or all may not, go elsewhere when the answer takes too long; others wait."""
        end = next((n for n, call in enumerate(calls) if patient(call) is not patient(calls[0])), len(calls))
        self.put_back(calls[end:])
        return calls[:end]

    def take_run(self) -> Sends:
        """What goes together next, that of one queue side by side and in order; empty when nothing waits.

        The broker stores them so, and a reader of the queue gets them as one copy instead of one a record.
        """
        sends = Sends.of(take_run(self.waiting)) if self.waiting or not self.plain else take_plain_run(self.plain)
        return sends if sends.together else sends.by_queue()

    def take_expired(self, now: float) -> list[Call]:
        """Remove what waited too long."""
        if now < self.first_deadline:
            return []
        deadlines = [*map(_DEADLINE, self.waiting), *(min(sends.deadlines) for sends in self.plain)]
        self.first_deadline = min(deadlines, default=inf)  # what was first before has long left
        if now < self.first_deadline:
            return []
        self._unfold()
        expired = [call for call in self.waiting if call.deadline <= now]
        self.waiting = deque(call for call in self.waiting if call.deadline > now)
        self.first_deadline = min((call.deadline for call in self.waiting), default=inf)
        return expired

    def _unfold(self) -> None:
        while self.plain:
            self.waiting.extend(self.plain.popleft().unfold())


class Lanes(dict[str, Lane]):
    """Those of all brokers, by broker name; one is made when somebody looks for it."""

    def __missing__(self, broker_name: str) -> Lane:
        lane = self[broker_name] = Lane(broker_name)
        return lane

    def add(self, calls: Sequence[Call]) -> None:
        """Queue calls that have their queues behind what waits for their brokers."""
        names = [call.queue.broker_name for call in calls if call.queue is not None]
        for name in dict.fromkeys(names):
            self[name].add([call for call, at in zip(calls, names, strict=True) if at == name])


class Flight(msgspec.Struct, eq=False):
    """One run under way.

    ``seq`` is the run's number in both journals, ``sizes`` are the records' lengths in bytes, one element a
    send. Times are monotonic seconds: ``first_deadline`` of its sends, and ``patience``, when all of them go
    elsewhere. ``contexts`` are what hooks were told, one a send; empty without hooks.
    """

    lane: Lane
    sends: Sends
    sizes: Words
    seq: int
    address: str
    first_deadline: float
    answer: Told[SendRunResult] | None = None
    departed: float = 0.0
    patience: float = inf
    contexts: list[SendContext] = []

    @property
    def calls(self) -> list[Call]:
        """A call of each send, made when something unusual happens."""
        return self.sends.unfold()

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
    count = limit = number if batch else _most(number)
    for index, call in enumerate(islice(waiting, limit)):
        room -= call.size
        if call.batch != batch or call.kind != kind or (room < 0 and index and not batch):
            count = index
            break
    return [waiting.popleft() for _ in range(count)]


def take_plain_run(waiting: deque[Sends]) -> Sends:
    """The same of plain sends, of which some wait."""
    limit, first = _most(_many(waiting)), waiting.popleft()
    if not first.together:
        for more in next_ones(waiting, first.mode, limit - len(first)):
            first.extend(more)
        if limit == MAX_RUN_RECORDS and len(different(first.queues[:limit])) * FEW_OF_A_QUEUE > limit:
            flood = [first, *next_ones(waiting, first.mode, WINDOW_RECORDS - len(first))]
            waiting.extendleft(reversed(runs_of(flood)))
            first = waiting.popleft()
    count = fitting(first.sizes[:limit])
    if count == len(first):
        return first
    waiting.appendleft(first)
    return first.cut(count)


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
    kind, (sizes, pieces) = sends.kind, encode_records(sends, stretches, born_ms)
    run = SendRun(
        group=group, queues=queues, default_queue_nums=default_queue_nums, records=pieces, sizes=sizes,
        no_wait_store=kind == NO_WAIT, rewrite=kind in (REWRITE, TRANSACTION), reply=kind == REPLY,
    )  # fmt: skip
    if len(queues) > 1:
        index = np.array([numbers[queue] for queue, _ in stretches], "<u4")
        run.queue_index = index.repeat([count for _, count in stretches])
    commons = sends.common_stretches
    if any(common.tags_code for common, _ in commons):
        tags_codes = np.array([common.tags_code for common, _ in commons], "<i4")
        run.tags_codes = tags_codes.repeat([count for _, count in commons])
    return run
