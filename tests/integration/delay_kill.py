"""Delayed and retried messages while their broker is killed, or stopped, all the time; for tests and `make prove`."""

import asyncio
import itertools
import random
from pathlib import Path

import msgspec
from consumer_cluster import until
from dejamq import ConsumeFrom, DejamqError, Message, PushConsumer, ReceivedMessage
from dejamq_broker.store import StoreConfig
from dejamq_broker.store.dump import DumpRange, dump
from dejamq_broker.store.files.paths import StorePaths
from dejamq_lab import Cluster
from dejamq_lab.cluster.process import ServerProcess
from delay_proof import Judged, judge
from handover_proof import lines_of

SCALE = 0.2
TABLE = "1s 2s 3s 4s 5s"
FLUSH_MS = 4_000
"""How often progress is written, before it is scaled: several times between two kills, or once, or not at all."""
FAILURES = 2
"""So often a message that is not delayed fails, to come again through the retry topic."""
PAUSE_S = 0.005


class Told(msgspec.Struct):
    """What became of one run: ``acknowledged`` and ``done`` are message bodies."""

    acknowledged: set[bytes]
    done: set[bytes]
    judged: Judged

    def check(self) -> None:
        """Raises AssertionError with what was lost, early, or repeated without a crash."""
        assert not self.acknowledged - self.done, f"never handled: {sorted(self.acknowledged - self.done)[:3]}"
        self.judged.check()


class Stopping:
    """One run on one cluster of processes. Everything that is random comes from ``seed``, except what the machine
    does.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._dice = cluster, random.Random(seed)
        self._acknowledged: set[bytes] = set()
        self._done: set[bytes] = set()
        self._stopped = asyncio.Event()

    async def run(self, stops: int) -> tuple[set[bytes], set[bytes]]:
        """Bodies of what was acknowledged and of what was handled to its end. Every third stop is a clean one."""
        async with self._consumer():
            sending = asyncio.ensure_future(self._send())
            try:
                for number in range(stops):
                    await asyncio.sleep(self._dice.uniform(0.3, 2.5))
                    await self._stop(clean=number % 3 == 1)
            finally:
                self._stopped.set()
                await sending
            await until(lambda: self._acknowledged <= self._done, 90)
        return self._acknowledged, self._done

    async def _stop(self, *, clean: bool) -> None:
        broker = self._cluster.broker("broker-a")
        assert isinstance(broker, ServerProcess)
        if clean:
            await asyncio.to_thread(broker.end)  # clients have to be there while it drains
        else:
            broker.kill()
        broker.restart()
        await self._cluster.ready()

    def _consumer(self) -> PushConsumer:
        consumer = self._cluster.push_consumer("g", consume_from=ConsumeFrom.FIRST_OFFSET)

        async def handle(message: ReceivedMessage) -> None:
            if message.tags == "fails" and message.reconsume_times < FAILURES:
                raise RuntimeError("not yet")
            self._done.add(message.body)

        consumer.subscribe("later", handle)
        return consumer

    async def _send(self) -> None:
        """A steady stream; what is refused while the broker is away is sent no more."""
        async with self._cluster.producer("p") as producer:
            for number in itertools.count():
                if self._stopped.is_set():
                    return
                fails = self._dice.random() < 0.2
                level = 0 if fails else self._dice.randint(1, 3)
                message = Message("later", b"%d" % number, tags="fails" if fails else "late", delay_level=level)
                try:
                    await producer.send(message)
                    self._acknowledged.add(message.body)
                except DejamqError:
                    pass
                await asyncio.sleep(PAUSE_S)


async def stopped(directory: Path, stops: int, seed: int) -> Told:
    """One run, judged after everything has ended. The journals stay in ``directory``."""
    settings = {"message_delay_level": TABLE, "flush_delay_offset_interval_ms": FLUSH_MS}
    async with Cluster(
        topics={"later": 4}, processes=True, time_scale=SCALE, settings=settings, directory=directory
    ) as cluster:
        acknowledged, done = await Stopping(cluster, seed).run(stops)
        journals, (store,) = cluster.journal_dir, cluster.store_dirs
    lines = [line for line in lines_of(journals) if line["event"] in ("BOOT", "PROGRESS_FLUSH")]
    second_ms = round(StoreConfig().delay_second_ms * SCALE)
    levels_ms = StoreConfig(message_delay_level=TABLE, delay_second_ms=second_ms).delay_levels_ms
    return Told(acknowledged, done, judge(dump(StorePaths(store), "log", DumpRange()), lines, levels_ms))
