"""Consumers of RocketMQ trace a message only with a region and the word that they may: whoever sent it."""

import pytest
from dejamq import Message
from dejamq_broker.doors.remoting.traceable import TRACEABLE, traceable
from dejamq_lab import Cluster
from dejamq_proto.records.record import MAX_PROPERTIES_SIZE, Record, decode_each, encode, encode_properties
from dejamq_proto.remoting import requests as r
from remoting_wire import a_pull, remoting


async def test_a_message_of_our_own_sdk_may_be_traced_by_whoever_pulls_it() -> None:
    async with Cluster(topics={"t": 1}) as cluster, cluster.producer("pg") as producer:
        sent = await producer.send(Message("t", b"body", keys="k", properties={"color": "red"}))
        async with remoting(cluster.broker("broker-a").address) as client:
            pulled = await client.ask(r.PULL_MESSAGE, **a_pull())
    (record,) = decode_each(pulled.body)
    assert (record.body, record.queue_offset) == (b"body", 0)
    assert record.properties == {"UNIQ_KEY": sent.message_id, "KEYS": "k", "color": "red"} | dict(TRACEABLE)


@pytest.mark.parametrize("host", ["10.0.0.1", "::1"])
def test_only_records_without_the_word_change_and_nothing_else_of_them_does(host: str) -> None:
    plain = Record(
        topic="t", queue_id=3, body=b"x", raw_properties=encode_properties({"KEYS": "k"}), queue_offset=7,
        log_offset=99, born_host=(host, 5), store_host=(host, 6), store_timestamp_ms=11, reconsume_times=2,
    )  # fmt: skip
    marked = Record(topic="t", queue_id=0, body=b"y", raw_properties=encode_properties({"TRACE_ON": "false"}))
    full = Record(topic="t", queue_id=0, body=b"z", raw_properties=b"a\x01" + b"b" * (MAX_PROPERTIES_SIZE - 2))
    changed, *others = decode_each(traceable(b"".join(map(encode, (plain, marked, full)))))
    assert others == [*decode_each(encode(marked) + encode(full))]
    (before,) = decode_each(encode(plain))
    assert changed.properties == dict(TRACEABLE) | {"KEYS": "k"}
    for name in set(Record.__struct_fields__) - {"raw_properties"}:
        assert getattr(changed, name) == getattr(before, name), name


@pytest.mark.parametrize("topic", ["t", "t" * 200], ids=["V1", "V2"])
def test_a_word_in_the_body_or_in_another_name_is_not_the_word(topic: str) -> None:
    properties = {"X_TRACE_ON": "true", "MSG_REGION": "here"}
    plain = Record(
        topic=topic, queue_id=0, body=b"TRACE_ON\x01true\x02", raw_properties=encode_properties(properties)
    )  # fmt: skip
    (changed,) = decode_each(traceable(encode(plain)))
    assert changed.properties == properties | {"TRACE_ON": "true"}


def test_a_damaged_record_goes_out_as_it_lies_with_all_behind_it() -> None:
    plain = encode(Record(topic="t", queue_id=0, body=b"x" * 20, raw_properties=b"a\x01b"))
    (first,) = decode_each(traceable(plain))
    for at, damage in ((0, b"\x7f"), (84, b"\x7f"), (0, b"\0\0\0\0"), (88 + 20, b"\xff")):
        damaged = plain[:at] + damage + plain[at + len(damage) :]
        assert traceable(plain + damaged + plain) == encode(first) + damaged + plain
    assert traceable(plain + plain[:50]) == encode(first) + plain[:50]
    assert traceable(b"") == b""
