"""A real RocketMQ opens a store of ours with popped messages, revives those that nobody acknowledged, and no others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from dejamq import ConsumeFrom, Message, Producer, ReceivedMessage, SimpleConsumer
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import StoreConfig
from dejamq_lab.machines.rocketmq import RocketMQ
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from java_clients import jars_of

pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(400)]
INVISIBLE_MS = 12_000
RETRY = "%RETRY%g_orders"
SETTINGS = {
    "mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 60_000, "maxHashSlotNum": 4_999,
    "maxIndexNum": 20_000, "timerWheelEnable": "true",
}  # fmt: skip
STORE = StoreConfig(
    mapped_file_size_commit_log=64 << 20, mapped_file_size_consume_queue=60_000, max_hash_slot_num=4_999,
    max_index_num=20_000, disk_check_enable=False,
)  # fmt: skip


@asynccontextmanager
async def ours(store: Path) -> AsyncIterator[str]:
    """A name server and a broker of ours on this store."""
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    address = await server.start()
    broker = Broker(BrokerConfig(listen="127.0.0.1:0", namesrv=address, store_directory=str(store), store=STORE))
    await broker.start()
    try:
        yield address
    finally:
        await broker.close()
        await server.close()


def consumer(namesrv: str) -> SimpleConsumer:
    made = SimpleConsumer("g", namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET)
    made.subscribe("orders")
    return made


def entries(store: Path) -> int:
    """Messages in the group's retry topic, by the file of its queue."""
    files = sorted((store / "consumequeue" / RETRY / "0").glob("*"))
    return sum(int((np.fromfile(path, ">i8,>i4,>i8")["f1"] > 0).sum()) for path in files)


async def test_what_is_in_flight_in_our_store_is_revived_by_a_real_rocketmq_and_received_here_again(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    async with ours(store) as namesrv:
        async with Producer("p", namesrv=namesrv) as producer:
            for number in range(6):
                await producer.send(Message("orders", b"%d" % number))
        async with consumer(namesrv) as first:
            given: dict[bytes, ReceivedMessage] = {}
            while len(given) < 6:
                given |= {message.body: message for message in await first.receive(invisible_ms=INVISIBLE_MS)}
            await first.ack(given[b"0"], given[b"1"])
            await first.change_invisible(given[b"2"], INVISIBLE_MS)
            await first.change_invisible(given[b"3"], INVISIBLE_MS)
            await first.ack(given[b"3"])
    with RocketMQ(jars_of("5.3.3"), store, tmp_path / "work", SETTINGS) as real:
        async with asyncio.timeout(150):
            while await asyncio.to_thread(entries, store) < 3:
                await asyncio.sleep(0.5)
        await asyncio.sleep(5)  # it would revive more in its next rounds
        assert await asyncio.to_thread(entries, store) == 3
        await asyncio.to_thread(real.stop)
    async with ours(store) as namesrv, consumer(namesrv) as second:
        again: list[ReceivedMessage] = []
        while len(again) < 3:
            again += await second.receive(invisible_ms=60_000)
        assert sorted((message.body, message.reconsume_times) for message in again) == [
            (b"2", 1), (b"4", 1), (b"5", 1),
        ]  # fmt: skip
        await second.ack(*again)
        assert await second.receive(timeout_ms=1_000) == []
