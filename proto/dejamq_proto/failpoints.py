"""Named places where a test may delay, break or stop this process. Without DEJAMQ_FAILPOINTS they cost nothing.

``DEJAMQ_FAILPOINTS="name=terms;…"`` arms them for the life of the process; ``DEJAMQ_FAILPOINTS=@FILE`` reads the same
text from a file again whenever it changed, so that a lab can arm them while the process runs. Terms are tried in their
order: ``2*off->1*pause(500)->off`` passes twice, pauses for half a second once, then passes. The actions:

- ``off``: nothing
- ``pause(MS)``: wait so long
- ``hold``: wait until the file no longer says so
- ``drop``: what would come next does not happen; whoever waits for it waits on
- ``error``: raise ``Failpoint``
- ``kill``, ``stop``: SIGKILL or SIGSTOP this process, here

Whoever marks a place writes ``if failpoints.ARMED and await failpoints.reached("name"): …`` where it can drop.
"""

import asyncio
import os
import re
import signal
from pathlib import Path

VARIABLE = "DEJAMQ_FAILPOINTS"
ARMED = VARIABLE in os.environ
"""Whether this process has any failpoint at all: looked at before a place costs anything."""

HOLD_POLL_S = 0.01
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
    """Name -> terms. Raises ValueError for what cannot be read."""
    armed = {}
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        name, equals, terms = part.partition("=")
        if not equals:
            raise ValueError(f"failpoint {part!r} is not NAME=TERMS")
        armed[name.strip()] = [Term(term) for term in terms.split("->")]
    return armed


class Failpoints:
    """The armed places of a process. ``source`` is the text of the variable."""

    def __init__(self, source: str) -> None:
        self._file = Path(source[1:]) if source.startswith("@") else None
        self._text = "" if self._file else source
        self._armed = parse(self._text)

    async def reached(self, name: str) -> bool:
        """Do what is armed here. True: drop what would come next. Raises Failpoint."""
        term = self._taken(name)
        if term is None or term.action == "off":
            return False
        if term.action == "pause":
            await asyncio.sleep(term.argument_ms / 1000)
        elif term.action == "hold":
            while self._holds(name):  # noqa: ASYNC110  # the file tells nobody that it changed
                await asyncio.sleep(HOLD_POLL_S)
        elif term.action == "error":
            raise Failpoint(f"failpoint {name}")
        elif term.action in ("kill", "stop"):
            os.kill(os.getpid(), signal.SIGKILL if term.action == "kill" else signal.SIGSTOP)
        return term.action == "drop"

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
        """Read the file again when its text is another one: what is armed anew counts anew."""
        if self._file is None:
            return
        try:
            text = self._file.read_text()
        except FileNotFoundError:
            text = ""
        if text != self._text:
            self._text, before = text, self._armed
            self._armed = parse(text)
            for name, terms in self._armed.items():
                if name in before and [_said(term) for term in terms] == [_said(term) for term in before[name]]:
                    self._armed[name] = before[name]


def _said(term: Term) -> tuple[str, int]:
    return term.action, term.argument_ms


_armed = Failpoints(os.environ.get(VARIABLE, ""))


async def reached(name: str) -> bool:
    """As ``Failpoints.reached``, for the failpoints of this process."""
    return await _armed.reached(name)


def arm(path: Path, name: str, terms: str) -> None:
    """Write one failpoint into the file that a process reads, the others unchanged."""
    lines = dict(line.split("=", 1) for line in path.read_text().splitlines()) if path.exists() else {}
    lines[name] = terms
    new = path.with_suffix(".new")
    new.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    new.replace(path)
