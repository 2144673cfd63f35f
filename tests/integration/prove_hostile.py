"""``python tests/integration/prove_hostile.py``: a million hostile inputs in one run, to every door of every server.

Doors: gRPC of ours (every RPC), frames of the fast port, remoting of broker and name server, gRPC of RocketMQ 5, first
bytes that are nobody's, metrics, the control page, the console. Only inputs that reached the server count. After each
batch an honest client is served at every door, connections and tasks are as many as before, and memory is below a
bound. At the end the logs tell of no fault, the store is whole, and nothing that was refused is stored.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from broker_wire import until
from hostile import Hostile
from hostile_attack import Attack, GrpcAttack, check_left_behind
from hostile_frames import FastAttack, FirstBytesAttack
from hostile_http import HttpAttack, console_path, control_path, metrics_path
from hostile_remoting import RemotingAttack
from hostile_servers import Process, Servers, log_faults, metrics_of
from hostile_v2 import V2Attack
from hostile_well import each_door_serves

BATCH = 50_000
MOST_MIB = 256
"""Of each process's own memory after a batch."""
MORE_SOCKETS, MORE_TASKS, QUIET_S = 16, 32, 150
"""Above those after the first batch; a connection that says nothing may stay for two minutes."""


class Share(NamedTuple):
    """A door's part of each batch: the quick doors get more."""

    door: str
    part: float
    attack: Attack


async def doors(servers: Servers, seed: int) -> list[Share]:
    broker, namesrv = await servers.broker.ready(), await servers.namesrv.ready()
    hostile = Hostile(seed)
    metrics = [metrics_of(servers.broker), metrics_of(servers.namesrv)]
    return [
        Share("v1 gRPC", 0.11, GrpcAttack(broker, namesrv, hostile, seed)),
        Share("fast frames", 0.25, FastAttack(broker, hostile, seed + 1)),
        Share("remoting, broker", 0.25, RemotingAttack(broker, seed + 2)),
        Share("remoting, name server", 0.22, RemotingAttack(namesrv, seed + 3)),
        Share("v2 gRPC", 0.07, V2Attack(broker, hostile, seed + 4)),
        Share("first bytes", 0.02, FirstBytesAttack([broker, namesrv], seed + 5)),
        Share("metrics", 0.02, HttpAttack(metrics, metrics_path, seed + 6)),
        Share("control page", 0.04, HttpAttack([await servers.dev.control()], control_path, seed + 7)),
        Share("console", 0.02, HttpAttack([await servers.console.ready()], console_path, seed + 8)),
    ]


class Measured(NamedTuple):
    """One process at one moment."""

    mib: int
    sockets: int
    descriptors: int
    tasks: int


async def measured(process: Process) -> Measured:
    tasks = (await process.told())["tasks"]
    return Measured(round(process.resident_mib()), process.sockets(), process.descriptors(), tasks)


class Proof:
    """The whole attack; each step raises AssertionError."""

    def __init__(self, servers: Servers, shares: list[Share]) -> None:
        self._servers, self.shares = servers, shares
        self.seconds = dict.fromkeys((share.door for share in shares), 0.0)
        self.highest = dict.fromkeys(Servers._fields, 0)
        self._first: list[Measured] = []
        self.rounds = 0

    @property
    def inputs(self) -> int:
        return sum(share.attack.told.inputs for share in self.shares)

    async def batch(self, inputs: int) -> None:
        for share in self.shares:
            await self._attack(share, max(1, round(inputs * share.part)))
        self.rounds += 1
        await each_door_serves(self._servers, self.rounds)
        await self._look()

    async def _attack(self, share: Share, inputs: int) -> None:
        told, began = share.attack.told, time.monotonic()
        await share.attack.run(told.inputs + inputs)
        self.seconds[share.door] += time.monotonic() - began
        self._note_memory()
        memory = [round(process.resident_mib()) for process in self._servers]
        print(f"{self.inputs:8} inputs, {share.door}: {told.inputs}; {memory} MiB", flush=True)
        assert not told.wrong, f"{share.door}: {told.wrong[0]}"

    def _note_memory(self) -> None:
        for name, process in zip(Servers._fields, self._servers, strict=True):
            assert process.popen.poll() is None, f"{name} has ended: {process.err.read_text()[-2000:]}"
            self.highest[name] = max(self.highest[name], round(process.resident_mib()))

    async def _look(self) -> None:
        """Nothing stays of a batch. What goes by itself after a while has that while."""
        found = [await measured(process) for process in self._servers]
        self._first = self._first or found
        for process, first in zip(self._servers, self._first, strict=True):

            async def flat(process: Process = process, first: Measured = first) -> bool:
                now = await measured(process)
                return now.sockets <= first.sockets + MORE_SOCKETS and now.tasks <= first.tasks + MORE_TASKS

            try:
                await until(flat, QUIET_S)
            except AssertionError:
                now = await measured(process)
                raise AssertionError(f"{process.directory.name}: {first} after the first batch, {now} now") from None
        sizes = {
            name: round(process.resident_mib()) for name, process in zip(Servers._fields, self._servers, strict=True)
        }
        print(f"{self.inputs:8} inputs: {sizes} MiB, {[tuple(one) for one in found]}", flush=True)
        assert max(sizes.values()) <= MOST_MIB, f"memory after a batch: {sizes}, at most {MOST_MIB} MiB"

    def lines(self) -> Iterable[str]:
        for share in self.shares:
            told, seconds = share.attack.told, max(self.seconds[share.door], 0.001)
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(told.outcomes.items()))
            yield f"{share.door}: {told.inputs} inputs, {told.inputs / seconds:.0f}/s: {counts}"
        yield f"highest memory, MiB: {self.highest}; bound after a batch {MOST_MIB}"


async def prove(directory: Path, options: argparse.Namespace) -> Proof:
    servers = await Servers.start(directory)
    try:
        shares = [share for share in await doors(servers, options.seed) if options.door in share.door]
        whole = sum(share.part for share in shares)
        shares = [share._replace(part=share.part / whole) for share in shares]
        proof = Proof(servers, shares)
        began = time.monotonic()
        while proof.inputs < options.inputs:
            await proof.batch(min(options.batch, options.inputs - proof.inputs))
            if options.seconds and time.monotonic() - began > options.seconds:
                print(f"ended after {options.seconds} s", flush=True)
                break
        await ended(servers, proof, whole=not options.door)
    finally:
        servers.kill()
    return proof


async def ended(servers: Servers, proof: Proof, *, whole: bool) -> None:
    """``whole``: every door was attacked, so that there must be stored runs."""
    for process in (servers.console, servers.dev, servers.broker, servers.namesrv):
        assert await process.stop() == 0, process.err.read_text()[-2000:]
        faults = log_faults(process)
        assert not faults, f"{process.directory.name}: {faults[0]}"
    if whole:
        refused: set[int] = set().union(*(share.attack.told.refused for share in proof.shares))
        check_left_behind(refused, servers.broker)


def main() -> int:
    parser = argparse.ArgumentParser(description="Hostile inputs to every door of every server.")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=BATCH, help="inputs between two looks")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    parser.add_argument("--door", default="", help="only doors with this in their name")
    parser.add_argument("--seconds", type=float, default=0, help="no further batch after so long; 0: never")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"seed {options.seed}", flush=True)
    directory, began = Path(tempfile.mkdtemp(prefix="hostile-")), time.monotonic()
    try:
        proof = asyncio.run(prove(directory, options))
    except (AssertionError, TimeoutError, ExceptionGroup) as failure:
        print(f"\nFAILED: {failure!r}; seed {options.seed}, everything is in {directory}", file=sys.stderr)
        return 1
    for line in proof.lines():
        print(line)
    print(f"{proof.inputs} inputs, seed {options.seed}, {time.monotonic() - began:.0f} s, {proof.rounds} batches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
