"""What a program has submitted since the last turn of the loop."""

from collections.abc import Iterator, Sequence
from time import monotonic

from dejamq.call import Call
from dejamq.sends import Sends

Submitted = Call | Sends


class Fresh:
    """Sends without a queue yet, in the order of the submits: calls, and columns of plain ones. Owned by the loop."""

    __slots__ = ("_all", "_budget_s", "_call_ids", "plain")

    def __init__(self, call_ids: Iterator[int], budget_s: float) -> None:
        """``call_ids``: the same source as of calls. ``budget_s``: that of a plain send."""
        self._call_ids, self._budget_s = call_ids, budget_s
        self._all: list[Submitted] = []
        self.plain: Sends | None = None
        """What the next plain send of its mode joins."""

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, calls: Sequence[Call]) -> None:
        """Calls come behind what is there."""
        self._all += calls
        self.plain = None

    def begin(self, mode: str) -> Sends:
        """What plain sends of this mode join from now on.

        One deadline for all of a turn: it lasts some ms, the budget is seconds.
        """
        self.plain = Sends(mode, monotonic() + self._budget_s)
        self._all.append(self.plain)
        return self.plain

    def take(self) -> list[Submitted]:
        """The turn has come."""
        taken, self._all, self.plain = self._all, [], None
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
