import zlib
from typing import Any

import numpy as np
import pytest
from dejamq.receiving.received import ReceivedMessage, receive
from dejamq.values.message import MessageQueue
from dejamq_proto.records import record, run
from dejamq_proto.records.hosts import offset_message_id
from dejamq_proto.records.record import Outgoing, Record, encode_properties
from dejamq_proto.wire.messages import PullAnswer

QUEUE = MessageQueue("orders", "broker-a", 3)
RETRY = MessageQueue("%RETRY%g", "broker-a", 0)


def answer(*records: Record) -> PullAnswer:
    raw = [record.encode(one) for one in records]
    return PullAnswer(sizes=np.array([len(one) for one in raw], "<u4"), records=(memoryview(b"".join(raw)),))


def stored(body: bytes = b"paid", offset: int = 7, topic: str = "orders", **fields: Any) -> Record:
    properties = fields.pop("properties", {"UNIQ_KEY": "A" * 32, "TAGS": "t", "KEYS": "k1 k2", "colour": "blue"})
    values: dict[str, Any] = {
        "queue_id": 3, "flag": 9, "queue_offset": offset, "log_offset": 4096, "born_timestamp_ms": 111,
        "born_host": ("10.0.0.1", 5000), "store_timestamp_ms": 222, "store_host": ("10.0.0.2", 10911),
        "reconsume_times": 2, "prepared_transaction_offset": 5,
    } | fields  # fmt: skip
    return Record(topic=topic, body=body, raw_properties=encode_properties(properties), **values)


def received(*records: Record, queue: MessageQueue = QUEUE) -> list[ReceivedMessage]:
    return receive(answer(*records), queue, "boot")[1]


def test_a_message_shows_everything_that_was_stored() -> None:
    (message,) = received(stored())
    assert (message.topic, message.body, message.tags, message.keys) == ("orders", b"paid", "t", ["k1", "k2"])
    assert message.properties["colour"] == "blue"
    assert message.message_id == "A" * 32
    assert message.offset_message_id == offset_message_id(("10.0.0.2", 10911), 4096)
    assert (message.queue, message.queue_offset, message.log_offset) == (QUEUE, 7, 4096)
    assert (message.flag, message.sys_flag, message.reconsume_times) == (9, 0, 2)
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (111, 222)
    assert (message.born_host, message.store_host) == ("10.0.0.1:5000", "10.0.0.2:10911")
    assert message.prepared_transaction_offset == 5
    assert message.body_crc == record.body_crc(b"paid")
    assert message.store_size == len(record.encode(stored()))


def test_a_delivery_is_named_by_client_start_and_number() -> None:
    (message,) = received(stored())
    message.delivery_number = 12
    assert message.delivery_id == "boot-12"


def test_a_retried_message_shows_its_first_topic_and_the_queue_it_came_from() -> None:
    properties = {"UNIQ_KEY": "A" * 32, "RETRY_TOPIC": "orders"}
    (message,) = received(stored(topic="%RETRY%g", properties=properties), queue=RETRY)
    assert (message.topic, message.queue) == ("orders", RETRY)


def test_without_a_client_made_id_the_broker_made_one_serves() -> None:
    (message,) = received(stored(properties={}))
    assert message.message_id == message.offset_message_id
    assert (message.tags, message.keys) == (None, [])


def test_messages_of_different_sizes_come_from_one_run() -> None:
    messages = received(*(stored(body=b"x" * number, offset=number) for number in range(1, 50)))
    assert [(len(message.body), message.queue_offset) for message in messages] == [(n, n) for n in range(1, 50)]


def test_a_compressed_body_is_unpacked() -> None:
    (message,) = received(stored(body=zlib.compress(b"long text" * 50), sys_flag=record.SYS_COMPRESSED | 3 << 8))
    assert message.body == b"long text" * 50


@pytest.mark.parametrize("sys_flag", [record.SYS_COMPRESSED | 3 << 8, record.SYS_COMPRESSED | 1 << 8])
def test_a_body_that_cannot_be_unpacked_is_handed_over_as_stored(sys_flag: int) -> None:
    (message,) = received(stored(body=b"no zlib", sys_flag=sys_flag))
    assert (message.body, message.sys_flag) == (b"no zlib", sys_flag)


@pytest.mark.parametrize("host", [("10.0.0.1", 10911), ("::1", 10911)])
def test_a_compressed_body_counts_with_the_bytes_that_it_takes_in_memory(host: tuple[str, int]) -> None:
    """Flow control by size would let far more in than its limit otherwise."""
    packed = stored(body=zlib.compress(b"long text" * 50), sys_flag=record.SYS_COMPRESSED | 3 << 8, store_host=host)
    batch, messages = receive(answer(packed, stored(b"plain", store_host=host)), QUEUE, "b00")
    assert batch.body_sizes == [450, 5] == [len(message.body) for message in messages]


def test_detach_keeps_the_record_and_lets_go_of_the_run() -> None:
    messages = received(stored(body=b"one"), stored(body=b"two", offset=8))
    kept = messages[1].detach()
    assert len(kept._batch) == 1
    assert (kept.body, kept.queue_offset, kept.log_offset, kept.tags) == (b"two", 8, 4096, "t")


def test_records_with_ipv6_hosts_are_decoded_one_by_one() -> None:
    first, second = received(stored(body=b"one"), stored(body=b"two", offset=8, store_host=("2001:db8::1", 10911)))
    assert (first.body, first.store_host) == (b"one", "10.0.0.2:10911")
    assert (second.body, second.store_host, second.queue_offset) == (b"two", "[2001:db8::1]:10911", 8)
    assert second.store_size == len(record.encode(stored(body=b"two", offset=8, store_host=("2001:db8::1", 10911))))
    assert second.detach().message_id == "A" * 32


def test_bytes_that_are_no_records_are_refused_at_receipt() -> None:
    good = answer(stored())
    with pytest.raises((run.BadRun, record.BadRecord)):
        receive(PullAnswer(sizes=good.sizes, records=(bytes(len(bytes(good.records[0]))),)), QUEUE, "boot")
    with pytest.raises(run.BadRun):
        receive(PullAnswer(sizes=good.sizes, records=(bytes(good.records[0]) + b"x",)), QUEUE, "boot")


def test_no_attribute_raises_on_odd_texts() -> None:
    template = Outgoing.to("orders")
    raw = template.encode(0, 1, b"", b"\xff\xfe\x01\xff\x02nonsense\x02UNIQ_KEY\x01\xff")
    (message,) = receive(PullAnswer(sizes=np.array([len(raw)], "<u4"), records=(raw,)), QUEUE, "boot")[1]
    for name in dir(message):
        getattr(message, name)
    assert "ReceivedMessage" in repr(message)
