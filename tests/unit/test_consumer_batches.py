"""However a pull's records are read, their messages say the same."""

import copy
import pickle
import random
import zlib
from typing import Any

import numpy as np
import pytest
from dejamq.receiving import received
from dejamq.receiving.batch import PullBatch, RunBatch
from dejamq.receiving.batch_kinds import FewBatch, WideBatch
from dejamq.receiving.received import ReceivedMessage, batch_of, receive
from dejamq.values.message import MessageQueue
from dejamq_proto.records import record, run
from dejamq_proto.records.record import Record, encode_properties
from dejamq_proto.wire.messages import PullAnswer

QUEUE = MessageQueue("orders", "broker-a", 3)
TEXTS: tuple[dict[str, str], ...] = (
    {},
    {"UNIQ_KEY": "7F000001" * 4},
    {"UNIQ_KEY": "short", "TAGS": "a"},
    {"TAGS": "b", "UNIQ_KEY": "A" * 32},
)


def some(chance: random.Random) -> list[bytes]:
    def one(offset: int) -> bytes:
        packed = chance.random() < 0.2
        body = chance.randbytes(chance.randrange(30))
        return record.encode(Record(
            "T" * chance.choice((1, 9, 127)), 3, zlib.compress(body) if packed else body,
            encode_properties(chance.choice(TEXTS)), chance.randrange(9), packed * (record.SYS_COMPRESSED | 3 << 8),
            offset, chance.randrange(1 << 40), chance.randrange(1 << 40), ("10.0.0.1", chance.randrange(1 << 16)),
            chance.randrange(1 << 40), ("10.0.0.2", 10911 + chance.randrange(2)), chance.choice((0, 0, 3)),
            chance.randrange(1 << 40),
        ))  # fmt: skip

    return [one(offset) for offset in range(chance.randrange(1, 9))]


def told(batch: PullBatch) -> list[Any]:
    """Everything that its messages say, also when each is by itself."""
    offsets = batch.column("queue_offset")
    messages = [ReceivedMessage(batch, index, offset) for index, offset in enumerate(offsets)]
    first, end = len(batch) // 3, len(batch)
    said: list[Any] = [bytes(batch.listed_keys(first, end)), bytes(batch.listed("log_offset", first, end))]
    said += [batch.unique_keys, batch.store_hosts, batch.retried, batch.body_sizes]
    for message in messages:
        said += [getattr(message, name) for name in dir(message) if not name.startswith("_") and name != "detach"]
        alone = message.detach()
        said += [alone.body, alone.properties, alone.log_offset, alone.store_host]
    return [one for one in said if not callable(one)]


def sizes_of(records: list[bytes]) -> "np.ndarray[Any, np.dtype[np.uint32]]":
    return np.array([len(one) for one in records], "<u4")


def test_a_few_records_say_what_they_say_in_a_long_run_and_decoded_one_by_one(chance: random.Random) -> None:
    for _ in range(100):
        records = some(chance)
        data, sizes, front = b"".join(records), sizes_of(records), b"front"
        few = batch_of(front + data, len(front), sizes, QUEUE, "b00")
        assert isinstance(few, FewBatch)
        many = RunBatch(run.parse(data, sizes), front + data, len(front), QUEUE, "b00")
        wide = WideBatch(list(map(record.decode, records)), QUEUE, "b00")
        assert told(few) == told(many) == told(wide)


@pytest.mark.slow
def test_of_damaged_records_nothing_is_received_that_a_long_run_would_refuse(
    monkeypatch: pytest.MonkeyPatch, chance: random.Random
) -> None:
    refused = 0
    for _ in range(1000):
        records = some(chance)
        data, sizes = bytearray(b"".join(records)), sizes_of(records)
        starts = [0, *np.cumsum(sizes).tolist()[:-1]]
        data[chance.choice(starts) + chance.randrange(91)] ^= 1 << chance.randrange(8)
        answer = PullAnswer(sizes=sizes, records=(bytes(data),))
        found: list[Any] = []
        for most in (0, received.MOST_FEW):
            monkeypatch.setattr(received, "MOST_FEW", most)
            try:
                found.append(told(receive(answer, QUEUE, "b00")[0]))
            except (run.BadRun, record.BadRecord):
                found.append(None)
        assert found[0] == found[1]
        refused += found[0] is None
    assert refused


def test_messages_of_a_frame_are_those_of_its_records_whether_or_not_they_are_its_end() -> None:
    records = some(random.Random(1))
    answer = PullAnswer(seq=7, next_offset=9, sizes=sizes_of(records), records=records)
    others: list[PullAnswer] = []
    alone = PullAnswer.decode(answer.encode())
    PullAnswer.decode(PullAnswer(seq=8, sizes=sizes_of(records), records=records).encode((answer,)), others)
    not_last = PullAnswer.decode(answer.encode() + b"\x20\x0a")
    assert alone.frame
    assert isinstance(others[0].frame, bytes)  # its own: it keeps nothing of the others
    assert not not_last.frame
    expected = told(receive(answer, QUEUE, "b00")[0])
    for read in (alone, *others, not_last):
        assert told(receive(read, QUEUE, "b00")[0]) == expected


@pytest.mark.parametrize("count", [1, 40])
def test_a_message_says_the_same_after_it_went_to_another_process(count: int) -> None:
    records = [each for _ in range(count) for each in some(random.Random(2))]
    frame = memoryview(bytearray(PullAnswer(sizes=sizes_of(records), records=records).encode()))
    _, messages = receive(PullAnswer.decode(frame), QUEUE, "b00")
    there = pickle.loads(pickle.dumps(messages))
    for copied, message in zip([*there, *copy.deepcopy(messages)], messages * 2, strict=True):
        assert (copied.body, copied.message_id, copied.properties) == (
            message.body,
            message.message_id,
            message.properties,
        )
        assert told(copied._batch)[:2] == told(message._batch)[:2]
