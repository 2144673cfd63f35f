"""Sends that wait or travel together, column by column: a send is one element of each column.

An object for each send, passed through twenty loops, was half of the producer's cost of a bulk send.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from itertools import chain, compress
from operator import attrgetter
from typing import Any, Self

import msgspec

from dejamq.native import Permutation, stretches
from dejamq.native import permutation as in_python
from dejamq.sending.call_ids import CallIds, following
from dejamq.sending.encoding import Template
from dejamq.values.message import Message, MessageQueue, SendResult
from dejamq.values.selectors import Selector

Pick = Callable[[Sequence[Any]], Any]  # some elements of a column

_ID, _BODY = attrgetter("message_id"), attrgetter("body")
_BROKER_NAME = attrgetter("broker_name")
_DONE: Any = asyncio.Future.done
_TELL: Any = asyncio.Future.set_result
COLUMNS = ("messages", "commons", "sizes", "futures", "queues", "deadlines")
"""What each send has."""
RARE_COLUMNS = ("modes", "extras")
"""Empty where they say nothing."""
PLAIN, NO_WAIT, REWRITE, REPLY, TRANSACTION = 0, 1, 2, 3, 4  # kinds of records that a run cannot mix
DEDUP = 8  # added to a kind: the broker stores none of them twice
ONEWAY = "oneway"


class Extra(msgspec.Struct, eq=False, gc=False):
    """What one send has beside its message and the common part.

    ``before``, the message's id and ``rest`` are the bytes of its record behind the body.
    """

    before: bytes
    rest: bytes
    packed: bytes = b""  # the body as it travels, where that is not the message's
    where: MessageQueue | Selector | None = None  # there or nowhere
    kept: SendResult | None = None  # an earlier try stored it, less durably than asked


class Sends(msgspec.Struct, eq=False):
    """Sends of one kind and one history, one element of each column a send.

    ``queues``, ``call_ids`` and ``deadlines`` (monotonic seconds) are there when the queues have been chosen.
    ``mode`` is how the program made them, for the journal (sync, async, batch, request, oneway), and ``deadline`` is
    theirs, where ``modes`` and ``deadlines`` do not say otherwise. A future is None for a oneway.
    """

    mode: str = "sync"
    deadline: float = 0.0
    messages: list[Message] = []
    commons: list[Template] = []
    sizes: list[int] = []  # of whole records
    futures: list[asyncio.Future[SendResult] | None] = []
    queues: list[MessageQueue] = []
    call_ids: Sequence[int] = []
    deadlines: list[float] = []
    modes: list[str] = []
    extras: list[Extra | None] = []
    kind: int = PLAIN
    whole: bool = False  # they go and fail together, and nothing joins them
    tries: int = 0  # times they left
    retries: int = 0  # times a failure made them leave again
    indefinite: bool = False  # an earlier try may have stored them
    ids: list[str] = []
    together: bool = False
    """Those of each queue stand side by side, maybe in more than one run."""

    def __len__(self) -> int:
        return len(self.messages)

    def append(
        self, mode: str, message: Message, common: Template, size: int, future: asyncio.Future[SendResult] | None,
        deadline: float, extra: Extra | None,
    ) -> None:  # fmt: skip
        """Take in one send, behind these.

        Lists are made first: with each of them garbage may go, and something of that may add a send here.
        """
        count, modes, extras = -1, self.modes, self.extras
        while count != len(self.messages):
            count = len(self.messages)
            self.complete()
            modes = self.modes or ([] if mode == self.mode else [self.mode] * count)
            extras = self.extras or ([] if extra is None else [None] * count)
        if modes or mode != self.mode:
            modes.append(mode)
            self.modes = modes
        if extras or extra is not None:
            extras.append(extra)
            self.extras = extras
        self.messages.append(message)
        self.commons.append(common)
        self.sizes.append(size)
        self.futures.append(future)
        self.deadlines.append(deadline)

    def number(self, call_ids: CallIds) -> None:
        """All of them have been submitted."""
        self.call_ids = call_ids.take(len(self))
        self.complete()

    def complete(self) -> None:
        """Give those that joined the first four columns alone an element of the others."""
        if len(self.deadlines) < len(self.messages):
            self.deadlines += [self.deadline] * (len(self.messages) - len(self.deadlines))
        if self.modes and len(self.modes) < len(self.messages):
            self.modes += [self.mode] * (len(self.messages) - len(self.modes))
        if self.extras and len(self.extras) < len(self.messages):
            self.extras += [None] * (len(self.messages) - len(self.extras))

    @property
    def stay(self) -> bool:
        """An earlier try may have stored them, and that broker would know them: no other one gets them."""
        return self.indefinite and bool(self.kind & DEDUP)

    def joins(self, others: Self) -> bool:
        """These may be in one run with the others."""
        return (
            self.kind == others.kind and self.tries == others.tries and self.retries == others.retries
            and self.indefinite == others.indefinite and not self.whole and not others.whole
        )  # fmt: skip

    def extend(self, others: Self) -> None:
        """Take in others, behind these."""
        if self.modes or others.modes or self.mode != others.mode:
            self.modes = self.each_mode
            self.modes += others.each_mode
        if self.extras or others.extras:
            self.extras = self.each_extra
            self.extras += others.each_extra
        self.messages += others.messages
        self.commons += others.commons
        self.sizes += others.sizes
        self.futures += others.futures
        self.queues += others.queues
        self.deadlines += others.deadlines
        self.call_ids, self.ids = following(self.call_ids, others.call_ids), []

    def part(self, begin: int, end: int) -> Self:
        """Some that stand side by side."""
        return self.pick(lambda column: column[begin:end])

    def cut(self, count: int) -> Self:
        """Take the first ones out."""
        front = self.part(0, count)
        self.call_ids, self.ids = self.call_ids[count:], []
        for name in (*COLUMNS, *RARE_COLUMNS):
            del getattr(self, name)[:count]
        return front

    def pick(self, pick: Pick) -> Self:
        """Those elements of all columns."""
        picked = copy(self)
        for name in (*COLUMNS, *RARE_COLUMNS, "call_ids"):
            setattr(picked, name, pick(getattr(self, name)))
        picked.ids = []
        return picked

    def divide(self, mask: Sequence[bool]) -> tuple[Self, Self]:
        """Those that are marked, and the others."""
        if all(mask):
            return self, self.part(0, 0)
        if not any(mask):
            return self.part(0, 0), self
        others = [not marked for marked in mask]
        return self.pick(lambda column: list(compress(column, mask))), self.pick(
            lambda column: list(compress(column, others))
        )

    def by_broker(self) -> list[tuple[str, Self]]:
        """Those of each broker, in their order."""
        if _same(self.queues):
            return [(self.queues[0].broker_name, self)]
        return self._by(self.broker_names)

    def by_topic(self) -> list[tuple[str, Self]]:
        """Those of each topic, in their order."""
        return self._by([common.topic for common in self.commons])

    def _by(self, names: list[str]) -> list[tuple[str, Self]]:
        if _same(names):
            return [(names[0], self)]
        return [(name, self.pick(_only(name, names))) for name in dict.fromkeys(names)]

    @property
    def stretches(self) -> list[tuple[MessageQueue, int]]:
        """The queues as they stand, and how many sends of each stand together; few for a crowd: it has one queue."""
        return stretches(self.queues)

    def by_queue(self) -> Self:
        """Put those of each queue side by side, in their order; the queues by when each comes first.

        They are told apart by which object they are, as each queue is one of its ``Rotation``; in the turns after a
        route has changed a queue may stand in two places. Before the first try call ids stay as they are: nobody
        knows them before. The columns are new lists, the former ones empty.
        """
        if self.extras:
            self.queues = each_one_object(self.queues)
        if _same(self.queues):
            return self
        names, self.ids = columns_of((self,)), []
        if self.tries:
            self.call_ids, names = list(self.call_ids), [*names, "call_ids"]
        queues = list(self.queues)
        dealt = deal((self,), names, Permutation(queues), queues, [len(queues)])
        for name, (column,) in zip(names, dealt, strict=True):
            setattr(self, name, column)
        return self

    @property
    def _awaited(self) -> bool:
        """Each has a future, as nearly always."""
        return not self.modes and self.mode != ONEWAY

    @property
    def any_ended(self) -> bool:
        """Some have their result, failure or cancellation already."""
        return any(map(_DONE, self.futures)) if self._awaited else any(self.ended)

    @property
    def ended(self) -> list[bool]:
        """Which have their result, failure or cancellation already."""
        return [future is not None and future.done() for future in self.futures]

    def tell(self, results: Sequence[SendResult]) -> None:
        """Give each that still waits its result."""
        if self._awaited:
            with suppress(asyncio.InvalidStateError):  # one was cancelled
                deque(map(_TELL, self.futures, results), maxlen=0)
                return
        for future, result in zip(self.futures, results, strict=True):
            if future is not None and not future.done():
                future.set_result(result)

    def keep(self, results: Sequence[SendResult]) -> None:
        """They are stored, less durably than asked, and go again. The first such result counts."""
        extras = zip(self.commons, self.each_extra, strict=True)
        self.extras = [extra or Extra(common.before, common.rest) for common, extra in extras]
        for extra, result in zip(self.extras, results, strict=True):
            assert extra is not None
            extra.kept = extra.kept or result

    # what each has

    @property
    def each_mode(self) -> list[str]:
        """How the program made each."""
        return self.modes or [self.mode] * len(self)

    @property
    def each_extra(self) -> list[Extra | None]:
        """What each has beside its message and the common part."""
        return self.extras or [None] * len(self)

    @property
    def broker_names(self) -> list[str]:
        """The broker of each one's queue."""
        return list(map(_BROKER_NAME, self.queues))

    @property
    def first_deadline(self) -> float:
        """When the first of them expires."""
        return min(self.deadlines)

    @property
    def pinned(self) -> list[bool]:
        """Which the program sends to a queue of its choice."""
        return [extra is not None and extra.where is not None for extra in self.each_extra]

    # what their records are made of

    @property
    def columns(self) -> tuple[list[bytes], list[str]]:
        """Bodies as they travel, and ids; asked for when no element comes or goes any more."""
        self.ids, bodies = list(map(_ID, self.messages)), list(map(_BODY, self.messages))
        for index, extra in enumerate(self.extras):
            if extra is not None and extra.packed:
                bodies[index] = extra.packed
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
        """The common parts (one topic, flag and tag), and the number of neighbouring sends that share each."""
        return stretches(self.commons)  # equal ones are one object

    @property
    def alike(self) -> list[tuple[bytes, bytes, bytes, int]]:
        """The header of which nothing else is known yet; what stands between body and id; what stands behind it; and
        how many have these side by side.
        """
        if not self.extras:
            return [(common.record.header, common.before, common.rest, many) for common, many in self.common_stretches]
        each = [(common, extra or common) for common, extra in zip(self.commons, self.extras, strict=True)]
        return [(common.record.header, part.before, part.rest, 1) for common, part in each]


def own_columns(mode: str, kind: int) -> Sends:
    """For a first send of this kind. A reply is a run of its own, because each is answered for itself."""
    return Sends(mode, kind=kind, whole=kind == REPLY)


def columns_of(parts: Sequence[Sends]) -> Sequence[str]:
    """The names of the columns that say something; one that any of the parts has, all of them get."""
    names: tuple[str, ...] = COLUMNS
    mode = parts[0].mode
    if any(part.modes or part.mode != mode for part in parts):
        names = (*names, "modes")
        for part in parts:
            part.modes = part.each_mode
    if any(part.extras for part in parts):
        names = (*names, "extras")
        for part in parts:
            part.extras = part.each_extra
    return names


def deal(
    parts: Sequence[Sends], names: Sequence[str], order: Permutation, queues: list[MessageQueue], ends: list[int]
) -> list[list[list[Any]]]:
    """These columns of the parts in an order that was made of the queues: of each column a list up to each end.

    The parts are empty then. Where it fails half way, the first part has all of them, in that order, and no future is
    lost; the other parts are empty.
    """
    dealt: list[list[list[Any]]] = []
    try:
        for name in names:
            columns = [getattr(part, name) for part in parts]
            dealt.append(order.deal(columns, ends))
    except BaseException:
        places = in_python.Permutation(queues).places
        for number, name in enumerate(names):
            if number < len(dealt):
                column = list(chain.from_iterable(dealt[number]))
            else:
                here = list(chain.from_iterable(getattr(part, name) for part in parts))
                column = [here[place] for place in places]
            for part in parts:
                setattr(part, name, [])
            setattr(parts[0], name, column)
        raise
    return dealt


def _only(name: str, names: list[str]) -> Pick:
    mask = [one == name for one in names]
    return lambda column: list(compress(column, mask))


def _same(column: list[Any]) -> bool:
    """Whether all are equal, as nearly always in a bulk send; the last one decides, or else all of them."""
    return not column or (column[0] == column[-1] and column.count(column[0]) == len(column))


def different(column: list[Any]) -> set[Any]:
    """The distinct values in it; hashed only where not all are equal."""
    return set(column[:1] if _same(column) else column)


def numbered(queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Each queue once, with its number by when it comes first."""
    return {queue: number for number, queue in enumerate(dict.fromkeys(queues))}


def each_one_object(queues: list[MessageQueue]) -> list[MessageQueue]:
    """Equal ones become one: programs that choose a queue themselves may make it anew for each message."""
    first: dict[MessageQueue, MessageQueue] = {}
    return [first.setdefault(queue, queue) for queue in queues]


def by_deadline(waiting: Iterable[Sends], now: float) -> tuple[list[Sends], list[Sends]]:
    """Those whose time is over, and the others (``now``: s, monotonic)."""
    pairs = [sends.divide([deadline <= now for deadline in sends.deadlines]) for sends in waiting]
    return [expired for expired, _ in pairs if expired], [others for _, others in pairs if others]
