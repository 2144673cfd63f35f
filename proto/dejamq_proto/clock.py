"""The time of day as a process believes it, and the clock that it counts ages by.

RocketMQ counts all ages by the time of day: how long a lock is held, a member silent, a handler running. A time of day
that jumps therefore ends locks and memberships that nobody gave up (cause R12); ``age_clock = monotonic`` keeps them.
The jump itself can be had on purpose: ``clock=+MS`` among the failpoints of a process.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from dejamq_proto import failpoints
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import setting

WALL, MONOTONIC = "wall", "monotonic"


@dataclass(frozen=True, kw_only=True)
class ClockSettings:
    """A part of the settings of brokers and clients."""

    age_clock: str = setting(
        WALL, help="what ages are counted by: wall, the time of day, as in RocketMQ; monotonic, which never jumps"
    )

    def validate_clock(self) -> None:
        """Raises ConfigError."""
        if self.age_clock not in (WALL, MONOTONIC):
            raise ConfigError(f"age_clock is {WALL} or {MONOTONIC}, not {self.age_clock!r}")


class Clock:
    """Both clocks of one process, in seconds since 1970; calling them is as cheap as ``time.time`` where nothing is
    armed. Any thread.
    """

    def __init__(self, ages: str = WALL) -> None:
        armed = failpoints.here() if failpoints.ARMED else None
        self.wall_s: Callable[[], float] = (
            time.time if armed is None else lambda: time.time() + armed.number(failpoints.CLOCK) / 1000
        )
        self.age_s = steady() if ages == MONOTONIC else self.wall_s
        """The clock by which ages are counted."""

    def wall_ms(self) -> int:
        """The time of day."""
        return int(self.wall_s() * 1000)

    def age_ms(self) -> int:
        """As ``age_s``."""
        return int(self.age_s() * 1000)


class ClocksMs(msgspec.Struct, frozen=True):
    """Both clocks in milliseconds, as a server's parts are given them; tests put others in."""

    wall_ms: Callable[[], int]
    age_ms: Callable[[], int]


def steady() -> Callable[[], float]:
    """A clock that shows the time of day of this moment and goes on from there, whatever becomes of that."""
    began_s = time.time() - time.monotonic()
    return lambda: began_s + time.monotonic()
