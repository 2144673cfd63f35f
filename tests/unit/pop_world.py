"""A broker's domain over a real, small store, without doors, with a clock that tests turn: what a group pops.

``crash`` goes on with the files as a SIGKILL would leave them: whatever was appended, and the tables as last flushed.
"""

import dataclasses
import itertools
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from broker_wire import broker_config
from dejamq_broker.base import json_file
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.domain import Domain
from dejamq_broker.paths.long_poll import LongPoll
from dejamq_broker.pop.handles import Handle
from dejamq_broker.pop.query import PopQuery
from dejamq_broker.store import MessageStore
from dejamq_broker.tables.offsets import NOBODY
from dejamq_proto.clock import ClocksMs
from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.writer import open_journal
from dejamq_proto.records.record import Record, decode, encode_properties

TOPIC, GROUP = "orders", "g"
IN_QUEUES_S = 30


class Given(NamedTuple):
    """One delivery."""

    body: bytes
    attempt: int
    handle: Handle
    topic: str


class PopWorld:
    """One broker, again and again. ``now_ms`` is its clock."""

    def __init__(self, directory: Path, queues: int = 2, *, journal_level: str = "off", **settings: Any) -> None:
        self.now_ms, self.queues, self._settings = 1_700_000_000_000, queues, settings
        self.journal_dir, self._journal_level = directory / "journal", journal_level
        self._directories = (directory / f"life{number}" for number in itertools.count())
        self.directory = next(self._directories)
        self._open()

    def _open(self) -> None:
        config: BrokerConfig = broker_config(self.directory, **self._settings)
        self.config = dataclasses.replace(
            config, store=dataclasses.replace(config.store, flush_disk_type="ASYNC_FLUSH")
        )
        site = Site(
            cluster=config.cluster_name, broker_name=config.broker_name, broker_id=0, boot_id="b0",
            address="127.0.0.1:10911", store_host=("127.0.0.1", 10911),
        )  # fmt: skip
        self.store = MessageStore.open(self.directory, self.config.store, clock_ms=self.clock)
        self.journal = open_journal(
            self.journal_dir, role="broker", process="b", boot_id="b0", level=self._journal_level
        )
        self.domain = Domain(
            self.config, self.store, self.journal, site, ClocksMs(self.clock, self.clock), LongPoll(),
            on_topics=lambda: None, master_there=lambda: False,
        )  # fmt: skip
        self.domain.tables.topics.ensure(TOPIC, self.queues)
        self.popping = self.domain.popping

    def clock(self) -> int:
        return self.now_ms

    # what happens to the broker

    def crash(self) -> None:
        """The process is gone between two steps, and another one opens what it left.

        Tables have reached their files: whoever changed them was told so.
        """
        after = next(self._directories)
        shutil.copytree(self.directory, after, ignore=shutil.ignore_patterns("lock", "*.tmp", "index*"))
        tables = self.domain.tables
        json_file.write(after / "config" / "topics.json", tables.topics.content())
        json_file.write(after / "config" / "subscriptionGroup.json", tables.groups.content())
        self.store.close()
        shutil.rmtree(self.directory, ignore_errors=True)  # a write may be under way
        self.directory = after
        self._open()

    async def flush(self) -> None:
        """The tables reach their files, as they do every few seconds."""
        await self.popping.tidy()
        await self.domain.tables.offsets.flush()

    async def restart(self) -> None:
        """A clean stop, and a start."""
        await self.flush()
        await self.domain.tables.kept()
        self.store.close()
        self._open()

    async def after(self, ms: int) -> None:
        """Time passes, and what is due is revived."""
        self.now_ms += ms
        await self.popping.revive()

    def close(self) -> None:
        self.store.close()

    # what clients do

    def send(self, *bodies: bytes, queue_id: int = 0, topic: str = TOPIC, tags: str = "") -> None:
        for body in bodies:
            properties = encode_properties({"UNIQ_KEY": body.decode(), "TAGS": tags})
            self.store.put(Record(topic, queue_id, body, properties, store_host=("127.0.0.1", 10911)))

    def _in_queues(self) -> None:
        """Wait until what was appended is in its queues: on a busy machine the store's thread may be at it yet."""
        end = time.monotonic() + IN_QUEUES_S
        while self.store.dispatched < self.store.log_max and time.monotonic() < end:
            time.sleep(0.001)

    def pop(self, most: int = 32, invisible_ms: int = 10_000, **query: Any) -> list[Given]:
        self._in_queues()
        wanted = PopQuery(group=GROUP, topic=TOPIC, max_messages=most, invisible_ms=invisible_ms, **query)
        self.popping.pops.begin(wanted)
        found = []
        for batch in self.popping.pops.pop(wanted).batches:
            at = 0
            for number, (handle, size) in enumerate(zip(batch.handles(), batch.sizes, strict=True)):
                record = decode(batch.records, at)
                attempt = batch.counts[number] if batch.counts else record.reconsume_times
                found.append(Given(record.body, attempt + 1, handle, batch.topic))
                at += size
        return found

    def ack(self, *given: Given) -> list[int]:
        """The code of each, 0 where it is done."""
        return self.ack_handles([each.handle for each in given])

    def ack_handles(self, handles: Sequence[Handle]) -> list[int]:
        outcomes = self.popping.pops.ack(GROUP, TOPIC, handles, NOBODY)
        return [0 if error is None else int(error.code) for error in outcomes]

    def change(self, given: Given, invisible_ms: int) -> Given | int:
        """The same delivery with its new handle, or the code of the refusal."""
        try:
            handle = self.popping.pops.change(GROUP, TOPIC, given.handle, invisible_ms, NOBODY)
        except DejamqError as error:
            return int(error.code)
        return given._replace(handle=handle)

    def bodies_in(self, topic: str) -> list[bytes]:
        """Of all its queues."""
        self._in_queues()
        config = self.domain.tables.topics.get(topic)
        found = []
        for queue_id in range(config.queues if config else 0):
            read, at = self.store.read(topic, queue_id, 0, max_messages=10_000, max_bytes=1 << 24), 0
            for size in read.sizes:
                found.append(decode(read.records, at).body)
                at += size
        return found


@contextmanager
def pop_world(directory: Path, queues: int = 2, *, journal_level: str = "off", **settings: Any) -> Iterator[PopWorld]:
    world = PopWorld(directory, queues, journal_level=journal_level, **settings)
    try:
        yield world
    finally:
        world.close()


def bodies(given: Sequence[Given]) -> list[bytes]:
    return [each.body for each in given]
