"""dejamq beside its peers: all run, and they are measured in turn, so that a busy moment hits all of them.

Servers that are not measured stand still meanwhile.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Self

import msgspec
from dejamq_proto.codes import DejamqError

from dejamq_lab.bench import peers
from dejamq_lab.bench.client.process import run_client
from dejamq_lab.bench.client.result import BenchResult, Job, Load
from dejamq_lab.bench.client.target import Target, make_topics, own_cluster
from dejamq_lab.bench.client.worker import OWN
from dejamq_lab.bench.figures import FIGURES, Figure
from dejamq_lab.bench.measure import Bench
from dejamq_lab.bench.rpc_echo import baseline
from dejamq_lab.cluster.usage import free_bytes

# Memory that is the machine's own, as on a machine that has been up for a while: there, files fill the free memory. A
# virtual machine may own most of its memory only by name. It gets a page from its host at the first write to it, when
# it has never touched the page or gave it back. That write costs ten times the later ones. So the same bulk send was
# fast into the first 2 GiB and slow from there on, for every program.

LEFT_BYTES = 256 << 20
"""Stay free: twice what the kernel keeps free before it drops pages of files, with 24 GiB."""
STEP_BYTES = 64 << 20
READ_BYTES = 4 << 20
TELL_S = 5


class GivenMemory:
    """While it is entered, free memory holds pages of a file, which the kernel drops for whatever else needs them.

    The file has no blocks on the disk, and goes at the end.
    """

    def __init__(self) -> None:
        self.size = 0
        """Bytes of the file, of which the last to be read are there."""

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile(prefix="dejamq-bench-")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    async def fill(self, tell: Callable[[str], None] = lambda line: None) -> int:
        """All that is free but a rest. Gives how much that was (bytes).

        ``tell`` is told every few seconds how far it is.
        """
        size = max(0, free_bytes() - LEFT_BYTES)
        begin, self.size = self.size, self.size + size
        self._file.truncate(self.size)
        told = time.monotonic()
        for at in range(begin, self.size, STEP_BYTES):
            await asyncio.to_thread(self._read, at, min(at + STEP_BYTES, self.size))
            if time.monotonic() - told > TELL_S:
                tell(f"filled {(at - begin) / 1e9:.1f} of {size / 1e9:.1f} GB")
                told = time.monotonic()
        return size

    def _read(self, at: int, end: int) -> None:
        room = bytearray(READ_BYTES)
        while at < end and (read := os.preadv(self._file.fileno(), [room], at)):
            at += read


# Servers that are not measured stand still: a JVM's own timers and collections are nobody's measurement.

AWAKE_S = 1.0
"""After they go on, before anything else happens: for what their timers missed, as heartbeats to a controller."""


@contextlib.asynccontextmanager
async def resting(pids: Iterable[int], awake_s: float = AWAKE_S) -> AsyncIterator[None]:
    """Stop these processes (SIGSTOP) until the end, in whatever way it comes; one that has ended is left out."""
    stopped = [pid for pid in pids if _signalled(pid, signal.SIGSTOP)]
    try:
        yield
    finally:
        for pid in stopped:
            _signalled(pid, signal.SIGCONT)
    if stopped:
        await asyncio.sleep(awake_s)


def _signalled(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


SETTLE_S = 10
"""After the servers have started, before the first measurement: a JVM goes on for a while, and so does the disk."""
STANDING_S = 3
"""The same for dejamq's own where it is alone: it makes pages for its log then, as the one that stands has."""
Tell = Callable[[str], None]


class Sample(msgspec.Struct, frozen=True):
    """One measurement of one side in one round."""

    figure: str
    side: str
    round: int
    value: float
    result: BenchResult


class BenchRounds:
    """Runs rounds until there are enough, or the time is up; then the round under way is not finished."""

    def __init__(self, tell: Tell, minutes: float, figures: Sequence[Figure] = FIGURES) -> None:
        self.samples: list[Sample] = []
        self.loads: list[float] = []
        """The machine's load at the begin of each measurement, this one's own processes included."""
        self.skipped: dict[str, str] = {}
        """Side -> why it is not there."""
        self._tell, self._figures = tell, figures
        self._ends = time.monotonic() + minutes * 60
        self._targets: dict[str, Target] = {}
        self._failed: set[tuple[str, str]] = set()
        self._last: dict[tuple[str, str, Load, bool, int], BenchResult] = {}
        """A measurement made: another figure may be another number of it."""

    async def run(self, rounds: int, wanted: Sequence[str] = peers.NAMES, *, fills_memory: bool = True) -> None:
        """Measure. ``fills_memory``: enter ``GivenMemory`` first, which takes up to a minute."""
        async with contextlib.AsyncExitStack() as stack:
            memory = stack.enter_context(GivenMemory()) if fills_memory else None
            if memory is not None:
                self._tell("filling free memory with pages of a file, so that it is this machine's own")
                await memory.fill(self._tell)
            self._targets[OWN] = await stack.enter_async_context(own_cluster(Load(), ()))
            for name in wanted:
                await self._start(stack, name)
            if self._targets.keys() > {OWN}:
                await asyncio.sleep(SETTLE_S)
            for number in range(rounds):
                ground = await baseline(Load().body_bytes)
                # every other round backwards, so that what a figure leaves behind is not always the same one's
                for figure in self._figures[:: -1 if number % 2 else 1]:
                    if memory is not None:  # what went with topics and servers of the figure before is the host's again
                        await memory.fill()
                    for side in self._in_turn(figure, number):
                        if time.monotonic() > self._ends and number:
                            self._tell("the time is up")
                            return
                        await self._measure(figure, side, number, ground)

    async def _start(self, stack: contextlib.AsyncExitStack, name: str) -> None:
        if missing := peers.absence(name):
            self._skip(name, missing)
            return
        self._tell(f"starting {name}")
        try:
            self._targets[name] = await stack.enter_async_context(peers.started(name, Load()))
        except DejamqError as error:
            self._skip(name, str(error))

    def _skip(self, name: str, why: str) -> None:
        self.skipped[name] = why
        self._tell(f"skipped {why}")

    def _in_turn(self, figure: Figure, number: int) -> list[str]:
        """The sides that are there; each round begins with another one."""
        sides = [side for side in figure.sides if _system(side) in self._targets]
        begin = number % len(sides) if sides else 0
        return [side for side in sides[begin:] + sides[:begin] if (figure.key, side) not in self._failed]

    async def _measure(self, figure: Figure, side: str, number: int, ground: dict[str, float]) -> None:
        self.loads.append(os.getloadavg()[0])
        load, system = figure.load_of(side), _system(side)
        bench = Bench(load, peer=None if system == OWN else system)
        same = (side, figure.what, load, figure.alone, number)
        try:
            result = self._last.get(same)
            if result is None:
                others = resting(self._others(figure, system))
                async with others, self._servers(figure, bench, system) as target:
                    echo = await baseline(load.body_bytes) if figure.key in ("single", "sync") else ground
                    result = await bench.on(target, figure.what, echo)
                    if target.drops:
                        await run_client(target.client, Job("drop", "drop", target.address, bench.topics, load))
        except DejamqError as error:
            self._failed.add((figure.key, side))
            self._skip(f"{side}: {figure.title}", f"{side}, {figure.title}: {error}")
            return
        self._last[same] = result
        value = figure.of(result)
        self.samples.append(Sample(figure.key, side, number, value, result))
        self._tell(f"round {number + 1}: {figure.title}: {side}: {shown(value, figure.unit)}")

    @contextlib.asynccontextmanager
    async def _servers(self, figure: Figure, bench: Bench, system: str) -> AsyncIterator[Target]:
        if figure.stands_alone:
            async with own_cluster(bench.load, bench.topics) as target:
                await asyncio.sleep(STANDING_S)
                yield target
            return
        target = self._targets[system]
        if system == OWN:
            await make_topics(target.address, bench.load, bench.topics)
        yield target

    def _others(self, figure: Figure, system: str) -> list[int]:
        """The processes that this figure does not need, but for name servers, which have next to nothing to do."""
        needed = None if figure.stands_alone else system
        return [pid for name, target in self._targets.items() if name != needed for pid in target.pids]


def _system(side: str) -> str:
    """``rocketmq, batches of 32`` is measured at rocketmq."""
    return side.partition(",")[0]


def shown(value: float, unit: str) -> str:
    """As people say it: ``1.25 M/s``, ``98 k/s``, ``0.41 ms``."""
    if unit == "ms":
        return f"{value:.3g} ms" if value < 100 else f"{value:,.0f} ms"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}/s" if value < 100 * size else f"{value / size:.0f} {letter}/s"
    return f"{value:.0f} /s"
