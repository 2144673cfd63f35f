"""Timed messages over a real, small store and a clock that tests turn: what is stored, waits and is delivered."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_tables import a_writer, timer_progress, topic_table
from broker_wire import SMALL
from dejamq_broker.base.identity import Site
from dejamq_broker.store import Appended, MessageStore, StoreConfig
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.timer.recall import Recalls
from dejamq_broker.timer.rules import TimerRules
from dejamq_broker.timer.service import TimerService
from dejamq_broker.timer.units import TimerLog
from dejamq_broker.timer.wheel import TimerWheel
from dejamq_broker.writing.record_writer import RecordOrigin
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.records.record import Record, decode, encode_properties
from delay_world import Clock

TIMER = "rmq_sys_wheel_timer"
BACKOFF_MS, DAY_MS = 10_000, 86_400_000
UNITS_FILE = 4096
SITE = Site(
    cluster="c", broker_name="broker-a", broker_id=0, boot_id="b0", address="127.0.0.1:10911",
    store_host=("127.0.0.1", 10911),
)  # fmt: skip


class Limits:
    """Of one world. The window is in slots."""

    def __init__(self, precision_ms: int = 1000, window: int = 172_800, units_file: int = UNITS_FILE) -> None:
        self.precision_ms, self.window, self.units_file = precision_ms, window, units_file


class World:
    """One start of a broker's timer. ``deliveries`` are the origins of what it stored, in order, and ``rolled`` the
    keys of what it stored to wait on.
    """

    def __init__(self, directory: Path, store: MessageStore, clock: Clock, limits: Limits) -> None:
        self.store, self.clock = store, clock
        self.journal = Journal(directory / "j.jsonl", role="broker", process="b", boot_id="x", level=Level.FORENSIC)
        self.writer = a_writer(store, self.journal, SITE)
        self.topics = topic_table(directory / "topics.json", clock)
        self.topics.ensure("orders", 4)
        check = directory / "store" / "config" / "timercheck"
        self.progress = timer_progress(check, self.journal, precision_ms=limits.precision_ms)
        self.progress.load()
        self.rules = TimerRules(limits.precision_ms, 3 * DAY_MS, limits.window, clock)
        self.recalls = Recalls(self.writer, self.topics, self.rules, clock, enabled=True, writable=lambda: True)
        self.unit_log = TimerLog(directory / "store" / "timerlog", limits.units_file)
        self.service = TimerService(
            store, self.writer, self.progress, self.rules,
            TimerWheel(directory / "store" / "timerwheel", limits.precision_ms),
            self.unit_log, clock, BACKOFF_MS,
            lambda topic: self.topics.get(topic) is not None, left_to_others="rmq_sys_REVIVE_LOG_c",
        )  # fmt: skip
        self.service.recover()
        self.deliveries: list[RecordOrigin] = []
        self.rolled: list[str] = []
        put = self.writer.put

        def noting(record: Record, origin: RecordOrigin) -> Appended:
            stored = put(record, origin)
            self.deliveries.append(origin)
            if origin.kind == "timer_roll":
                self.rolled.append(record.body.decode())
            return stored

        self.writer.put = noting  # type: ignore[method-assign]  # it notes and goes on

    def send(self, key: str, topic: str = "orders", **properties: object) -> Appended:
        """A message with these properties, whose body is its key; it waits if they say so."""
        texts = {"UNIQ_KEY": key} | {name: str(value) for name, value in properties.items()}
        record = Record(
            topic, int(topic != TIMER), key.encode(), encode_properties(texts),
            born_timestamp_ms=17, born_host=("1.2.3.4", 5),
        )  # fmt: skip
        return self.store.put(self.rules.waiting(record))

    def recall(self, key: str, out_ms: int) -> str:
        handle = self.recalls.handle_of("orders", out_ms, key)
        return self.recalls.recall("orders", handle, "g", Asker(), (0x01020304, 5))

    async def at(self, now_ms: int) -> "World":
        """A turn at this time."""
        self.clock.now_ms = now_ms
        await self.service.step()
        return self

    def records(self, topic: str = "orders", queue_id: int = 1) -> list[Record]:
        """Everything in a queue."""
        records: list[Record] = []
        while True:
            found, at = self.store.read(topic, queue_id, len(records), max_messages=1024, max_bytes=1 << 20), 0
            if not len(found.sizes):
                return records
            for size in found.sizes:
                records.append(decode(found.records, at))
                at += size

    def keys(self) -> list[str]:
        """Those of delivered messages, in their order."""
        return [record.body.decode() for record in self.records()]


@contextmanager
def world(directory: Path, clock: Clock, limits: Limits | None = None, **settings: Any) -> Iterator[World]:
    """Opens the directory's store and closes it cleanly; the progress is kept only where a test flushes it."""
    config: StoreConfig = dataclasses.replace(SMALL, flush_disk_type="ASYNC_FLUSH", **settings)
    store = MessageStore.open(directory / "store", config, clock_ms=clock)
    made = None
    try:
        made = World(directory, store, clock, limits or Limits())
        yield made
    finally:
        if made is not None:
            made.service.close_now()
            made.journal.close()
        store.close()
