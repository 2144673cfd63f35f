"""Named places where a test may delay, break or stop this process. Without DEJAMQ_FAILPOINTS they cost nothing.

``DEJAMQ_FAILPOINTS="name=terms;…"`` arms them for the life of the process. ``DEJAMQ_FAILPOINTS=@FILE`` reads the same
text from a file again whenever it changed, so that a lab can arm them while the process runs. Terms are tried in their
order: ``2*off->1*pause(500)->off`` passes twice, pauses for half a second once, then passes. The actions:

- ``off``: nothing
- ``pause(MS)``: wait so long
- ``hold``: wait until the file no longer says so
- ``drop``: the next step does not happen; its waiters wait on
- ``error``: raise ``Failpoint``
- ``kill``, ``stop``: SIGKILL or SIGSTOP this process, here

Names with ``|`` between them share one list of terms: ``a|b=1*drop->off`` drops once, at the place that comes first.
Beside the file stands a second one, ``.struck``: a line for every time that a term other than ``off`` was taken.

A place is marked by ``if failpoints.ARMED and await failpoints.reached("name"): …`` where it can drop.

Two names are not places. ``clock=+MS`` or ``clock=-MS`` moves the time of day of this process (``clock``).
``disk=PERCENT`` replaces how full the disk of a broker's store is; 0: as it is.
"""

import asyncio
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

VARIABLE = "DEJAMQ_FAILPOINTS"
ARMED = VARIABLE in os.environ
"""Whether this process has any failpoint at all: looked at before a place costs anything."""

CLOCK, DISK = NUMBERS = "clock", "disk"
HOLD_POLL_S = LOOK_POLL_S = 0.01
TERM = re.compile(r"(?:(\d+)\*)?(off|pause|hold|drop|error|kill|stop)(?:\((\d+)\))?")


class Failpoint(Exception):
    """An armed failpoint says ``error`` here."""


class Term:
    """One action, and how often it is still to be taken (None: always)."""

    def __init__(self, text: str) -> None:
        match = TERM.fullmatch(text.strip())
        if match is None or (match[2] == "pause") != (match[3] is not None):
            raise ValueError(f"failpoint term {text!r} is none of [N*]off, pause(MS), hold, drop, error, kill, stop")
        self.left = int(match[1]) if match[1] else None
        self.action, self.argument_ms = match[2], int(match[3] or 0)


def parse(text: str) -> dict[str, list[Term]]:
    """Name -> terms. Raises ValueError for a text that cannot be read."""
    found: dict[str, list[Term]] = {}
    for names, text_of_terms in _parts(text):
        if names not in NUMBERS:
            shared = [Term(term) for term in text_of_terms.split("->")]
            found |= dict.fromkeys(names.split("|"), shared)
    return found


def numbers(text: str) -> dict[str, int]:
    """The text's settings of clock and disk. Raises ValueError for a text that cannot be read."""
    found = {}
    for name, number in _parts(text):
        if name in NUMBERS:
            try:
                found[name] = int(number)
            except ValueError:
                raise ValueError(f"failpoint {name}={number} is not a number: clock=+MS, clock=-MS, disk=%") from None
    return found


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        name, equals, terms = part.partition("=")
        if not equals:
            raise ValueError(f"failpoint {part!r} is not NAME=TERMS")
        yield name.strip(), terms.strip()


class Failpoints:
    """The armed places of a process. ``source`` is the text of the variable."""

    def __init__(self, source: str) -> None:
        self._file = Path(source[1:]) if source.startswith("@") else None
        self._text = "" if self._file else source
        self._armed, self._numbers, self._looked_s = parse(self._text), numbers(self._text), 0.0
        self.strike: Callable[[str], Awaitable[None]] = _strike
        """Does ``kill`` and ``stop``; replaced where the process is only played by a part of this one."""

    def number(self, name: str) -> int:
        """The number that ``clock`` or ``disk`` is set to now, 0 without one. Any thread."""
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_POLL_S:
            self._looked_s = now_s
            self._look()
        return self._numbers.get(name, 0)

    async def reached(self, name: str) -> bool:
        """Do what is armed here. True: drop what would come next. Raises Failpoint."""
        term = self._taken(name)
        if term is None or term.action == "off":
            return False
        if self._file is not None:
            with struck_file(self._file).open("a") as struck:
                struck.write(f"{time.time_ns() // 1000} {name} {term.action}\n")
        if term.action == "pause":
            await asyncio.sleep(term.argument_ms / 1000)
        elif term.action == "hold":
            while self._holds(name):  # noqa: ASYNC110  # the file tells nobody that it changed
                await asyncio.sleep(HOLD_POLL_S)
        elif term.action == "error":
            raise Failpoint(f"failpoint {name}")
        elif term.action in ("kill", "stop"):
            await self.strike(term.action)
        return term.action == "drop"

    def spent(self, name: str) -> bool:
        """Whether each counted term of this place was taken as often as it says."""
        return not any(term.left for term in self._armed.get(name, ()))

    def _taken(self, name: str) -> Term | None:
        self._look()
        for term in self._armed.get(name, ()):
            if term.left is None:
                return term
            if term.left > 0:
                term.left -= 1
                return term
        return None

    def _holds(self, name: str) -> bool:
        self._look()
        return any(term.action == "hold" for term in self._armed.get(name, ()))

    def _look(self) -> None:
        """Read the file again when its text is another one: failpoints that are armed anew count anew."""
        if self._file is None:
            return
        try:
            text = self._file.read_text()
        except FileNotFoundError:
            text = ""
        if text != self._text:
            self._text, before = text, self._armed
            self._armed, self._numbers = parse(text), numbers(text)
            for name, terms in self._armed.items():
                if name in before and [_said(term) for term in terms] == [_said(term) for term in before[name]]:
                    self._armed[name] = before[name]


def _said(term: Term) -> tuple[str, int]:
    return term.action, term.argument_ms


async def _strike(action: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)


_armed = Failpoints(os.environ.get(VARIABLE, ""))
_carried: ContextVar[Failpoints | None] = ContextVar("failpoints", default=None)


def here() -> Failpoints:
    """Those of this process, or of the one that is played in this context."""
    return _carried.get() or _armed


def carry(armed: Failpoints) -> None:
    """From now on this context, and all tasks started in it, have failpoints of their own: a process played in this
    one.
    """
    _carried.set(armed)


async def reached(name: str) -> bool:
    """As ``Failpoints.reached``, for the failpoints of this process."""
    return await here().reached(name)


def struck_file(path: Path) -> Path:
    """Beside a file that arms failpoints: microseconds since 1970, place and action of each strike, a line each."""
    return path.with_suffix(".struck")


def arm(path: Path, name: str, terms: str) -> None:
    """Write one failpoint into the file that a process reads, the others unchanged."""
    lines = dict(line.split("=", 1) for line in path.read_text().splitlines()) if path.exists() else {}
    lines[name] = terms
    new = path.with_suffix(".new")
    new.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    new.replace(path)
