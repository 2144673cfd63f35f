"""Runs: many records one after the other in one buffer, checked and filled together with numpy.

Producers send runs, the log stores them, pulls answer with them. The layout is ``record.py``'s, for records whose two
hosts are IPv4, as producers send them. A record with wide hosts is refused here and goes alone through
``record.decode``.
"""

import struct

import msgspec
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from dejamq_proto.native import crcs_fit, scan
from dejamq_proto.records.record import (
    HEADER,
    HEADER_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_SIZE,
    MAX_TOPIC_SIZE,
    MAX_TOPIC_SIZE_V1,
    OVERHEAD,
    SYS_BORN_HOST_V6,
    SYS_STORE_HOST_V6,
    decode_properties,
)

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

Host = tuple[int, int]
Stamp = tuple[int, int, int, int, int]
"""Values that the broker writes into all records of a run: born host (IPv4 as int, port), store time (ms), store
host.
"""

PLACE, STAMP = struct.Struct(">qq"), struct.Struct(">IiqIi")
_OFFSETS = {name: place[1] for name, place in (HEADER.fields or {}).items()}
PLACE_AT, STAMP_AT = _OFFSETS["queue_offset"], _OFFSETS["born_ip"]
BROKER_FIELDS = np.dtype({
    "names": ["queue_offset", "log_offset", "stamp"], "formats": [">i8", ">i8", f"V{STAMP.size}"],
    "offsets": [PLACE_AT, PLACE_AT + 8, STAMP_AT], "itemsize": HEADER_SIZE,
})  # fmt: skip
_HEADER_BYTES = np.dtype(f"V{HEADER_SIZE}")

WIDE_HOSTS = SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6

UNIQUE_KEY_TEXT = np.dtype([("name", "V9"), ("key", "V33")])
"""Properties that begin with a UNIQ_KEY of 32 digits and the end of it."""
UNIQUE_KEY_NAME, KEY_DIGITS, PROPERTY_END = b"UNIQ_KEY\x01", 32, b"\x02"


class BadRun(ValueError):
    """A record of the run is not fit to be stored: ``index`` says which, the text says why."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"record {index} of the run: {reason}")
        self.index, self.reason = index, reason


class Run(msgspec.Struct, frozen=True):
    """Where everything is in a checked run. All arrays have one element a record; positions count from the run's start.

    ``headers`` are copies: read from them, write with ``fill``.
    """

    data: Bytes
    sizes: Ints
    positions: Ints
    headers: npt.NDArray[np.void]
    topic_at: Ints
    topic_size: Ints
    properties_at: Ints
    properties_size: Ints

    def __len__(self) -> int:
        return len(self.sizes)


def parse(buffer: bytes | bytearray | memoryview | Bytes, announced: npt.NDArray[np.integer]) -> Run:
    """Check that the buffer is exactly records of these sizes. Raises BadRun for the first one that is not.

    Sizes, magic, lengths and host widths are checked; CRCs are not (``check_crcs``), topics are not (``check_topic``).
    """
    data = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    sizes: Ints = announced.astype(np.int64)
    found = scan(data, sizes)
    if found is not None:
        return _scanned(data, sizes, found)
    return _demanded(data, sizes)


def _scanned(data: Bytes, sizes: Ints, found: bytearray) -> Run:
    """Five columns and the headers, as ``_native.c`` has left them."""
    count = len(sizes)
    columns = np.frombuffer(found, np.int64, 5 * count).reshape(5, count)
    positions, topic_at, topic_size, properties_at, properties_size = columns
    headers = np.frombuffer(found, HEADER, count, columns.nbytes)
    return Run(data, sizes, positions, headers, topic_at, topic_size, properties_at, properties_size)


def _demanded(data: Bytes, sizes: Ints) -> Run:
    """Column by column, each rule with its words."""
    if not len(sizes):
        raise BadRun(0, "the run is empty")
    demand(sizes >= OVERHEAD, f"its size is under {OVERHEAD} bytes")
    ends = np.cumsum(sizes)
    positions = ends - sizes
    if ends[-1] != len(data):
        demand(ends <= len(data), "it ends beyond the run")
        raise BadRun(len(sizes) - 1, f"{len(data) - int(ends[-1])} bytes follow the last record")
    headers = _anywhere(data, _HEADER_BYTES)[positions].view(HEADER)
    demand(headers["total_size"] == sizes, "its size is not the one announced")
    magic = headers["magic"]
    narrow = every(magic == MAGIC_V1)
    wide: npt.NDArray[np.bool_] | int = 0 if narrow else magic == MAGIC_V2
    if not narrow:
        demand(wide | (magic == MAGIC_V1), "its magic is not that of a record")
    demand(headers["sys_flag"] & WIDE_HOSTS == 0, "runs carry no IPv6 hosts")
    body_size = headers["body_size"].astype(np.int64)
    demand((body_size >= 0) & (body_size <= sizes - OVERHEAD - wide), "its body length does not fit")
    topic_at = positions + body_size + (HEADER_SIZE + 1 + wide)
    topic_size = data[topic_at - 1].astype(np.int64)
    longest: Ints | int = MAX_TOPIC_SIZE_V1
    if not narrow:
        topic_size += np.where(wide, data[topic_at - 2].astype(np.int64) << 8, 0)
        longest = np.where(wide, MAX_TOPIC_SIZE, MAX_TOPIC_SIZE_V1)
    properties_at = topic_at + topic_size + 2
    demand(properties_at <= ends, "its topic length does not fit")
    demand(topic_size <= longest, "its topic is too long for its version")
    properties_size = (data[properties_at - 2].astype(np.int64) << 8) | data[properties_at - 1]
    demand(properties_at + properties_size == ends, "its properties length does not end where the record does")
    demand(properties_size <= MAX_PROPERTIES_SIZE, "its properties are too long")
    return Run(data, sizes, positions, headers, topic_at, topic_size, properties_at, properties_size)


def has_wide_hosts(data: Bytes, positions: Ints) -> npt.NDArray[np.bool_]:
    """Which of the records that begin at these positions have an IPv6 host: no run can hold them."""
    wide: npt.NDArray[np.bool_] = _anywhere(data, HEADER)["sys_flag"][positions] & WIDE_HOSTS != 0
    return wide


def check_crcs(run: Run) -> None:
    """Compare every body with its CRC. Raises BadRun. The one step here that costs time for each byte."""
    crc32, view = isal_zlib.crc32, run.data.data
    if crcs_fit(view, run.positions, crc32):
        return
    starts = (run.positions + HEADER_SIZE).tolist()
    ends = (run.topic_at - 1 - (run.headers["magic"] == MAGIC_V2)).tolist()
    crcs = np.array([crc32(view[start:end]) for start, end in zip(starts, ends, strict=True)], np.int64)
    demand((crcs & 0x7FFFFFFF) == run.headers["body_crc"], "its body does not match its CRC")


def check_topic(run: Run, topic: bytes) -> None:
    """Demand that all records are of this topic. Raises BadRun."""
    same = run.topic_size == len(topic)
    if every(same):
        texts = texts_at(run.data, run.topic_at, len(topic))
        if texts == topic * len(run):
            return
        same = np.array([texts.startswith(topic, at) for at in range(0, len(texts), len(topic))])
    raise BadRun(int(np.argmin(same)), f"its topic is not {topic.decode(errors='replace')!r}")


def texts_at(data: Bytes, at: Ints, size: int) -> bytes:
    """The texts of this size that begin at these positions, one after the other. They must be there."""
    return _anywhere(data, np.dtype(f"V{size}"))[at].tobytes()


def fill(target: Bytes, run: Run, queue_offsets: Ints, log_offsets: Ints, stamp: Stamp) -> None:
    """Write the broker's fields into ``target``, a copy of the run's bytes."""
    fields = _anywhere(target, BROKER_FIELDS)
    fields["queue_offset"][run.positions] = queue_offsets
    fields["log_offset"][run.positions] = log_offsets
    fields["stamp"][run.positions] = np.void(STAMP.pack(*stamp))


def fill_one(target: bytearray, at: int, place: Host, stamp: Stamp) -> None:
    """As ``fill``, of the one record that begins at ``at``. ``place`` is its queue offset and its log offset."""
    PLACE.pack_into(target, at + PLACE_AT, *place)
    STAMP.pack_into(target, at + STAMP_AT, *stamp)


def unique_keys(run: Run) -> list[str]:
    """Each record's UNIQ_KEY, '' without one. Fast when it comes first and has 32 digits, as our SDK sends it."""
    count = len(run)
    if every(run.properties_size >= UNIQUE_KEY_TEXT.itemsize):
        heads = _anywhere(run.data, UNIQUE_KEY_TEXT)[run.properties_at]
        if heads["name"].tobytes() == UNIQUE_KEY_NAME * count:
            keys = heads["key"].tobytes()
            if keys[KEY_DIGITS :: KEY_DIGITS + 1] == PROPERTY_END * count:
                texts = keys.decode("utf-8", "replace").split(PROPERTY_END.decode())
                if len(texts) == count + 1:
                    return texts[:-1]
    return [properties_of(run, index).get("UNIQ_KEY", "") for index in range(len(run))]


def properties_of(run: Run, index: int) -> dict[str, str]:
    return decode_properties(raw_properties(run, index))


def raw_properties(run: Run, index: int) -> bytes:
    start, size = int(run.properties_at[index]), int(run.properties_size[index])
    return run.data[start : start + size].tobytes()


def _anywhere(data: Bytes, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """The bytes as something that begins at any position: the header of the record at ``i`` is element ``i``."""
    return np.ndarray((len(data) - dtype.itemsize + 1,), dtype, buffer=data, strides=(1,))


def every(holds: npt.NDArray[np.bool_]) -> bool:
    """As ``holds.all()``, at a fifth of its price for up to a thousand records: a run asks some twenty times."""
    return b"\0" not in holds.tobytes()


def demand(holds: npt.NDArray[np.bool_], reason: str) -> None:
    """Raises BadRun for the first record that it does not hold for."""
    if not every(holds):
        raise BadRun(int(np.argmin(holds)), reason)
