"""Journal lines as the survey reads them: only the fields that decide whether a line matters."""

from collections.abc import Iterable, Iterator
from operator import attrgetter

import msgspec
import numpy as np
import pyarrow as pa
from dejamq_proto.journal.events import Append, Deliver, Sendback
from dejamq_proto.journal.lines import tag_of
from dejamq_proto.journal.readings import COLUMNS
from dejamq_proto.loose_json import BAD_JSON

from dejamq_analytics.rules import declared

OF_ALL_GROUPS = ("END_TRANSACTION", "CHECK_TRANSACTION", "APPEND", "STATE")
"""Events that an audit of one group reads for every group: the first two name a producer's group."""
PICKED = frozenset(declared.about_messages()) - {tag_of(Sendback)}
"""Events about messages of which the second reading picks lines. A message that was sent back always matters."""
ALWAYS = {tag_of(event): attrgetter(*COLUMNS[event].always) for event in (Append, Deliver)}
WHOLE = {tag_of(event): declared.always(event) for event in (Append, Deliver)}


class JournalLine(msgspec.Struct, gc=False):
    """Any event: the fields of several, and defaults where it has none."""

    event: str
    seq: int
    role: str = ""
    process: str = ""
    boot_id: str = ""
    wall_us: int = 0
    group: str = ""
    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0
    pq_id: int = 0
    kind: str = "first"
    delivery_ids: list[int] = []
    queue_offsets: list[int] = []
    log_offsets: list[int] = []
    unique_keys: list[str] = []
    business_keys: list[str] = []
    origin: str = ""
    origin_refs: list[str] = []
    topics: list[str] = []
    queue_ids: list[int] = []
    queue_index: list[int] = []
    client_boot_id: str = ""
    request_seq: int = 0
    outcome: str = "sent"
    mem_off: int = 0
    value: int = 0
    pq_dropped: bool = False
    old: int = 0
    new: int = 0
    by: str = ""
    code: int = 0
    count: int = 0
    request_offset: int = 0
    next_offset: int = 0
    start_offset: int = 0
    source: str = ""
    jumped_ms: int = 0
    broker_id: int = 0
    clean: bool = True
    log_max: int = 0
    log_offset: int = 0
    change: str = ""


Read = tuple[memoryview, JournalLine | None]


def read(data: memoryview, starts: Iterable[int], ends: Iterable[int]) -> Iterator[Read]:
    """The lines that stand there, each with its text, which is not copied. None for one that cannot be read."""
    decode = msgspec.json.Decoder(JournalLine).decode
    for begin, end in zip(starts, ends, strict=True):
        text = data[begin:end]
        try:
            yield text, decode(text)
        except BAD_JSON:
            yield text, None


def of_batch(batch: pa.RecordBatch) -> Iterator[tuple[Read, str]]:
    """The lines of a batch of the columns text and file, each with its file."""
    column = batch.column(0)
    if not len(column):
        return
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1].tolist()
    lines = read(memoryview(column.buffers()[2]), ends[:-1], ends[1:])
    yield from zip(lines, batch.column(1).to_pylist(), strict=True)


def concerns(line: JournalLine, group: str | None) -> bool:
    """Whether an audit of that consumer group alone reads the line."""
    if group is None or not line.group or line.group == group:
        return True
    return line.role == "producer" or line.event in OF_ALL_GROUPS


def whole(line: JournalLine) -> bool:
    """Of DELIVER and APPEND: what the first reading keeps as it is, because rules need it in any case."""
    return not _even(line) or any(always(line) for always in WHOLE[line.event])


def _even(line: JournalLine) -> bool:
    """Whether its arrays are of one length, as their writer leaves them."""
    size = len(line.unique_keys)
    even = size > 0 and {*map(len, ALWAYS[line.event](line))} == {size}
    return even and len(line.business_keys) in (0, size)
