"""Delay levels over a real, small store and a clock that tests turn: what is stored, waits and is delivered."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker_tables import a_writer, delay_progress
from broker_wire import SMALL
from dejamq_broker.base.identity import Site
from dejamq_broker.deferred.delay import DelayService, scheduled
from dejamq_broker.store import Appended, MessageStore
from dejamq_broker.writing.record_writer import RecordOrigin
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.records.record import Record, decode, encode_properties

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
BACKOFF_MS = 10_000


class Clock:
    """Wall time, in ms."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class World:
    """One start of a broker's delay service. ``deliveries`` are the origins of what it stored, in order."""

    def __init__(self, directory: Path, store: MessageStore, clock: Clock, levels_ms: tuple[int, ...]) -> None:
        self.store, self.clock, self._levels = store, clock, len(levels_ms)
        journal = Journal(None, role="broker", process="b", boot_id="x", level=Level.OFF)
        site = Site(
            cluster="c", broker_name="broker-a", broker_id=0, boot_id="b0", address="127.0.0.1:10911",
            store_host=("127.0.0.1", 10911),
        )  # fmt: skip
        self.writer = a_writer(store, journal, site)
        self.progress = delay_progress(directory / "delayOffset.json", journal)
        self.progress.load()
        self.service = DelayService(store, self.writer, self.progress, levels_ms, clock, BACKOFF_MS, lambda topic: True)
        self.service.clamp()
        self.deliveries: list[str] = []
        put = self.writer.put

        def noting(record: Record, origin: RecordOrigin) -> Appended:
            stored = put(record, origin)
            self.deliveries.append(origin.ref)
            return stored

        self.writer.put = noting  # type: ignore[method-assign]  # it notes and goes on

    def delay(self, level: int, body: bytes = b"x", topic: str = "orders") -> None:
        """Store a message that waits at this level."""
        record = Record(topic=topic, queue_id=0, body=body, raw_properties=encode_properties({"DELAY": str(level)}))
        self.store.put(scheduled(record, self._levels))

    def delivered(self, topic: str = "orders") -> list[bytes]:
        """Bodies in the topic's queue, in order."""
        found, at, bodies = self.store.read(topic, 0, 0, max_messages=1000), 0, []
        for size in found.sizes:
            bodies.append(decode(found.records, at).body)
            at += size
        return bodies


@contextmanager
def world(directory: Path, clock: Clock, table: str = "1s 5s 10s") -> Iterator[World]:
    """Opens the directory's store and closes it cleanly; progress is kept only where a test flushes it."""
    config = dataclasses.replace(SMALL, message_delay_level=table, flush_disk_type="ASYNC_FLUSH")
    store = MessageStore.open(directory / "store", config, clock_ms=clock)
    try:
        yield World(directory, store, clock, config.delay_levels_ms)
    finally:
        store.close()
