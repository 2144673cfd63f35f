"""A master and a slave, both processes, that suffer faults at random moments while a producer sends.

After every fault the slave must have its master's log and queues again, byte for byte, and at the end both must have
every message that was answered with SEND_OK.
"""

import asyncio
import contextlib
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import broker_wire
from broker_wire import SMALL, Wire, a_run
from dejamq_broker.app import wall_clock_ms
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import MessageStore
from dejamq_lab.cluster.plan import as_flags
from dejamq_lab.cluster.ports import hold, port_of
from dejamq_lab.cluster.relay import DOWN, UP, Relay
from dejamq_lab.cluster.rpc_control import runtime
from dejamq_proto.codes import Code
from ha_pair import QUICK
from replica_files import assert_same_files
from store_making import records_of

QUEUES = 3
FILES = replace(
    SMALL, mapped_file_size_commit_log=1 << 18, flush_interval_consume_queue_ms=20, flush_interval_commit_log_ms=50
)
DEADLINE_S = 60


class Replica:
    """One broker process. Its disk is full while ``switch`` is there."""

    def __init__(self, directory: Path, name: str, **settings: object) -> None:
        self.directory, self.switch = directory / name, directory / f"{name}-is-full"
        self._log = directory / f"{name}.log"
        self._settings = {"namesrv": "", "store_directory": str(self.directory), "store": FILES} | QUICK | settings
        self._process: subprocess.Popen[bytes] | None = None
        self._held = hold()
        self.address = f"127.0.0.1:{port_of(self._held)}"

    async def start(self) -> None:
        """The second time at the same address. Returns when it serves."""
        config = BrokerConfig(**(self._settings | {"listen": self.address}))  # type: ignore[arg-type]  # test only
        begun = self._log.stat().st_size if self._log.exists() else 0
        command = [sys.executable, str(Path(__file__).with_name("full_disk.py")), str(self.switch), *as_flags(config)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: ASYNC220  # it does not wait
        await until(lambda: self._ready(begun) or self._process is None or self._process.poll() is not None)
        assert self._ready(begun), f"it does not start, see {self._log}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Kill it for good: its address is free again."""
        self.kill()
        self._held.close()

    async def stop(self) -> None:
        """As SIGTERM does, with an exit status of 0."""
        assert self._process is not None
        self._process.terminate()
        await until(lambda: self._process is None or self._process.poll() is not None)
        assert self._process.returncode == 0, f"it does not end well, see {self._log}"

    async def ends(self) -> tuple[str, str]:
        """Where its log ends, and how much of it is not in the queues yet."""
        values = await runtime(self.address)
        return values.get("commitLogMaxOffset", ""), values.get("dispatchBehindBytes", "")

    def _ready(self, begun: int) -> bool:
        said = self._log.read_bytes()[begun:].decode()
        return any(line.startswith("ready broker") for line in said.splitlines())


class Pair:
    """Master, slave, the link between them, and a producer whose answered messages are remembered."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.master = Replica(directory, "master")
        self.link = Relay(lambda: self.master.address)
        self.answered: dict[tuple[int, int], bytes] = {}
        self._sending = asyncio.Event()
        self._idle = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        address = await self.link.start("127.0.0.1")
        self.slave = Replica(self.directory, "slave", broker_id=1, ha_master_address=address, ha_full_copy=True)
        try:
            await asyncio.gather(self.master.start(), self.slave.start())
            producer = asyncio.create_task(self._produce())
            yield
            producer.cancel()
            await asyncio.wait((producer,))
        finally:
            self.master.end()
            self.slave.end()
            await self.link.close()

    async def suffer(self, fault: str) -> None:
        """Send, let it happen at some moment, heal it, send on, and compare."""
        self._sending.set()
        await asyncio.sleep(self.rng.uniform(0, 0.3))
        await FAULTS[fault](self)
        await asyncio.sleep(self.rng.uniform(0, 0.2))
        await self._compare(fault)

    async def pause(self, longest_s: float = 0.5) -> None:
        await asyncio.sleep(self.rng.uniform(0, longest_s))

    async def _compare(self, fault: str) -> None:
        self._sending.clear()
        await self._idle.wait()

        async def together() -> bool:
            mine, theirs = await self.slave.ends(), await self.master.ends()
            return mine == theirs and mine[1] == "0"

        try:
            await until(together, f"after {fault}: the slave does not come to its master's end")
        except AssertionError as error:
            raise AssertionError(f"{error}: {await self.slave.ends()}, {await self.master.ends()}") from None
        # queues are in the files a moment later
        await until(lambda: not self._difference(), f"after {fault}: the slave is not its master's copy")

    def _difference(self) -> str:
        try:
            assert_same_files(self.master.directory, self.slave.directory)
        except AssertionError as difference:
            return str(difference) or "they differ"
        return ""

    async def end(self) -> None:
        """Stop both, compare what they leave, build the queues again, and look for every answered message."""
        self._sending.clear()
        await self._idle.wait()
        await self.slave.stop()
        await self.master.stop()
        assert_same_files(self.master.directory, self.slave.directory)
        for replica in (self.master, self.slave):
            rebuilt = self.directory / f"{replica.directory.name}-rebuilt"
            shutil.copytree(replica.directory, rebuilt)
            shutil.rmtree(rebuilt / "consumequeue")
            (rebuilt / "dispatched.json").unlink()
            store = MessageStore.open(rebuilt, FILES, clock_ms=wall_clock_ms)
            assert (store.recovery.damages, store.recovery.cuts) == ((), ())
            found = {
                (queue_id, record.queue_offset): record.body
                for queue_id in range(QUEUES)
                for record in records_of(store, "T", queue_id)
            }
            store.close()
            assert_same_files(replica.directory, rebuilt)
            lost = self.answered.items() - found.items()
            assert not lost, f"{len(lost)} of {len(self.answered)} answered messages are not in {replica.directory}"

    async def _produce(self) -> None:
        """One run after the other; what is not answered may be stored or not."""
        number = 0
        while True:
            try:
                async with Wire(self.master.address) as wire:
                    while True:
                        if not self._sending.is_set():
                            self._idle.set()
                            await self._sending.wait()
                            self._idle.clear()
                        number += 1
                        await self._send(wire, number)
            except Exception:  # the master is away, or its disk is full: which is what this is about
                await asyncio.sleep(0.02)

    async def _send(self, wire: Wire, number: int) -> None:
        queue_id, size = self.rng.randrange(QUEUES), self.rng.choice((10, 300, 2000, 20_000))
        bodies = [b"%d-%d" % (number, each) + b"." * size for each in range(self.rng.randint(1, 8))]
        answer = await asyncio.wait_for(wire.send(a_run("T", bodies, queue_id=queue_id)), 2)
        if answer.code == Code.SUCCESS:
            offsets = answer.queue_offsets.tolist()
            self.answered |= {(queue_id, offset): body for offset, body in zip(offsets, bodies, strict=True)}
        else:
            await asyncio.sleep(0.01)


async def _cut(pair: Pair) -> None:
    pair.link.cut()
    await pair.pause()
    pair.link.heal()


async def _delay(pair: Pair) -> None:
    pair.link.delay(pair.rng.uniform(1, 300))
    await pair.pause()
    pair.link.heal()


async def _half_open(pair: Pair, *ways: str) -> None:
    pair.link.lose(*ways)
    await pair.pause(1.5)
    pair.link.heal()


async def _kill(pair: Pair, *names: str) -> None:
    replicas = [getattr(pair, name) for name in names]
    pair.rng.shuffle(replicas)
    for replica in replicas:
        replica.kill()
        await pair.pause(0.1)
    await pair.pause()
    await asyncio.gather(*(replica.start() for replica in replicas))


async def _fill_disk(pair: Pair, name: str) -> None:
    switch = getattr(pair, name).switch
    switch.touch()
    await pair.pause(1)
    switch.unlink()


FAULTS: dict[str, Callable[[Pair], Awaitable[None]]] = {
    "link cut": _cut,
    "link slow": _delay,
    "link half open, acknowledgements lost": lambda pair: _half_open(pair, UP),
    "link half open, log lost": lambda pair: _half_open(pair, DOWN),
    "link dead": lambda pair: _half_open(pair, UP, DOWN),
    "master killed": lambda pair: _kill(pair, "master"),
    "slave killed": lambda pair: _kill(pair, "slave"),
    "both killed": lambda pair: _kill(pair, "master", "slave"),
    "master's disk full": lambda pair: _fill_disk(pair, "master"),
    "slave's disk full": lambda pair: _fill_disk(pair, "slave"),
}


async def suffered(directory: Path, seed: int, faults: list[str]) -> int:
    """One life of a pair. Answers how many messages were answered. Raises AssertionError with seed and place."""
    pair = Pair(directory, seed)
    try:
        async with pair.running():
            for fault in faults:
                await pair.suffer(fault)
            await pair.end()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {', '.join(faults)}: {error}; the stores are in {directory}") from error
    return len(pair.answered)


async def until(holds: Callable[[], object], why: str = "it never came") -> None:
    await broker_wire.until(holds, DEADLINE_S, why)
