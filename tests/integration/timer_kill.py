"""Timed messages while their broker is killed, or stopped, all the time; and the judge of what came of them."""

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import msgspec
from dejamq import DejamqError, Message
from dejamq_broker.store.dump import DumpRange, dump
from dejamq_broker.store.files.paths import StorePaths
from dejamq_lab import Cluster
from dejamq_lab.cluster.process import ServerProcess
from delay_proof import Line
from handover_proof import lines_of

SCALE = 0.2
PAUSE_S, LONGEST_MS = 0.01, 4000
TIMER = "rmq_sys_wheel_timer"


class Judged(msgspec.Struct):
    """Unique keys: ``lost`` waited and never came, ``early`` came before its time, ``outside`` came again although no
    crash explains it.
    """

    waited: int = 0
    repeated: int = 0
    lost: list[str] = []
    early: list[str] = []
    outside: list[str] = []

    def check(self) -> None:
        assert not self.lost, f"never delivered: {self.lost[:3]}"
        assert not self.early, f"delivered before its time: {self.early[:3]}"
        assert not self.outside, f"delivered again without a crash: {self.outside[:3]}"


def judge(records: Iterable[Line], lines: Iterable[Line]) -> Judged:
    """``records`` as a dump of the log tells them, ``lines`` of the broker's journals in their order."""
    waiting: dict[str, Line] = {}
    copies: dict[str, list[Line]] = defaultdict(list)
    for record in records:
        properties = record.get("properties", {})
        if record.get("topic") == TIMER:
            waiting[properties["UNIQ_KEY"]] = record
        elif "TIMER_OUT_MS" in properties:
            copies[properties["UNIQ_KEY"]].append(record)
    starts = _starts(lines)
    judged = Judged(waited=len(waiting))
    for key, record in waiting.items():
        came = sorted(copies.get(key, []), key=lambda one: int(one["log_offset"]))
        asked = record["properties"]
        due_ms = int(asked.get("TIMER_DELIVER_MS") or record["store_timestamp"] + int(asked["TIMER_DELAY_MS"]) - 1000)
        if not came:
            judged.lost.append(key)
        if any(one["store_timestamp"] < due_ms for one in came):
            judged.early.append(key)
        judged.repeated += len(came) - 1 if came else 0
        if not all(_explained(record, one, two, starts) for one, two in pairwise(came)):
            judged.outside.append(key)
    return judged


def _starts(lines: Iterable[Line]) -> list[tuple[int, bool, list[dict[str, int]]]]:
    """For each start of the broker, where in the log it began, whether after a crash, and the progress it wrote."""
    starts: list[tuple[int, bool, list[dict[str, int]]]] = []
    for line in lines:
        if line["event"] == "BOOT":
            starts.append((line.get("log_max", 0), not line["clean"], []))
        elif line["event"] == "PROGRESS_FLUSH" and line["service"] == "timer" and starts:
            starts[-1][2].append(msgspec.json.decode(line["progress"]))
    return starts


def _explained(record: Line, first: Line, second: Line, starts: list[tuple[int, bool, list[dict[str, int]]]]) -> bool:
    """Whether a crash came between the two, before which no progress past the message was written for sure.

    A kill may have cut short the last write of a start.
    """
    began, later = (
        max(number for number, start in enumerate(starts) if start[0] <= one["log_offset"]) for one in (first, second)
    )
    if not any(crash for _, crash, _ in starts[began + 1 : later + 1]):
        return False
    slot_ms, place = int(record["properties"]["TIMER_OUT_MS"]), record["queue_offset"]
    return not any(one["read_ms"] > slot_ms and one["queue_offset"] > place for one in starts[began][2][:-1])


class Stopping:
    """One run on one cluster of processes. Everything that is random comes from ``seed``, except what the machine
    does.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._dice = cluster, random.Random(seed)
        self.acknowledged: set[str] = set()
        self._stopped = asyncio.Event()

    async def run(self, stops: int) -> None:
        """Every third stop is a clean one. At the end everything becomes due."""
        sending = asyncio.ensure_future(self._send())
        try:
            for number in range(stops):
                await asyncio.sleep(self._dice.uniform(0.5, 2.5))
                broker = self._cluster.broker("broker-a")
                assert isinstance(broker, ServerProcess)
                if number % 3 == 1:
                    await asyncio.to_thread(broker.end)
                else:
                    broker.kill()
                broker.restart()
                await self._cluster.ready()
        finally:
            self._stopped.set()
            await sending

    async def _send(self) -> None:
        """A steady stream; what is refused while the broker is away is sent no more."""
        async with self._cluster.producer("p") as producer:
            for number in itertools.count():
                if self._stopped.is_set():
                    return
                message = Message("later", b"%d" % number, delay_ms=self._dice.randint(1, LONGEST_MS))
                try:
                    await producer.send(message)
                    self.acknowledged.add(message.message_id)
                except DejamqError:
                    pass
                await asyncio.sleep(PAUSE_S)


async def stopped(directory: Path, stops: int, seed: int) -> Judged:
    """One run, judged after everything has ended. The journals stay in ``directory``."""
    async with Cluster(topics={"later": 4}, processes=True, time_scale=SCALE, directory=directory) as cluster:
        run = Stopping(cluster, seed)
        await run.run(stops)
        await asyncio.sleep(LONGEST_MS / 1000)
        journals, (store,) = cluster.journal_dir, cluster.store_dirs
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(_judged, store, journals)).lost:
                await asyncio.sleep(0.5)
    judged = _judged(store, journals)
    keys = {one["properties"]["UNIQ_KEY"] for one in _dumped(store) if one.get("topic") == TIMER}
    assert run.acknowledged <= keys, "an acknowledged message is not in the log"
    return judged


def _dumped(store: Path) -> list[Line]:
    return list(dump(StorePaths(store), "log", DumpRange()))


def _judged(store: Path, journals: Path) -> Judged:
    return judge(_dumped(store), [one for one in lines_of(journals) if one["event"] in ("BOOT", "PROGRESS_FLUSH")])
