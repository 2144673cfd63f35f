"""A SYNC_MASTER with SYNC_FLUSH whose machine dies: what was answered is on its slave at that moment, and stays there.

The master's disk is a model that forgets what was not synced; the slave's is not. Afterwards the master comes back with
what its disk kept, and the slave follows it again.
"""

import asyncio
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
from broker_wire import SMALL, Wire, a_run, running
from dejamq_broker.app import Broker
from dejamq_broker.base.config import SYNC_MASTER
from dejamq_broker.store import SYNC_FLUSH
from dejamq_proto.codes import Code
from disk_model import Disk
from ha_pair import QUICK, a_link, following, same
from store_making import records_of

STORE = replace(SMALL, mapped_file_size_commit_log=1 << 16, flush_interval_consume_queue_ms=5, max_hash_slot_num=7)
SENDERS, MOST_WRECKS, RUNS, LONGEST_DELAY_MS = 4, 3, 40, 20


class Answered(msgspec.Struct, frozen=True):
    """A message that a producer was told is stored: ``end`` is the log offset behind it."""

    queue_id: int
    queue_offset: int
    body: bytes
    end: int


class PowerLoss(msgspec.Struct, frozen=True):
    """What a power loss left of the master, and what was known when it came."""

    directory: Path
    kind: str
    answered: int
    slave_end: int


class Life:
    """Master, slave, and producers that wait for each answer."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.losses: list[PowerLoss] = []
        self.answered: list[Answered] = []
        self._directory, self._rng = directory, random.Random(seed)
        self._slave: Broker | None = None
        self._kinds: Counter[str] = Counter()
        (directory / "disk").mkdir(parents=True)
        self._disk = Disk(directory / "disk", self._on_step)

    async def live(self) -> None:
        with self._disk.watching():
            sync: dict[str, Any] = {"broker_role": SYNC_MASTER, "slave_timeout_ms": 30_000, "store": STORE_SYNCED}
            async with (
                running(self._directory / "disk" / "store", **(QUICK | sync)) as master,
                a_link(master.address) as link,
                Wire(master.address) as wire,
            ):
                follow: dict[str, Any] = {"broker_id": 1, "ha_master_address": link.address, "store": STORE}
                async with running(self._directory / "slave", **(QUICK | follow)) as self._slave:
                    await following(self._slave)
                    link.delay(self._rng.uniform(1, LONGEST_DELAY_MS))  # or the slave would have all before the disk
                    await asyncio.gather(*(self._send(wire, sender) for sender in range(SENDERS)))

    async def _send(self, wire: Wire, queue_id: int) -> None:
        for number in range(RUNS):
            size = self._rng.choice((10, 300, 2500))
            bodies = [b"%d-%d" % (number, each) + b"." * size for each in range(self._rng.randint(1, 5))]
            try:
                answer = await wire.send(a_run("T", bodies, queue_id=queue_id))
            except grpc.aio.AioRpcError:
                continue  # a power loss is modelled slowly on a busy machine: not answered, so nothing is promised
            if answer.code in STORED_HERE_ALONE:
                continue  # so the busy slave is told of, too
            assert answer.code == Code.SUCCESS, answer.remark
            place = int(answer.span_log_offsets[-1])
            for offset, body in zip(answer.queue_offsets.tolist(), bodies, strict=True):
                self.answered.append(Answered(queue_id, offset, body, place + 1))

    def _on_step(self, kind: str) -> None:
        """Any thread; nothing of the disk moves meanwhile. What is answered now was answered before the power loss."""
        self._kinds[kind] += 1
        if self._slave is None or not self.answered or len(self.losses) >= MOST_WRECKS:
            return  # a master that lost everything is not followed any more
        if self._rng.random() < 0.2 / self._kinds[kind] + 0.005:
            answered, slave_end = len(self.answered), self._slave.domain.store.log_max
            directory = self._directory / f"loss-{len(self.losses)}"
            self._disk.wreck(directory, random.Random(self._rng.random()))
            self.losses.append(PowerLoss(directory / "store", kind, answered, slave_end))


STORED_HERE_ALONE = (Code.SLAVE_NOT_AVAILABLE, Code.FLUSH_SLAVE_TIMEOUT)
STORE_SYNCED = replace(STORE, flush_disk_type=SYNC_FLUSH)


async def outlived(directory: Path, seed: int) -> int:
    """Live once. Answers how many power losses there were; of none was anything lost. Raises AssertionError."""
    life = Life(directory, seed)
    await life.live()
    for number, loss in enumerate(life.losses):
        slave = directory / f"slave-{number}"
        shutil.copytree(directory / "slave", slave)
        try:
            await _come_back(loss, life.answered[: loss.answered], slave)
        except AssertionError as error:
            raise AssertionError(
                f"seed {seed}, power loss at [{loss.kind}]: {error}; the stores are in {loss.directory} and {slave}"
            ) from error
    return len(life.losses)


async def _come_back(loss: PowerLoss, answered: list[Answered], slave_directory: Path) -> None:
    missing = [message for message in answered if message.end > loss.slave_end]
    assert not missing, f"{len(missing)} of {len(answered)} answered messages were not on the slave"
    async with running(loss.directory, **(QUICK | {"store": STORE_SYNCED})) as master:
        follow: dict[str, Any] = {"broker_id": 1, "ha_master_address": master.address, "store": STORE}
        async with running(slave_directory, **(QUICK | follow)) as slave:
            _all_there(slave, answered, "the slave")
            _all_there(master, answered, "the master")
            await following(slave)
            await same(master, slave)
            _all_there(slave, answered, "the slave that follows again")


def _all_there(broker: Broker, answered: list[Answered], where: str) -> None:
    found = {
        (queue_id, record.queue_offset, record.body)
        for queue_id in range(SENDERS)
        for record in records_of(broker.domain.store, "T", queue_id)
    }
    lost = {(message.queue_id, message.queue_offset, message.body) for message in answered} - found
    assert not lost, f"{where} lost {len(lost)} of {len(answered)} answered messages"
