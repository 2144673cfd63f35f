"""What a program has submitted since the last turn of the loop."""

import asyncio
from collections.abc import Sequence
from time import monotonic

from dejamq.backlog import Backlog
from dejamq.call import Call
from dejamq.call_ids import CallIds
from dejamq.message import Message
from dejamq.native import Shortcut
from dejamq.sends import Sends

Submitted = Call | Sends


MOST_COUNTED = 1 << 62
"""Bytes: the compiled part counts in 64 bits, and no memory has so many."""


def shortcut_for(backlog: Backlog, loop: asyncio.AbstractEventLoop, plain_below: int) -> Shortcut:
    """For messages with bodies of fewer bytes than ``plain_below``, which count in the backlog."""
    most = min(backlog.max_bytes, MOST_COUNTED)
    return Shortcut(Message, backlog, asyncio.Future, {"loop": loop}, most, backlog.call_bytes, plain_below)


class Fresh:
    """Sends without a queue yet, in the order of the submits: calls, and columns of plain ones. Owned by the loop."""

    __slots__ = ("_all", "_budget_s", "_call_ids", "_shortcut", "plain")

    def __init__(self, call_ids: CallIds, budget_s: float, shortcut: Shortcut) -> None:
        """``call_ids``: the same source as of calls. ``budget_s``: that of a plain send.

        ``shortcut`` is open while there is ``plain``, and adds what it has learned to it.
        """
        self._call_ids, self._budget_s, self._shortcut = call_ids, budget_s, shortcut
        self._all: list[Submitted] = []
        self.plain: Sends | None = None
        """What the next plain send of its mode joins."""

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, calls: Sequence[Call]) -> None:
        """Calls come behind what is there."""
        self._all += calls
        self.end_plain()

    def begin(self, mode: str) -> Sends:
        """What plain sends of this mode join from now on.

        One deadline for all of a turn: it lasts some ms, the budget is seconds.
        """
        self.plain = plain = Sends(mode, monotonic() + self._budget_s)
        self._all.append(plain)
        self._shortcut.open(mode, plain.messages, plain.commons, plain.sizes, plain.futures)
        return plain

    def end_plain(self) -> None:
        """Nothing joins it any more."""
        self.plain = None
        self._shortcut.close()

    def take(self) -> list[Submitted]:
        """The turn has come."""
        taken, self._all = self._all, []
        self.end_plain()
        return taken

    def put_back(self, taken: list[Submitted]) -> None:
        """The turn failed."""
        self._all = taken + self._all

    def as_plain(self, taken: Sequence[Submitted]) -> list[Sends] | None:
        """What was taken, with its call ids; None where it has calls: then all need to be, as order counts."""
        plain = [each for each in taken if isinstance(each, Sends)]
        if len(plain) < len(taken):
            return None
        for sends in plain:
            sends.number(self._call_ids)
        return plain

    def as_calls(self, taken: Sequence[Submitted]) -> list[Call]:
        """What was taken, each a call."""
        calls: list[Call] = []
        for each in taken:
            if isinstance(each, Call):
                calls.append(each)
            else:
                each.number(self._call_ids)
                calls += each.unfold()
        return calls
