"""Sends that go together, column by column: what most of them need instead of an object of each.

A ``Call`` of its own, passed through twenty loops, was half of what a flood of sends cost its producer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import compress
from operator import attrgetter
from typing import Any, Self

import msgspec

from dejamq.call import PLAIN, Call
from dejamq.call_ids import CallIds, following
from dejamq.encoding import Template
from dejamq.message import Message, MessageQueue, SendResult
from dejamq.native import Columns, Order, stretches

Pick = Callable[[Sequence[Any]], Any]  # some elements of a column

_ID, _BODY = attrgetter("message_id"), attrgetter("body")
_COLUMNS = Columns(Message)
_BROKER_NAME = attrgetter("broker_name")
_DONE: Any = asyncio.Future.done
_TELL: Any = asyncio.Future.set_result
COLUMNS = ("messages", "commons", "sizes", "futures", "queues", "deadlines")
"""What moves with a plain send."""


class Sends(msgspec.Struct, eq=False):
    """Sends of one mode, one element of each column a send; those of a program with nothing but their message.

    ``queues``, ``call_ids`` and ``deadlines`` (monotonic seconds) are there when the queues have been chosen. With
    ``calls`` it is made of calls, which then say what else there is to each.
    """

    mode: str = "sync"
    deadline: float = 0.0
    messages: list[Message] = []
    commons: list[Template] = []
    sizes: list[int] = []
    futures: list[asyncio.Future[SendResult] | None] = []
    queues: list[MessageQueue] = []
    call_ids: Sequence[int] = []
    deadlines: list[float] = []
    calls: list[Call] | None = None
    left: bool = False
    ids: list[str] = []
    together: bool = False
    """Those of each queue stand side by side, maybe in more than one run."""

    def __len__(self) -> int:
        return len(self.messages)

    @classmethod
    def of(cls, calls: list[Call]) -> "Sends":
        """Calls that have their queues."""
        return cls(
            "", 0.0, [call.message for call in calls], [call.common for call in calls], [call.size for call in calls],
            [call.future for call in calls], _each_one_object([call.queue for call in calls if call.queue is not None]),
            [call.call_id for call in calls], [call.deadline for call in calls], calls,
        )  # fmt: skip

    def number(self, call_ids: CallIds) -> None:
        """All of them have been submitted."""
        self.call_ids = call_ids.take(len(self))
        self.deadlines = [self.deadline] * len(self)

    def unfold(self) -> list[Call]:
        """A call of each, for whatever happens to some of them only. The same ones when asked again."""
        if self.calls is None:
            queues: Sequence[MessageQueue | None] = self.queues or [None] * len(self)
            columns = zip(
                self.messages, self.commons, self.call_ids, self.deadlines, self.sizes, self.futures, queues,
                strict=True,
            )  # fmt: skip
            self.calls = [
                Call(
                    message, common, common.rest, PLAIN, call_id, deadline, size, future, self.mode,
                    before=common.before, queue=queue, tries=int(self.left),
                )
                for message, common, call_id, deadline, size, future, queue in columns
            ]  # fmt: skip
        return self.calls

    @property
    def tries(self) -> list[int]:
        """How often each left, the try under way included."""
        return [int(self.left)] * len(self) if self.calls is None else [call.tries for call in self.calls]

    def leave(self) -> None:
        """One more try of each begins."""
        self.left = True
        for call in self.calls or ():
            call.tries += 1

    def extend(self, others: Self) -> None:
        """Take in others of the same mode, behind these. Neither may be made of calls."""
        self.messages += others.messages
        self.commons += others.commons
        self.sizes += others.sizes
        self.futures += others.futures
        self.queues += others.queues
        self.call_ids = following(self.call_ids, others.call_ids)
        self.deadlines += others.deadlines

    def part(self, begin: int, end: int) -> "Sends":
        """Some that stand side by side."""
        return self.pick(lambda column: column[begin:end])

    def cut(self, count: int) -> "Sends":
        """Take the first ones out."""
        front = self.part(0, count)
        front.together = self.together
        self.call_ids = self.call_ids[count:]
        for column in (self.messages, self.commons, self.sizes, self.futures, self.queues, self.deadlines):
            del column[:count]
        return front

    def pick(self, pick: Pick) -> "Sends":
        """Those elements of all columns."""
        return Sends(
            self.mode, self.deadline, pick(self.messages), pick(self.commons), pick(self.sizes), pick(self.futures),
            pick(self.queues), pick(self.call_ids), pick(self.deadlines), self.calls and pick(self.calls), self.left,
        )  # fmt: skip

    def by_broker(self) -> "list[tuple[str, Sends]]":
        """Those of each broker, in their order."""
        if _same(self.queues):
            return [(self.queues[0].broker_name, self)]
        names = list(map(_BROKER_NAME, self.queues))
        if _same(names):
            return [(names[0], self)]
        return [(name, self.pick(_only(name, names))) for name in dict.fromkeys(names)]

    @property
    def stretches(self) -> list[tuple[MessageQueue, int]]:
        """The queues as they stand, and how many stand together each time; hardly any of a crowd, which goes to one."""
        return stretches(self.queues)

    def by_queue(self) -> Self:
        """Put those of each queue side by side, in their order; the queues by when each comes first.

        They are told apart by which object they are, as each queue is one of its ``Rotation``, and of calls; in the
        turns after a route has changed a queue may stand in two places. Call ids of plain sends stay as they are:
        nobody knows them before they leave. The columns are new lists, the former ones empty.
        """
        if _same(self.queues):
            return self
        order = Order(self.queues)
        for name in COLUMNS if self.calls is None else (*COLUMNS, "call_ids", "calls"):
            (column,) = order.deal([getattr(self, name)], [len(self.queues)])
            setattr(self, name, column)
        return self

    @property
    def any_ended(self) -> bool:
        """Some have their result, failure or cancellation already."""
        if self.calls is None:
            return any(map(_DONE, self.futures))
        return any(call.ended for call in self.calls)

    def tell(self, results: Sequence[SendResult]) -> None:
        """Give each that still waits its result."""
        if self.calls is None:
            with suppress(asyncio.InvalidStateError):  # one was cancelled
                deque(map(_TELL, self.futures, results), maxlen=0)
                return
        for future, result in zip(self.futures, results, strict=True):
            if future is not None and not future.done():
                future.set_result(result)

    # what their records are made of

    @property
    def kind(self) -> int:
        """Of all of them."""
        return PLAIN if self.calls is None else self.calls[0].kind

    @property
    def columns(self) -> tuple[list[bytes], list[str]]:
        """Bodies as they travel, and ids; asked for when no element comes or goes any more."""
        messages = self.messages
        bodies, self.ids = _COLUMNS.of(messages) or (list(map(_BODY, messages)), list(map(_ID, messages)))
        if self.calls is not None:
            bodies = [call.packed or call.message.body for call in self.calls]
        return bodies, self.ids

    @property
    def message_ids(self) -> list[str]:
        """As ``columns`` has them, and at the same time."""
        return self.ids or self.columns[1]

    @property
    def topics(self) -> set[str]:
        """Of all of them."""
        return {common.topic for common in different(self.commons)}

    @property
    def common_stretches(self) -> list[tuple[Template, int]]:
        """What they have in common, one topic, flag and tag, and how many stand together each time that have it."""
        return stretches(self.commons)  # equal ones are one object

    @property
    def alike(self) -> list[tuple[bytes, bytes, bytes, int]]:
        """The header of which nothing else is known yet; what stands between body and id; what stands behind it; and
        how many have these side by side.
        """
        if self.calls is not None:
            return [(call.common.record.header, call.before, call.rest, 1) for call in self.calls]
        return [(common.record.header, common.before, common.rest, count) for common, count in self.common_stretches]


def _only(name: str, names: list[str]) -> Pick:
    mask = [one == name for one in names]
    return lambda column: list(compress(column, mask))


def _same(column: list[Any]) -> bool:
    """Whether all are equal, as nearly always in a flood; told by the last one, or else by all."""
    return not column or (column[0] == column[-1] and column.count(column[0]) == len(column))


def different(column: list[Any]) -> set[Any]:
    """What stands in it; hashed only where not all are equal."""
    return set(column[:1] if _same(column) else column)


def numbered(queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Each queue once, with its number by when it comes first."""
    return {queue: number for number, queue in enumerate(dict.fromkeys(queues))}


def _each_one_object(queues: list[MessageQueue]) -> list[MessageQueue]:
    """Equal ones become one: programs that choose a queue themselves may make it anew for each message."""
    first: dict[MessageQueue, MessageQueue] = {}
    return [first.setdefault(queue, queue) for queue in queues]
