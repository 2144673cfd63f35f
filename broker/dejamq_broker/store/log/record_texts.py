"""Topics and tags of records that were read back from the log, for a whole run at once.

Most neighbouring records of the log look alike, so the work is a few comparisons of columns. Records that are not as
everybody writes them are looked at one by one.
"""

import re

import numpy as np
import numpy.typing as npt
from dejamq_proto.names import PROPERTY_TAGS
from dejamq_proto.records.record import tags_code
from dejamq_proto.records.run import Bytes, Run, every, properties_of, texts_at

from dejamq_broker.store.log.batch import Ints

COMPARED = 4
"""Up to this number, comparing columns distinguishes different texts.

Of more, each text is looked at: 0.3 µs each.
"""
WIDEST = 1024
"""Properties of more bytes than this are looked at one by one, so that one record cannot make the matrix huge."""

_TAGS_NAME = PROPERTY_TAGS.encode()
_TAGS_BEGIN = _TAGS_NAME + b"\x01"
_NAME_ENDS, _VALUE_ENDS = 1, 2
_VALUE = re.compile(rb"\x01([^\x02]*)")
_TAGS_VALUE = re.compile(rb"(?:^|(?<=\x02))TAGS\x01([^\x02]*)")


def windows(data: Bytes, at: Ints, width: int) -> npt.NDArray[np.uint8]:
    """The ``width`` bytes from each position on, a row each. They must be there."""
    return np.ndarray((len(data) - width + 1, width), np.uint8, buffer=data, strides=(1, 1))[at]


def distinct(data: Bytes, at: Ints, size: Ints) -> tuple[list[bytes], Ints]:
    """The different texts, and the number of each place's text among them."""
    if _all_alike(data, at, size):
        return [data[at[0] : at[0] + size[0]].tobytes()], np.zeros(len(at), np.int64)
    texts: list[bytes] = []
    which = np.zeros(len(at), np.int64)
    left = np.arange(len(at))
    while len(left) and len(texts) < COMPARED:
        start, width = int(at[left[0]]), int(size[left[0]])
        text = data[start : start + width]
        same = size[left] == width
        same[same] = (windows(data, at[left[same]], width) == text).all(axis=1)
        which[left[same]] = len(texts)
        texts.append(text.tobytes())
        left = left[~same]
    numbers = {text: number for number, text in enumerate(texts)}
    view, begins = data.data, at[left]
    ends = begins + size[left]
    which[left] = [
        numbers.setdefault(bytes(view[begin:end]), len(numbers))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    return list(numbers), which


def _all_alike(data: Bytes, at: Ints, size: Ints) -> bool:
    width = int(size[0]) if len(size) else 0
    if not width or not every(size == width):
        return False
    return texts_at(data, at, width) == data[at[0] : at[0] + width].tobytes() * len(at)


def topics_of(run: Run) -> tuple[list[bytes], Ints]:
    """The topics of a run, and the number of each record's topic among them."""
    return distinct(run.data, run.topic_at, run.topic_size)


def properties_rows(run: Run) -> npt.NDArray[np.uint8] | None:
    """The properties of each record, a row each; None where they are not all of one size, or of a very large one."""
    width = int(run.properties_size[0])
    if not 0 < width <= WIDEST or not every(run.properties_size == width):
        return None
    return windows(run.data, run.properties_at, width)


def tags_codes(run: Run) -> Ints:
    """The code that a queue entry keeps of each record's TAGS; 0 without them."""
    alike = _same_layout(run)
    if alike is not None:
        return alike
    codes = np.zeros(len(run), np.int64)
    fitting = run.properties_size <= WIDEST
    records = fitting.nonzero()[0]
    if len(records):
        found, at, size = _tags(run, records)
        texts, which = distinct(run.data, at, size)
        codes[found] = np.array([tags_code(text.decode("utf-8", "replace")) for text in texts], np.int64)[which]
        # of several TAGS the last one that is not empty counts
        fitting[found[1:][found[1:] == found[:-1]]] = False
    for number in (~fitting).nonzero()[0].tolist():
        codes[number] = tags_code(properties_of(run, number).get(PROPERTY_TAGS))
    return codes


def _same_layout(run: Run) -> Ints | None:
    """The tags codes where all properties have the names and the sizes of the first record's, as one producer writes
    them; None where they differ. Then only values are left to be compared, and of them only the values of TAGS. Where
    no TAGS are named, the names may differ.
    """
    rows = properties_rows(run)
    if rows is None:
        return None
    width, text = rows.shape[1], rows.tobytes()
    if _TAGS_BEGIN not in text:
        return np.zeros(len(run), np.int64)
    first = text[:width]
    compared = np.full(width, 0xFF, np.uint8)
    for value in _VALUE.finditer(first):
        compared[slice(*value.span(1))] = 0
    # as many ends as the first record has, where it has them: no value of another one hides a further name
    if np.count_nonzero(rows == _VALUE_ENDS) != len(rows) * first.count(_VALUE_ENDS):
        return None
    if ((rows ^ rows[0]) & compared).any():
        return None
    found = [match.span(1) for match in _TAGS_VALUE.finditer(first) if match.group(1)]
    if not found:
        return np.zeros(len(run), np.int64)
    begin, end = found[-1]
    texts, which = distinct(run.data, run.properties_at + begin, np.full(len(run), end - begin))
    return np.array([tags_code(text.decode("utf-8", "replace")) for text in texts], np.int64)[which]


def _tags(run: Run, records: Ints) -> tuple[Ints, Ints, Ints]:
    """Every TAGS in the properties of these records: the record, and where its value begins and its size."""
    sizes = run.properties_size[records]
    width = int(sizes.max())
    # the last rows begin earlier: there is nothing behind the run
    starts = np.minimum(run.properties_at[records], len(run.data) - width)
    rows = windows(run.data, starts, width).reshape(-1)
    begins = np.arange(len(records)) * width + run.properties_at[records] - starts
    opens = _names_ended(rows, _TAGS_NAME)
    row = opens // max(1, width)
    name_at = opens - len(_TAGS_NAME)
    inside = (name_at >= begins[row]) & (opens < begins[row] + sizes[row])
    opens, row, name_at = opens[inside], row[inside], name_at[inside]
    named = (name_at == begins[row]) | (rows[name_at - 1] == _VALUE_ENDS)
    opens, row = opens[named], row[named]
    closes = (rows == _VALUE_ENDS).nonzero()[0]
    ends = np.append(closes, len(rows))[np.searchsorted(closes, opens)]
    ends = np.minimum(ends, begins[row] + sizes[row])
    at = opens + 1 - row * width + starts[row]
    return records[row], at, ends - opens - 1


def _names_ended(rows: Bytes, name: bytes) -> Ints:
    """The positions of the ends of names that end like this one."""
    last = len(name)
    ends: Ints = ((rows[last:] == _NAME_ENDS) & (rows[last - 1 : -1] == name[-1])).nonzero()[0] + last
    for back in range(2, last + 1):
        ends = ends[rows[ends - back] == name[-back]]
    return ends
