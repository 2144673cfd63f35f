"""A pair of broker processes whose master is killed or frozen at random moments, life after life, while producers send.

The slave takes its place by itself each time, and the old master comes back as its slave.
"""

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import broker_wire
from dejamq import Message, SendStatus
from dejamq_broker.app import wall_clock_ms
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_lab import Cluster
from dejamq_lab.cluster import rpc_control
from dejamq_proto.codes import DejamqError
from store_making import records_of

NAMES = ("broker-a", "broker-a-s1")
QUEUES, SENDERS, SCALE, DEADLINE_S = 4, 8, 0.2, 60
SETTINGS = {
    "brokerRole": "SYNC_MASTER", "failover_enable": True, "poll_name_server_interval_ms": 5_000,
    "slave_timeout_ms": 3_000 / SCALE,
}  # fmt: skip


class Lives:
    """One cluster, and what producers were told is stored."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.dice = directory, random.Random(seed)
        self.answered: set[str] = set()
        self.waits_s: list[float] = []
        """From each fault to the next answered message."""
        self.cluster = Cluster(
            1, namesrvs=2, slaves=1, processes=True, topics={"T": QUEUES}, time_scale=SCALE, settings=SETTINGS,
            directory=directory, journal_level="off",
        )  # fmt: skip

    async def live(self, lives: int) -> None:
        """Raises AssertionError."""
        async with self.cluster, self._producing():
            for life in range(lives):
                await until(self._more_answers(self.dice.randint(20, 200)), f"life {life}: nothing is answered")
                await self._suffer(life)
        self._check()

    async def _suffer(self, life: int) -> None:
        frozen, (old, new) = self.dice.random() < 0.3, await self._roles()
        server = self.cluster.broker(old)
        assert not isinstance(server, str)
        began = time.monotonic()
        server.pause() if frozen else server.kill()
        await until(lambda: self._is_master(new), f"life {life}: {new} does not take over")
        server.resume() if frozen else server.restart()
        await until(lambda: self._follows(old), f"life {life}: {old} does not come back")
        await until(self._more_answers(1), f"life {life}: nothing is answered any more")
        self.waits_s.append(time.monotonic() - began)

    @contextlib.asynccontextmanager
    async def _producing(self) -> AsyncIterator[None]:
        async with self.cluster.producer("p", send_msg_timeout_ms=5_000) as producer:
            numbers = itertools.count()

            async def send_on() -> None:
                while True:
                    body = str(next(numbers))
                    try:
                        result = await producer.send(Message("T", body.encode()))
                    except DejamqError:
                        await asyncio.sleep(0.05)
                        continue
                    if result.status is SendStatus.SEND_OK:
                        self.answered.add(body)
                    await asyncio.sleep(0.01)

            sending = [asyncio.create_task(send_on()) for _ in range(SENDERS)]
            try:
                yield
            finally:
                for task in sending:
                    task.cancel()
                await asyncio.wait(sending)

    def _more_answers(self, count: int):  # type: ignore[no-untyped-def]  # a condition
        wanted = len(self.answered) + count
        return lambda: len(self.answered) >= wanted

    async def _roles(self) -> tuple[str, str]:
        """Master and slave."""
        one, other = NAMES
        return (one, other) if await self._is_master(one) else (other, one)

    async def _is_master(self, name: str) -> bool:
        return await rpc_control.is_master(self.cluster.broker(name).address)

    async def _follows(self, name: str) -> bool:
        return await rpc_control.follows(self.cluster.broker(name).address)

    def _check(self) -> None:
        """Both logs, when all has ended."""
        assert self.answered
        for name in NAMES:
            config = StoreConfig(mapped_file_size_commit_log=64 << 20, disk_check_enable=False)
            store = MessageStore.open(self.directory / name / "store", config, clock_ms=wall_clock_ms)
            found = {record.body.decode() for queue in range(QUEUES) for record in records_of(store, "T", queue)}
            store.close()
            lost = self.answered - found
            assert not lost, f"{name} lost {len(lost)} of {len(self.answered)} answered messages, e.g. {min(lost)}"


async def until(holds: Callable[[], object], why: str) -> None:
    """A server that does not answer is asked again."""

    async def asked() -> object:
        with contextlib.suppress(DejamqError):
            value = holds()
            return await value if asyncio.iscoroutine(value) else value
        return None

    await broker_wire.until(asked, DEADLINE_S, why)


async def outlived_by_itself(directory: Path, seed: int, lives: int) -> tuple[int, list[float]]:
    """Answered messages, and how long each recovery took, s. Raises AssertionError with the seed."""
    made = Lives(directory, seed)
    try:
        await made.live(lives)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}; the cluster is in {directory}") from error
    return len(made.answered), made.waits_s
