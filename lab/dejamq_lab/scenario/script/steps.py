"""The steps of a scenario: each is a table with ``do`` and its object. Times are for an unscaled cluster."""

from typing import Any

import msgspec


class Base(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="do"):
    def names(self) -> list[str]:
        """Actors and servers that must exist."""
        return []

    @property
    def kind(self) -> str:
        """The step's ``do``."""
        return str(type(self).__struct_config__.tag)


class One(Base, frozen=True):
    """A step done to one actor or server."""

    who: str

    def names(self) -> list[str]:
        return [self.who]


class Start(One, tag="start", frozen=True):
    """Start an actor's client; a consumer has its queues when the step ends."""

    assigned: bool = True


class Close(One, tag="close", frozen=True):
    """Close an actor's client: it drains."""


class Kill(One, tag="kill", frozen=True):
    """SIGKILL."""


class Pause(One, tag="pause", frozen=True):
    """SIGSTOP."""


class Resume(One, tag="resume", frozen=True):
    """SIGCONT."""


class Terminate(One, tag="terminate", frozen=True):
    """SIGTERM, and wait for the end."""


class Restart(One, tag="restart", frozen=True):
    """Start a server or an actor's process again, and wait until it serves.

    ``broker_id``: a broker as this replica from now on; 0 makes a slave the master.
    """

    wait: bool = True
    broker_id: int | None = None


class Send(One, tag="send", frozen=True):
    """Send ``count`` messages, numbered on from the last one. ``times``: how often the program sends every message.

    ``outcome``: ok, error (each must fail), any, or the status that each must end with, as FLUSH_DISK_TIMEOUT.
    ``queue`` is ``broker-a:0``; '': as the producer chooses.
    """

    count: int
    first: int = -1
    """The number of the first of them; below 0: on from the last. One number is one event, whatever its topic."""
    topic: str = ""
    queue: str = ""
    tags: str = ""
    delay_level: int = 0
    delay_ms: int = 0
    """0: no time."""
    times: int = 1
    same: bool = False
    """With ``times``: the same Message object, so the same message id."""
    rate: float = 0
    timeout_ms: float = 0
    batch: bool = False
    how: str = "send"
    """send, submit (without waiting for each), or request (until the reply is there)."""
    pad: int = 0
    """Bytes that each body is longer."""
    outcome: str = "ok"
    wait: bool = True
    """Otherwise the next step begins at once; the step ``sent`` waits."""


class SentStep(One, tag="sent", frozen=True):
    """Wait until all sends of the actor have ended."""


class HandledStep(Base, tag="handled", frozen=True):
    """Wait until there are ``count`` effects, of this actor or of all; ``different`` counts a message once."""

    count: int
    who: str = ""
    different: bool = True
    deadline_ms: float = 600_000

    def names(self) -> list[str]:
        return [self.who] if self.who else []


class Entered(One, tag="entered", frozen=True):
    """Wait until a handler of this actor was entered with the message of this number, ``times`` times."""

    number: int
    times: int = 1


class ReleaseStep(One, tag="release", frozen=True):
    """Let the blocked handlers of an actor go on."""


class Owns(One, tag="owns", frozen=True):
    """Wait until the consumer owns ``queues`` queues."""

    queues: int
    deadline_ms: float = 600_000


class Sleep(Base, tag="sleep", frozen=True):
    ms: float


class Committed(Base, tag="committed", frozen=True):
    """Wait until the brokers have every message of the group's topics as done."""

    group: str
    deadline_ms: float = 600_000


class At(Base, tag="at", frozen=True):
    """Wait until the group's committed offset of this queue (``broker-a:0``) is exactly this one."""

    group: str
    queue: str
    offset: int
    topic: str = ""
    deadline_ms: float = 600_000


class CopiedStep(One, tag="copied", frozen=True):
    """Wait until this slave has the whole log of its master."""


class CallStep(One, tag="call", frozen=True):
    """Call a method of an actor's client: suspend, resume, unsubscribe, subscribe, seek, commit."""

    method: str
    arguments: dict[str, Any] = {}


class LinkStep(Base, frozen=True):
    """Something done to the link of two; either may be an actor or a server."""

    between: list[str]

    def names(self) -> list[str]:
        return self.between


class CutStep(LinkStep, tag="cut", frozen=True):
    """``mode`` reset: connections break and none comes up; silent: nothing arrives, in either direction;
    to, from: nothing arrives at, or from, the second of the two."""

    mode: str = "reset"


class Delay(LinkStep, tag="delay", frozen=True):
    """Everything on the link takes longer by this time. Not scaled."""

    ms: float


class Heal(LinkStep, tag="heal", frozen=True):
    """As before the cut or delay; connections that were cut stay broken."""


class FailpointStep(One, tag="failpoint", frozen=True):
    """Arm a named place of a process; ``terms`` off disarms it."""

    name: str
    terms: str


class DamageStep(One, tag="damage", frozen=True):
    """Harm a file of a stopped server: ``how`` truncate, empty, delete, garbage, flip (one written bit), tear (the last
    written bytes are 0, ``bytes`` of them)."""

    file: str
    how: str
    bytes: int = 64


class ClockStep(One, tag="clock", frozen=True):
    """The wall clock of a process jumps by this time (scaled)."""

    ms: float


class DiskStep(One, tag="disk", frozen=True):
    """The disk of a broker's store is so full, as it sees it; 0: as full as it is. Above 90 it refuses writes."""

    percent: int


class Isolate(One, tag="isolate", frozen=True):
    """Cut every link of an actor or server; ``mode`` as in ``cut``, where to and from are this one's."""

    mode: str = "reset"


class Rejoin(One, tag="rejoin", frozen=True):
    """Heal every link of an actor or server."""


class AdminCall(Base, tag="admin", frozen=True):
    """Call a method of the Admin client with arguments, as an operator does."""

    method: str
    arguments: dict[str, Any] = {}


Step = (
    Start
    | Close
    | Kill
    | Pause
    | Resume
    | Terminate
    | Restart
    | Send
    | SentStep
    | HandledStep
    | Entered
    | ReleaseStep
    | Owns
    | Sleep
    | Committed
    | At
    | CopiedStep
    | CallStep
    | CutStep
    | Delay
    | Heal
    | FailpointStep
    | DamageStep
    | ClockStep
    | DiskStep
    | Isolate
    | Rejoin
    | AdminCall
)
