"""What a rule reads of a journal, declared beside the rule as ``needs``, and the only way by which rules read events.

Whoever leaves lines out picks by the same declarations: the survey of large journals, and ``--follow``. ``EVERYTHING``
of ``rules.declared`` is all of them.
"""

from collections.abc import Callable, Collection, Iterable
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from dejamq_proto.journal.events import Event
from dejamq_proto.journal.lines import tag_of

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.schema import filled, of

Condition = Callable[[Any], Any]
"""Of a line: a struct with fields, or columns of one. Written with comparisons, ``&``, ``|`` and the helpers here."""


class Undeclared(Exception):
    """A rule asks for an event that it has not declared."""


class Need(NamedTuple):
    """Lines of one event, those of which ``where`` holds.

    With ``by`` one line of each is enough: the first one, or with ``rank`` the one that ranks highest. ``of_messages``:
    only lines about messages that may be part of a finding are. ``passing``: a line tells what was done, not what holds
    from then on; once everything of its time is told, no later finding needs it.
    """

    event: type[Event]
    where: Condition | None = None
    by: tuple[str, ...] = ()
    rank: tuple[str, ...] = ()
    of_messages: bool = False
    passing: bool = False


def every(*events: type[Event]) -> list[Need]:
    """All lines of these events."""
    return [Need(event) for event in events]


def of_messages(*events: type[Event]) -> list[Need]:
    """Of these events the lines of messages that did not simply come once. They are passing."""
    return [Need(event, of_messages=True, passing=True) for event in events]


def passing(needs: Iterable[Need]) -> list[Need]:
    """These needs, of events that tell what was done to some messages."""
    return [need._replace(passing=True) for need in needs]


def those(event: type[Event], where: Condition) -> list[Need]:
    """All lines of which this holds."""
    return [Need(event, where)]


def one(event: type[Event], by: Iterable[str], where: Condition | None = None) -> list[Need]:
    """One line of each ``by`` is enough, whichever."""
    return [Need(event, where, tuple(by))]


def highest(event: type[Event], by: Iterable[str], rank: Iterable[str], where: Condition | None = None) -> list[Need]:
    """The line of each ``by`` that ranks highest is enough."""
    return [Need(event, where, tuple(by), tuple(rank))]


class Needs:
    """Declared once a module, at its top."""

    def __init__(self, *needs: Iterable[Need]) -> None:
        self.declared = [need for several in needs for need in several]

    def of(self, events: DataFrame, event: type[Event]) -> DataFrame:
        """As ``schema.of``: the declared lines of one event. Raises Undeclared."""
        self._check(event)
        rows, condition = of(events, event), self.condition(event)
        return rows if condition is None else rows.where(condition)

    def lines(self, events: DataFrame, *kinds: type[Event]) -> DataFrame:
        """Lines of several events with the fields of all, as they stand: defaults are null. Raises Undeclared."""
        self._check(*kinds)
        return events.where(sf.col("event").isin(*map(tag_of, kinds)))

    def is_a(self, event: type[Event]) -> Column:
        """Of lines of several events: whether it is this one. Raises Undeclared."""
        self._check(event)
        return sf.col("event") == tag_of(event)

    def taken(self, lines: DataFrame) -> DataFrame:
        """Of lines of any event those that are declared."""
        wanted = sf.lit(False)
        for event in self.events():
            condition, this = self.condition(event), self.is_a(event)
            wanted |= this if condition is None else this & condition
        return lines.where(wanted)

    def condition(self, event: type[Event]) -> Column | None:
        """Of lines of that event: whether one is declared. None where all are."""
        conditions = [need.where for need in self.declared if need.event is event]
        if None in conditions:
            return None
        line = columns(event)
        holds: Column = reduce(or_, (condition(line) for condition in conditions if condition is not None))
        return holds

    def events(self) -> Collection[type[Event]]:
        """All that are declared, each once."""
        return dict.fromkeys(need.event for need in self.declared)

    def _check(self, *events: type[Event]) -> None:
        if unknown := [event.__name__ for event in events if event not in self.events()]:
            raise Undeclared(f"{', '.join(unknown)}: add it to the module's needs, or large audits leave it out")


def columns(event: type[Event]) -> Any:
    """Of lines of that event, for a condition."""
    return _Columns(event)


class _Columns:
    """The fields of a line as columns, with the defaults that its writer left out."""

    def __init__(self, event: type[Event]) -> None:
        self._event = event

    def __getattr__(self, name: str) -> Column:
        return filled(self._event, name)


def is_one_of(value: Any, names: Collection[str]) -> Any:
    """Whether a text is one of these."""
    return value in names if isinstance(value, str) else value.isin(*names)


def some(values: Any, test: Condition) -> Any:
    """Whether the condition holds for one of a list."""
    return any(map(test, values)) if isinstance(values, list) else sf.exists(values, test)


def begins(text: Any, prefix: str) -> Any:
    """Whether a text begins so, in small letters or large ones."""
    return (text.lower() if isinstance(text, str) else sf.lower(text)).startswith(prefix)


def no(truth: Any) -> Any:
    """The contrary."""
    return not truth if isinstance(truth, bool) else ~truth
