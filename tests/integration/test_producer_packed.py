"""Packed bodies all the way: a producer packs them, a real broker stores them as they are, a consumer unpacks them."""

from pathlib import Path

import pytest
from consumer_cluster import servers, until
from dejamq import ConsumeFrom, ConsumeStatus, Message, ReceivedMessage
from dejamq_proto.records.compression import Compression

BODY = b"nine bytes" * 2_000


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
async def test_a_packed_body_arrives_as_it_was_at_once_delayed_and_tried_again(tmp_path: Path, kind: str) -> None:
    seen: list[ReceivedMessage] = []
    async with servers(tmp_path) as site:
        async with site.producer(compress_type=kind) as producer:
            await producer.send(Message("orders", BODY, tags="plain"))
            await producer.send(Message("orders", BODY, tags="delayed", delay_level=1))
            await producer.send_batch([Message("orders", BODY, tags="batch")] * 2)

        async def fail_once(message: ReceivedMessage) -> ConsumeStatus:
            seen.append(message)
            again = message.tags == "plain" and message.reconsume_times == 0
            return ConsumeStatus.RECONSUME_LATER if again else ConsumeStatus.SUCCESS

        async with site.consumer(consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
            consumer.subscribe("orders", fail_once)
            await until(lambda: len(seen) == 5)
    assert {message.body for message in seen} == {BODY}
    packed = {(message.tags, message.reconsume_times): message.sys_flag for message in seen}
    flag = Compression[kind.upper()].sys_flag
    assert packed == {("plain", 0): flag, ("plain", 1): flag, ("delayed", 0): flag, ("batch", 0): 0}
    assert max(message.store_size for message in seen if message.tags != "batch") < 2_000
