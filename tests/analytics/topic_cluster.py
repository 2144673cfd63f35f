"""A name server and a broker in this process, on a loop of their own: Spark calls block the thread of the test."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import StoreConfig
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.remoting import requests as r
from remoting_wire import a_send, remoting

Answer = TypeVar("Answer")
WAIT_S = 50
BROKER = "broker-a"
SMALL = StoreConfig(
    mapped_file_size_commit_log=64 << 10, mapped_file_size_consume_queue=1000, max_hash_slot_num=997,
    max_index_num=4000, disk_check_enable=False, file_reserved_time_hours=1, file_reserved_hour_ms=1,
    delete_when=f"{(time.localtime().tm_hour + 12) % 24:02}", clean_resource_interval_ms=10,
    clean_resource_delay_ms=1, disk_check_delay_ms=1, delete_commit_log_files_interval_ms=1,
    flush_consume_queue_thorough_interval_ms=100,
)  # fmt: skip
"""Messages expire at once, and are deleted on demand, but not before all queues are on disk."""


class Served(NamedTuple):
    """Servers that run, and a way into their loop."""

    namesrv: str
    address: str
    do: Callable[[Coroutine[Any, Any, Any]], Any]

    def send(self, topic: str, queue_id: int = 0, count: int = 1, body: bytes = b"x", **more: Any) -> None:
        """As RocketMQ's clients do; keywords are fields of SEND_MESSAGE_V2."""
        self.do(_send(self.address, topic, queue_id, count, body, more))

    def ask(self, request: Any, body: Any = b"", /, **ext: Any) -> Any:
        """The broker's answer."""
        return self.do(_ask(self.address, request, body, ext))

    def expire(self, topic: str) -> int:
        """Fill queue 0 up to 150 messages and more, and delete the oldest; where it begins then."""
        self.send(topic, count=150, body=b"." * 1000)
        deadline = time.monotonic() + WAIT_S
        while not (low := int(self.ask(r.GET_MIN_OFFSET, topic=topic, queueId=0).ext["offset"])):
            assert time.monotonic() < deadline, "nothing expires"
            self.ask(r.DELETE_EXPIRED_LOG)  # a broker gives up after some tries
            time.sleep(0.1)
        return low

    def topic(self, name: str, queues: int) -> None:
        """Make it, or give it more queues."""
        fields = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "perm": 6, "order": "false"}
        self.ask(
            r.UPDATE_TOPIC, topic=name, readQueueNums=queues, writeQueueNums=queues, topicSysFlag=0, **fields
        )  # fmt: skip


@contextmanager
def served(directory: Path) -> Iterator[Served]:
    """Ready inside of the ``with``."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="servers")
    thread.start()

    def do(work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, loop).result(WAIT_S)

    try:
        namesrv, broker = do(_start(directory))
        try:
            yield Served(namesrv.address, broker.address, do)
        finally:
            do(_close(namesrv, broker))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


async def _start(directory: Path) -> tuple[NameServer, Broker]:
    namesrv = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    address = await namesrv.start()
    broker = Broker(BrokerConfig(
        listen="127.0.0.1:0", namesrv=address, broker_name=BROKER, store_directory=str(directory), store=SMALL,
        broker_fast_failure_enable=False,
    ))  # fmt: skip
    await broker.start()
    return namesrv, broker


async def _close(namesrv: NameServer, broker: Broker) -> None:
    await broker.close()
    await namesrv.close()


async def _send(address: str, topic: str, queue_id: int, count: int, body: bytes, more: dict[str, Any]) -> None:
    async with remoting(address) as client:
        for _ in range(count):
            answer = await client.ask(r.SEND_MESSAGE_V2, body, **a_send(topic, queue_id, **more))
            assert answer.code == 0, answer.remark


async def _ask(address: str, request: Any, body: Any, ext: dict[str, Any]) -> Any:
    async with remoting(address) as client:
        answer = await client.ask(request, body, **ext)
        assert answer.code == 0, answer.remark
        return answer
