"""Real servers on free ports for tests of the push consumer, and consumers whose intervals are short."""

import asyncio
import gc
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dejamq import Admin, Message, Producer, PushConsumer
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import StoreConfig
from dejamq_lab.cluster.ports import held_ports
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from journalled import journalled

STORE = StoreConfig(
    mapped_file_size_commit_log=1 << 22, mapped_file_size_consume_queue=20_000,
    message_delay_level=" ".join(["1s"] * 18),
)  # fmt: skip
QUICK: dict[str, Any] = {
    "rebalance_wait_interval_ms": 1_000, "rebalance_min_interval_ms": 50, "persist_consumer_offset_interval_ms": 250,
    "pull_time_delay_when_exception_ms": 50, "poll_name_server_interval_ms": 300, "reconnect_interval_ms": 50,
    "broker_suspend_max_time_ms": 2_000, "consumer_timeout_when_suspend_ms": 4_000, "consume_retry_delay_ms": 100,
}  # fmt: skip
SLOW: dict[str, Any] = QUICK | {"rebalance_wait_interval_ms": 600_000, "persist_consumer_offset_interval_ms": 600_000}
"""Nothing happens by its interval: what does happen was notified."""


@dataclass
class Servers:
    """One name server and one broker that can be started again on its address and store."""

    directory: Path
    namesrv: NameServer
    address: str
    broker: Broker | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    async def start_broker(self) -> None:
        chosen: dict[str, Any] = {"broker_fast_failure_enable": False, "store": STORE} | self.settings
        config = BrokerConfig(
            listen=self.address, namesrv=self.namesrv.address,
            store_directory=str(self.directory / "store"), namesrv_reconnect_ms=50,
            journal_dir=str(self.directory / "servers"), **chosen,
        )  # fmt: skip
        self.broker = Broker(config)
        await self.broker.start()

    async def stop_broker(self) -> None:
        if self.broker is not None:
            await self.broker.close()
            self.broker = None

    def consumer(self, group: str = "g", **settings: Any) -> PushConsumer:
        own = {
            "journal_dir": str(self.directory / "journal"),
            "local_offset_store_dir": str(self.directory / "offsets"),
        }
        chosen = QUICK | own | {"journal_level": "forensic"} | settings
        return PushConsumer(group, namesrv=self.namesrv.address, **chosen)

    def producer(self, **settings: Any) -> Producer:
        patient = {"send_msg_timeout_ms": 20_000, "poll_name_server_interval_ms": 300}
        return Producer("p", namesrv=self.namesrv.address, **patient | settings)

    async def send(self, *bodies: str, topic: str = "orders", **message: Any) -> None:
        async with self.producer() as producer:
            await asyncio.gather(*(producer.send(Message(topic, body.encode(), **message)) for body in bodies))

    async def send_known(self, *bodies: str, topic: str = "orders") -> None:
        """Send, and wait until the name server has the topic, which the first message of it made: a consumer that comes
        earlier has nothing to ask for.
        """
        await self.send(*bodies, topic=topic)
        async with Admin(self.namesrv.address) as admin, asyncio.timeout(30):
            while topic not in await admin.topics():
                await asyncio.sleep(0.01)

    def lines(self, event: str = "", boot_id: str = "") -> list[dict[str, Any]]:
        """What consumers journalled, in order."""
        return journalled(self.directory / "journal", event, of=f"*{boot_id}")

    def server_lines(self, event: str) -> list[dict[str, Any]]:
        """What the broker journalled."""
        return journalled(self.directory / "servers", event)


@asynccontextmanager
async def servers(directory: Path, **settings: Any) -> AsyncIterator[Servers]:
    with held_ports(2) as ports:  # also while a server is down
        own, address = (f"127.0.0.1:{port}" for port in ports)
        namesrv = NameServer(NamesrvConfig(listen=own))
        await namesrv.start()
        made = Servers(directory, namesrv, address=address, settings=settings)
        try:
            await made.start_broker()
            yield made
        finally:
            await made.stop_broker()
            await namesrv.close()


BEGIN_LATE = ("asyncio_", "dejamq-disk", "dejamq-journal")
"""Threads of pools with a bound, and of a server's journal: one begins when it first has work, and stays."""


def held() -> Counter[str]:
    """Tasks by what they run, threads by their names, open files and sockets: what somebody has to end."""
    gc.collect()
    tasks = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    threads = (thread.name for thread in threading.enumerate())
    found = Counter([*tasks, *(name for name in threads if not name.startswith(BEGIN_LATE))])
    return found + Counter({"open descriptors": len(os.listdir("/proc/self/fd"))})


async def until_no_more_is_held_than(before: Counter[str], others: int = 0, deadline_s: float = 30) -> None:
    """The servers notice the ends of connections in their own time."""
    try:
        await until(lambda: held().total() <= before.total() + others, deadline_s)
    except TimeoutError:
        raise AssertionError(f"left behind: {held() - before}") from None


async def until(condition: Callable[[], object], deadline_s: float = 30) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.005)
