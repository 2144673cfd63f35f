"""Fields that every line of a journal has, and the lines that any process may write."""

import msgspec

SCHEMA_VERSION = 1


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="event", tag=str.upper, gc=False):
    """Base of all events; the tag is the class name in upper case. Fields with one name have one type everywhere."""

    v: int = 0
    role: str = ""
    process: str = ""
    boot_id: str = ""
    seq: int = 0
    wall_us: int = 0
    mono_us: int = 0


class State(Event, tag="STATE"):
    """A step of a process's life: ``started``, ``closing``, ``closed``, ``suspended``, ``resumed``."""

    state: str
    group: str = ""
    client_id: str = ""
    reason: str = ""


class Gap(Event, tag="GAP"):
    """The process did not run for this long (a watchdog on the loop saw it)."""

    missing_ms: int


class ClockJump(Event, tag="CLOCK"):
    """Since the line before this one, the time of day moved by this much more than time passed (less: below 0).

    The journal writes it itself, before the line that comes then: consequences of the jump have later lines. All
    ``wall_us`` of this process from here on are of the clock that jumped; ``mono_us`` are not.
    """

    jumped_ms: int


class Fault(Event, tag="FAULT"):
    """A test or demo struck a process: ``kind`` kill, pause, …"""

    kind: str
    target: str
    phase: str
    target_pid: int = 0
