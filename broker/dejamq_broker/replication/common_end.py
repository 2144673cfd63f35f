"""The place where a slave begins to follow: the common part of its log and its master's, found before anything is
copied.

Two logs of one broker name are the same up to some record, and have nothing in common behind it. Each record says where
it stands, when it was stored and which message it is. So equal bytes near the end mean equal bytes before, as long as
they hold a whole record. A difference near the end is searched backwards. RocketMQ compares nothing: a slave goes on at
its own end, whatever stands before it there.
"""

from collections.abc import Awaitable, Callable

import msgspec

COMPARED = 8 << 20
"""More than two of the largest usual records: at any place, these bytes hold a whole one."""
MOST = 16 << 20
"""The most bytes that are compared at once."""

Equal = Callable[[int, int], Awaitable[bool]]
"""Whether both logs have the same bytes between two log offsets."""


class LogExtent(msgspec.Struct, frozen=True):
    """The start and end of a log; ``file_size`` is the size of each of its files."""

    min_offset: int
    max_offset: int
    file_size: int

    @property
    def empty(self) -> bool:
        return self.min_offset == self.max_offset


class Apart(Exception):
    """The slave cannot follow this master; the text says why and what to do."""


def first_offset(theirs: LogExtent, *, full: bool) -> int:
    """Where an empty log begins to copy: at the master's last file, as in RocketMQ, or at its first."""
    if full:
        return theirs.min_offset
    return max(theirs.min_offset, theirs.max_offset - theirs.max_offset % theirs.file_size)


def check_extents(mine: LogExtent, theirs: LogExtent) -> None:
    """Raise Apart where no comparison is needed to see that one log cannot go on from the other."""
    if mine.file_size != theirs.file_size:
        raise Apart(
            f"log files have {mine.file_size} bytes here and {theirs.file_size} at the master: "
            "set mapped_file_size_commit_log to the master's"
        )
    if mine.empty:
        return
    if mine.max_offset < theirs.min_offset:
        raise Apart(
            f"the master has deleted what follows {mine.max_offset}, its log begins at {theirs.min_offset}: "
            "empty this slave's store directory to begin anew"
        )
    if theirs.max_offset <= mine.min_offset:
        raise Apart(
            f"the master's log ends at {theirs.max_offset}, and this one begins at {mine.min_offset}: nothing is in "
            "common; start this broker as master to keep what it has, or empty its store directory to lose it"
        )


async def common_end(mine: LogExtent, theirs: LogExtent, equal: Equal) -> int:
    """The log offset up to which two logs that overlap are the same; it may be inside a record of both."""
    low, high = max(mine.min_offset, theirs.min_offset), min(mine.max_offset, theirs.max_offset)
    begin, step = max(low, high - COMPARED), COMPARED
    if begin >= high or await equal(begin, high):
        return high
    while begin > low:
        before = max(low, begin - step)
        if await equal(before, begin):
            break
        begin, high, step = before, begin, min(2 * step, MOST)
    # the first difference is between begin and high
    while high - begin > 1:
        middle = (begin + high) // 2
        if await equal(begin, middle):
            begin = middle
        else:
            high = middle
    return begin
