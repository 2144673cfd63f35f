"""The report of one task of the first reading to the driver: counts and extents, no messages."""

from collections.abc import Iterable

import msgspec

from dejamq_analytics.survey import places
from dejamq_analytics.survey.order import QueuePiece
from dejamq_analytics.survey.places import Block, Blocks


class LineExtent(msgspec.Struct, gc=False):
    """Lines of one start of a process that stand together, between two jumps of its clock."""

    boot_id: str
    role: str
    process: str
    first_seq: int
    last_seq: int
    first_wall_us: int
    last_wall_us: int
    lines: int = 1


class Opening(msgspec.Struct, frozen=True):
    """A queue that a member opened."""

    group: str
    broker_name: str
    topic: str
    queue_id: int
    start_offset: int
    own: bool


class LogEnd(msgspec.Struct, frozen=True):
    """A broker that went on where its log ended, after a crash or as a slave that was made the master."""

    broker_name: str
    boot_id: str
    log_offset: int
    wall_us: int


class Note(msgspec.Struct):
    """``counts``: deliveries by group. ``queues``: broker, topic and queue id of each place that was delivered from;
    ``uncounted``: topics of which some delivery is in no block. ``marks``: the highest low-water mark of each process
    queue. ``asked``: delivery ids by boot id. ``filtered``: (group, topic). ``stored``: broker, boot id, the highest
    log offset that it journalled and when it began to. ``jumps``: (boot id, seq, ms).
    """

    extents: list[LineExtent] = []
    counts: dict[str, int] = {}
    queues: dict[str, tuple[str, str, int]] = {}
    uncounted: set[str] = set()
    blocks: list[tuple[str, str, list[tuple[int, Block]]]] = []
    pieces: list[QueuePiece] = []
    openings: list[Opening] = []
    filtered: list[tuple[str, str]] = []
    marks: list[tuple[str, int, int]] = []
    asked: dict[str, list[int]] = {}
    ends: list[LogEnd] = []
    stored: list[tuple[str, str, int, int]] = []
    jumps: list[tuple[str, int, int]] = []


def blocks_of(notes: Iterable[Note]) -> Blocks:
    """Those of all tasks as one."""
    return places.merged({(place, side): dict(each) for place, side, each in note.blocks} for note in notes)
