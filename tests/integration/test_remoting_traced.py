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
