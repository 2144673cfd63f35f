"""Runs of records with something wrong in them, and some without: what a broken or malicious producer may send."""

import random
import struct
import zlib
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from dejamq_proto.records.record import HEADER, MAGIC_BLANK, Record, body_crc, encode, encode_properties, tags_code
from dejamq_proto.wire.messages import SendRun

SYS_FLAGS = (1, 2, 4, 8, 12, 16, 32, 48, 0x100, 0x200, 0x300, -1, 0x7FFFFFFF)
NUMBERS = (0, 1, -1, 2, 90, 91, 92, 255, 256, 65_535, (1 << 31) - 1, -(1 << 31), 4 << 20)
BOMB = zlib.compress(bytes(1_000_000))
FORMATS = {4: ">i", 8: ">q"}
RARE = 0.002
PROPERTIES = (
    b"", b"\x01", b"\x02", b"\x01\x02\x01\x02", b"TAGS", b"TAGS\x01", b"\xff\xfe\x01\xff\x02", b"a\x01b\x02" * 5000,
    b"DELAY\x01-1\x02", b"DELAY\x0199999999999999999999\x02", b"DELAY\x01\xd9\xa3\x02", b"DELAY\x01x\x02",
    b"UNIQ_KEY\x01" + b"\xff" * 32 + b"\x02", b"UNIQ_KEY\x01" + b"0" * 3000 + b"\x02",
    b"KEYS\x01" + b"k " * 9000 + b"\x02",
    b"TRAN_MSG\x01true\x02PGROUP\x01x\x02", b"REAL_TOPIC\x01../../x\x02REAL_QID\x01-7\x02DELAY\x013\x02",
    b"REPLY_TO_CLIENT\x01c-0\x02CORRELATION_ID\x01\x00\x02", b"MAX_RECONSUME_TIMES\x01" + b"9" * 400 + b"\x02",
    b"WAIT\x01maybe\x02", b"CLUSTER\x01\x02", b"RETRY_TOPIC\x01%RETRY%x\x02", b"TIMER_DELAY_SEC\x01-1\x02",
    b"INNER_NUM\x019999999\x02", b"__STARTDELIVERTIME\x01999\x02",
)  # fmt: skip


def hostile_run(source: random.Random, seq: int, topic: str) -> bytes:
    """A frame of SendRun. A third of them are honest but for their topic and their properties."""
    records = [_record(source, topic, source.randrange(4)) for _ in range(source.choice((1, 1, 2, 5, 40)))]
    run = _announced(source, records, topic, seq)
    wrong = _large if source.random() < RARE else source.choice((*WAYS, _as_it_is, _as_it_is, _as_it_is))
    return wrong(source, run).encode()


def _record(source: random.Random, topic: str, queue_id: int) -> bytes:
    body = source.choice((b"x", b"x" * 1000, source.randbytes(50), BOMB, b"" if source.random() < RARE else b"y"))
    properties = source.choice((encode_properties({"UNIQ_KEY": f"{source.getrandbits(128):032X}"}), *PROPERTIES))
    record = Record(
        topic if len(topic.encode()) < 300 else "t-0", queue_id, body, properties[: (1 << 15) - 1],
        sys_flag=source.choice(SYS_FLAGS) & ~48 if source.random() < 0.05 else 0,
        reconsume_times=source.choice((0, 0, 0, 3, 17, -1, (1 << 31) - 1)),
        born_timestamp_ms=source.choice((0, -1, 1 << 62)),
    )  # fmt: skip
    raw = encode(record)
    return _patched(source, raw) if source.random() < 0.03 else raw


def _patched(source: random.Random, raw: bytes) -> bytes:
    """One field of the header says something else; half of the time with a CRC that is right again."""
    kind, at, *_ = source.choice(list((HEADER.fields or {}).values()))
    value = source.choice((*NUMBERS, MAGIC_BLANK, *SYS_FLAGS))
    field = struct.pack(FORMATS[kind.itemsize], value)
    changed = bytearray(raw)
    changed[at : at + kind.itemsize] = field
    if source.random() < 0.5:
        at = source.randrange(len(changed))
        changed[at] ^= 1 << source.randrange(8)
    return bytes(changed)


def _announced(source: random.Random, records: Sequence[bytes], topic: str, seq: int) -> SendRun:
    """As a producer announces them: one queue, or a queue for each record."""
    ids = [int.from_bytes(record[12:16], "big", signed=True) for record in records]
    queues = sorted(set(ids))
    index = [queues.index(each) for each in ids] if len(queues) > 1 else []
    codes = [tags_code("a")] * len(records) if source.random() < 0.1 else []
    return SendRun(
        client_id="c-0", boot_id="hostile", seq=seq, group="g-0", queues=[(topic, queue_id) for queue_id in queues],
        sizes=np.array([len(record) for record in records], "<u4"), queue_index=np.array(index, "<u4"),
        tags_codes=np.array(codes, "<i4"), records=records, rewrite=source.random() < 0.3,
        no_wait_store=source.random() < 0.5, reply=source.random() < 0.05,
        default_queue_nums=source.choice((0, 4, -1, (1 << 31) - 1)),
    )  # fmt: skip


def _as_it_is(source: random.Random, run: SendRun) -> SendRun:
    return run


def _other_sizes(source: random.Random, run: SendRun) -> SendRun:
    sizes = run.sizes.copy()
    sizes[source.randrange(len(sizes))] = source.choice((0, 1, 91, (1 << 32) - 1, 1 << 31, 5000))
    return msgspec.structs.replace(run, sizes=sizes)


def _many_sizes(source: random.Random, run: SendRun) -> SendRun:
    return msgspec.structs.replace(run, sizes=np.full(source.choice((0, 50_000)), 91, "<u4"))


def _other_queues(source: random.Random, run: SendRun) -> SendRun:
    number = source.choice((-1, -2, -(1 << 31), 4, 99, (1 << 31) - 1))
    names = source.choice(([], [run.queues[0][0]], ["", "t-0"], ["t-1"] * 2000, ["x\0y"], ["%RETRY%nobody"], [RETRIES]))
    return msgspec.structs.replace(run, queues=[(name, number) for name in names])


def _other_index(source: random.Random, run: SendRun) -> SendRun:
    return msgspec.structs.replace(
        run, queue_index=np.full(source.choice((1, len(run.sizes))), source.choice((0, 7)), "<u4")
    )


def _torn(source: random.Random, run: SendRun) -> SendRun:
    data = b"".join(run.records)
    return msgspec.structs.replace(run, records=[data[: source.randrange(len(data))]])


def _flipped(source: random.Random, run: SendRun) -> SendRun:
    data = bytearray(b"".join(run.records))
    for _ in range(source.choice((1, 1, 3, 20))):
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)
    return msgspec.structs.replace(run, records=[bytes(data)])


def _followed(source: random.Random, run: SendRun) -> SendRun:
    return msgspec.structs.replace(run, records=[*run.records, source.randbytes(source.choice((1, 8, 91, 4000)))])


def _zeros(source: random.Random, run: SendRun) -> SendRun:
    return msgspec.structs.replace(run, records=[bytes(int(run.sizes.sum()))])


def _large(source: random.Random, run: SendRun) -> SendRun:
    """A body over what the broker takes."""
    body = bytes(source.choice(((4 << 20) + 1, 5 << 20)))
    record = encode(Record("t-0", 0, body, body_crc=body_crc(body)))
    return msgspec.structs.replace(
        run, queues=[("t-0", 0)], sizes=np.array([len(record)], "<u4"), records=[record],
        queue_index=np.empty(0, "<u4"), tags_codes=np.empty(0, "<i4"),
    )  # fmt: skip


def _foreign_codes(source: random.Random, run: SendRun) -> SendRun:
    return msgspec.structs.replace(run, tags_codes=np.full(source.choice((1, len(run.sizes))), -(1 << 31), "<i4"))


RETRIES = "%RETRY%g-0"
WAYS: tuple[Callable[[random.Random, SendRun], SendRun], ...] = (
    _other_sizes, _many_sizes, _other_queues, _other_index, _torn, _flipped, _followed, _zeros, _foreign_codes,
    _other_sizes, _torn, _flipped,
)  # fmt: skip
