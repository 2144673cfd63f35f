"""Sends that a program has submitted since the last iteration of the event loop."""

import asyncio
from collections.abc import Callable
from time import monotonic

from dejamq.native import Shortcut
from dejamq.sending.backlog import Backlog
from dejamq.sending.call_ids import CallIds
from dejamq.sending.sends import PLAIN, Sends, own_columns
from dejamq.values.message import Message

MOST_COUNTED = 1 << 62
"""Bytes: the compiled part counts in 64 bits, and no memory has so many."""


def shortcut_for(backlog: Backlog, loop: asyncio.AbstractEventLoop, plain_below: int) -> Shortcut:
    """For messages with bodies of fewer bytes than ``plain_below``, which count in the backlog."""
    most = min(backlog.max_bytes, MOST_COUNTED)
    return Shortcut(Message, backlog, asyncio.Future, {"loop": loop}, most, backlog.call_bytes, plain_below)


class Fresh:
    """Sends without a queue yet, in the order of the submits. Owned by the loop."""

    __slots__ = ("_all", "_begun", "_budget_s", "_call_ids", "_kind", "_plain", "_shortcut", "_turn_soon")

    def __init__(
        self,
        call_ids: CallIds,
        budget_s: float,
        shortcut: Shortcut,
        turn_soon: Callable[[], None],
        kind: int = PLAIN,
    ) -> None:
        """``budget_s`` and ``kind``: those of a plain send, which is nothing but its message.

        ``shortcut`` is open while there are columns that plain sends may join. ``turn_soon`` has the sends taken in
        this iteration of the loop.
        """
        self._call_ids, self._budget_s, self._shortcut, self._turn_soon = call_ids, budget_s, shortcut, turn_soon
        self._kind = kind
        self._all: list[Sends] = []
        self._plain: Sends | None = None  # what the next plain send of its mode joins
        self._begun = False  # it is the last of ``_all``

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, sends: Sends) -> None:
        """They come behind what is there, all of them with their deadlines."""
        self._turn_soon()
        self._all.append(sends)
        if self._begun:
            self.end_plain()

    def columns(self, mode: str, kind: int) -> Sends:
        """The columns that the next send of this kind joins, at once."""
        self._turn_soon()
        if self._all and self._all[-1].kind == kind and not self._all[-1].whole:
            return self._all[-1]
        self.add(sends := own_columns(mode, kind))
        return sends

    def plain(self, mode: str) -> Sends:
        """The columns that the next plain send of this mode joins, at once."""
        plain = self._plain
        if plain is None or plain.mode != mode:
            plain = self._open(mode)
        if not plain:
            self._begin()
        return plain

    def end_plain(self) -> None:
        """Nothing joins it any more."""
        self._plain, self._begun = None, False
        self._shortcut.close()

    def take(self) -> list[Sends]:
        """The turn has come: what was submitted, with call ids.

        Plain sends of the same mode have new columns, so that a lone one has its shortcut too.
        """
        taken, self._all = self._all, []
        if self._plain is not None and self._begun:
            self._open(self._plain.mode)
        for sends in taken:
            sends.number(self._call_ids)
        return [sends for sends in taken if sends]

    def _open(self, mode: str) -> Sends:
        self._plain, self._begun = Sends(mode, kind=self._kind), False
        plain = self._plain
        self._shortcut.open(mode, plain.messages, plain.commons, plain.sizes, plain.futures, self._begin)
        return plain

    def _begin(self) -> None:
        """The first one is about to join.

        One deadline for all of a turn: it lasts some ms, the budget is seconds.
        """
        if self._plain is None or self._begun:
            return
        self._turn_soon()
        self._plain.deadline = monotonic() + self._budget_s
        self._all.append(self._plain)
        self._begun = True

    def put_back(self, taken: list[Sends]) -> None:
        """The turn failed."""
        self._all = [*taken, *self._all]
