"""A store that dejamq wrote: by a real broker of its own process for real clients, and what it says is in it."""

import asyncio
import random
import time
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dejamq import ConsumeFrom, ConsumeStatus, Message, MessageQueue, Producer, ReceivedMessage
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_broker.store.dump import describe
from dejamq_broker.store.index.query import KeyQuery
from dejamq_lab import Cluster
from dejamq_proto.records.compression import Compression, compress
from dejamq_proto.records.record import (
    SYS_COMPRESSED,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    Record,
    decode,
    encode_properties,
)

LONG_TOPIC = "%RETRY%" + "g" * 140
"""Too long for a V1 record."""
TOPICS = {"Orders": 4, "Big": 2, "Late": 1, "Soon": 1, "FromRocketMQ": 2, LONG_TOPIC: 1, "Odd": 1}
GROUP = "Billing"
TAGS = (None, "TagA", "TagB", "订单", "Aa", "BB")
FOREVER, SOON = 18, 2
"""Delay levels: two hours, and five seconds, which pass while RocketMQ runs."""

SMALL = {
    "mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 1000, "maxHashSlotNum": 97, "maxIndexNum": 300,
}  # fmt: skip


def known_sizes() -> dict[str, int]:
    """The small file sizes, in RocketMQ's spelling, that this dejamq has a setting for."""
    known = {field.metadata.get("rocketmq") for field in fields(StoreConfig)}
    return {name: size for name, size in SMALL.items() if name in known}


def small_config() -> StoreConfig:
    names = {field.metadata.get("rocketmq"): field.name for field in fields(StoreConfig)}
    small: dict[str, Any] = {names[name]: size for name, size in known_sizes().items()}
    return StoreConfig(**small)


def cluster_in(directory: Path) -> Cluster:
    return Cluster(processes=True, directory=directory, settings=known_sizes(), topics=TOPICS)


def store_of(directory: Path) -> Path:
    return directory / "broker-a" / "store"


async def fill(cluster: Cluster, seed: int, first: int, count: int) -> None:
    """Messages of every kind a client can send, some of them consumed, some sent back."""
    chance = random.Random(seed)
    async with cluster.producer("Writer") as producer:
        for number in range(first, first + count):
            await producer.send(order(number, chance), queue=MessageQueue("Orders", "broker-a", number % 4))
        together = [Message("Orders", f"together-{first}-{number}".encode()) for number in range(20)]
        await asyncio.gather(*(producer.send(message) for message in together))
        await _send_special(producer, first)
    await _consume_some(cluster)


def order(number: int, chance: random.Random) -> Message:
    keys = [[], [f"order-{number}"], [f"order-{number}", f"customer-{number % 7}"], ["Aa"], ["BB"]][number % 5]
    properties = {"shop": "Zürich", "n": str(number)} if number % 3 else {}
    body = chance.randbytes(chance.choice((0, 1, 200, 2000, 5000)) + 1)
    return Message("Orders", body, tags=TAGS[number % 6], keys=keys, properties=properties, flag=number % 4)


async def _send_special(producer: Producer, first: int) -> None:
    for number in range(first, first + 5):
        await producer.send(Message("Big", bytes([number % 256]) * 30_000, keys=[f"big-{number}"]))
        await producer.send(Message("Late", f"late-{number}".encode(), delay_level=FOREVER, tags="TagA"))
        await producer.send(Message("Soon", f"soon-{number}".encode(), delay_level=SOON, keys=[f"soon-{number}"]))


async def _consume_some(cluster: Cluster) -> None:
    """A group commits offsets and sends every tenth message back: retry topic, delayed records, progress."""
    seen = 0

    async def charge(message: ReceivedMessage) -> ConsumeStatus:
        nonlocal seen
        seen += 1
        declined = message.queue_offset % 10 == 3 and not message.reconsume_times
        return ConsumeStatus.RECONSUME_LATER if declined else ConsumeStatus.SUCCESS

    consumer = cluster.push_consumer(GROUP, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("Orders", charge)
    async with consumer:
        async with asyncio.timeout(30):
            while seen < 60:
                await asyncio.sleep(0.05)


def add_odd_records(store: Path) -> None:
    """What this dejamq's clients do not send yet, put in by the store itself: V2, IPv6, compressed, transactions."""
    unique = iter(range(1000))

    def properties(**more: str) -> bytes:
        return encode_properties({"UNIQ_KEY": f"{next(unique):032X}", **more})

    body = b"text that zlib makes shorter " * 100
    v4, v6 = ("127.0.0.1", 10_911), ("::1", 10_911)
    odd = [
        Record("Odd", 0, b"plain", properties(KEYS="odd-1 odd-2", TAGS="Odd"), born_host=v4, store_host=v4),
        Record("Odd", 0, zlib.compress(body), properties(), sys_flag=SYS_COMPRESSED, born_host=v4, store_host=v4),
        *(
            Record("Odd", 0, compress(body, kind, 5), properties(), sys_flag=kind.sys_flag, born_host=v4, store_host=v4)
            for kind in (Compression.LZ4, Compression.ZSTD, Compression.ZLIB)
        ),
        Record("Odd", 0, b"six", properties(TAGS="Six"), born_host=v6, store_host=v6),
        Record("Odd", 0, b"born on six", properties(), born_host=v6, store_host=v4),
        Record("Odd", 0, b"p", properties(), sys_flag=SYS_TRANSACTION_PREPARED, born_host=v4, store_host=v4),
        Record("Odd", 0, b"r", properties(), sys_flag=SYS_TRANSACTION_ROLLBACK, born_host=v4, store_host=v4),
        Record("Odd", 0, b"", properties(KEYS="odd-1"), flag=-1, reconsume_times=3, born_host=v4, store_host=v4),
        Record(LONG_TOPIC, 0, b"v2", properties(KEYS="v2"), born_host=v4, store_host=v4),
    ]
    opened = MessageStore.open(store, small_config(), clock_ms=now_ms)
    try:
        for record in odd * 3:
            opened.put(record)
    finally:
        opened.close()


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Said:
    """What dejamq says is in a store, by (topic, queue id)."""

    bounds: dict[tuple[str, int], tuple[int, int]]
    records: dict[tuple[str, int], list[dict[str, Any]]]
    searches: list[tuple[str, int, int, int]]
    """Topic, queue id, time (ms), queue offset."""
    queries: dict[tuple[str, str], list[int]]
    """Topic and key -> log offsets, from the records themselves and not from an index."""
    found: dict[tuple[str, str], list[int]]
    """The same, as dejamq's index answers."""
    log_end: int


def said_of(store: Path) -> Said:
    """Opens the store as a broker does, which repairs what a kill has left; use a copy."""
    opened = MessageStore.open(store, small_config(), clock_ms=now_ms)
    try:
        keys = sorted(opened.queues())
        bounds = {key: (opened.min_offset(*key), opened.max_offset(*key)) for key in keys}
        records = {key: _records(opened, *key) for key in keys}
        searches = [
            (*key, time_ms, opened.search_offset(*key, time_ms)) for key in keys for time_ms in _times(records[key])
        ]
        queries = _queries(records)
        found = {key: _found(opened, *key) for key in queries}
        return Said(bounds, records, searches, queries, found, opened.log_max)
    finally:
        opened.close()


def _records(store: MessageStore, topic: str, queue_id: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    at = store.min_offset(topic, queue_id)
    while at < store.max_offset(topic, queue_id):
        result = store.read(topic, queue_id, at, max_messages=100, max_bytes=1 << 20)
        place = 0
        for size in result.sizes:
            found.append(describe(decode(result.records, place)))
            place += size
        at = result.next_offset
    return found


def _found(store: MessageStore, topic: str, key: str) -> list[int]:
    records = [decode(raw) for raw in store.query(KeyQuery(topic, key, max_messages=64)).records]
    return sorted(record.log_offset for record in records)


def _times(records: list[dict[str, Any]]) -> list[int]:
    """Before, at, between and after: ties and both ends are among them."""
    times = sorted({record["store_timestamp"] for record in records})
    return [
        time_ms + step for time_ms in {*times[:2], *times[len(times) // 2 :][:2], *times[-2:]} for step in (-1, 0, 1)
    ]


def _queries(records: dict[tuple[str, int], list[dict[str, Any]]]) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for (topic, _), of_queue in records.items():
        for record in of_queue:
            for key in (record["keys"] or "").split():
                found.setdefault((topic, key), []).append(record["log_offset"])
    return {key: sorted(set(offsets)) for key, offsets in found.items()}
