"""A part of a flood over many queues, put in the order of its queues and cut into runs. Pure."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from functools import reduce
from itertools import accumulate, chain
from typing import Any

from dejamq.call_ids import following
from dejamq.native import Order
from dejamq.sends import COLUMNS, Sends

MAX_RUN_RECORDS = 850
MAX_RUN_BYTES = 1 << 20
WINDOW_RECORDS = 48 * MAX_RUN_RECORDS
"""So many of a flood are put in the order of their queues, where a run would have few records of each of many queues:
what a queue of a run costs, broker and readers pay for several of its records. A fifth of a second of a flood, and none
of them leaves later than the last of them would.
"""


def next_ones(waiting: deque[Sends], mode: str, room: int) -> Iterator[Sends]:
    """Take out what waits first and is of the mode, so many sends at most.

    Of the last ones only what there is room for: to take all and cut them off again would move each send twice.
    """
    while room > 0 and waiting and waiting[0].mode == mode:
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
    first, order = parts[0], Order(list(chain.from_iterable(sends.queues for sends in parts)))
    call_ids = reduce(following, [sends.call_ids for sends in parts])
    ends = _ends(*order.deal([list(chain.from_iterable(sends.sizes for sends in parts))], [len(call_ids)]))
    dealt = [order.deal([getattr(sends, name) for sends in parts], ends) for name in COLUMNS]
    runs = []
    for begin, end, *columns in zip((0, *ends[:-1]), ends, *dealt, strict=True):
        named: dict[str, Any] = dict(zip(COLUMNS, columns, strict=True))
        runs.append(Sends(first.mode, first.deadline, call_ids=call_ids[begin:end], together=True, **named))
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
