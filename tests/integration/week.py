"""Days in the life of a broker, at the speed of the machine: its clock is turned on by a quarter of an hour at a time.

A real broker in this process sends, expires, rotates, delivers and restarts; only the time of day is ours. The time at
which a log file was last written is ours as well, since the disk's clock cannot be turned.
"""

import gc
import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from broker_wire import SMALL, Wire, a_run, broker_config, until
from dejamq.native import COMPILED, IdSource
from dejamq.values.unique_id import UniqueIds
from dejamq_broker.app import Broker
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.index.query import KeyQuery
from dejamq_lab.cluster.usage import memory_mib
from dejamq_proto import admin_pb2, common_pb2
from dejamq_proto.admin_pb2_grpc import AdminStub
from dejamq_proto.records.record import Record, decode

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
STEP_MS = 15 * MINUTE_MS
LOG_FILE = 256 << 10
JOURNAL_BYTES = 128 << 10
BODY = 2_000
QUEUES = 4
LONGEST_WAIT_H = 70
DEADLINE_S = 30
LOOKED_AT = 4, 45
"""The last step of the hour in which files expire."""
BERLIN = "Europe/Berlin"


@contextmanager
def zone(name: str) -> Iterator[None]:
    """This process's local time is another one's."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time.tzset()


class Clock:
    """Milliseconds since 1970, turned by the life."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def seconds(self) -> float:
        return self.now_ms / 1000


@dataclass
class Sent:
    """An acknowledged message. ``due_ms``: of one that waits."""

    topic: str
    queue_id: int
    stored_ms: int
    key: str
    due_ms: int = 0


@dataclass
class Day:
    """What was held at a midnight."""

    at: str
    descriptors: int
    """Of sockets, folders and whatever else is no file of the store."""
    open_files: int
    own_mib: float
    log_files: int
    index_files: int
    files: int
    """In the store, all together."""


@dataclass
class Told:
    """What the days showed; ``faults`` are violations in words."""

    sent: int = 0
    delivered: int = 0
    looks: int = 0
    gone: int = 0
    """Messages that had expired at the last look."""
    ids: int = 0
    restarts: int = 0
    rotations: int = 0
    days: list[Day] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    zones: set[str] = field(default_factory=set)

    def lines(self) -> list[str]:
        return [
            f"{self.sent} messages, {self.delivered} of them for a time, {self.ids} ids, {self.looks} looks at what is "
            f"kept ({self.gone} messages had expired at the last one)",
            f"{self.restarts} restarts, {self.rotations} rotations of the journal, zones {sorted(self.zones)}",
            *(
                f"{day.at}: {day.descriptors} descriptors and {day.open_files} of files, {day.own_mib:.1f} MiB, "
                f"{day.log_files} log files, {day.index_files} index files, {day.files} files in all"
                for day in self.days
            ),
            *(f"FAULT: {fault}" for fault in self.faults[:20]),
        ]


class Life:
    """One broker over simulated days."""

    def __init__(
        self, directory: Path, begins: datetime, *, reserved_hours: int = 72, delete_when: str = "04", seed: int = 1,
        restart_hours: int = 30, per_step: int = 6,
    ) -> None:  # fmt: skip
        """``begins`` is a local time."""
        self.told, self.clock = Told(), Clock(int(begins.timestamp() * 1000))
        self._directory, self._reserved_ms, self._restart_hours = directory, reserved_hours * HOUR_MS, restart_hours
        self._per_step, self._chance = per_step, random.Random(seed)
        ids = UniqueIds("127.0.0.1", clock=self.clock.seconds)
        self._take: Callable[[], str] = IdSource(ids.advance).take if COMPILED else ids.take
        self._plain_ids = UniqueIds("127.0.0.2", clock=self.clock.seconds)
        self._ids: set[str] = set()
        self._numbers = itertools.count()
        self._sent: dict[tuple[str, int], list[Sent]] = {}
        self._waiting: dict[str, Sent] = {}
        self._written_ms: dict[str, int] = {}
        self._day_topics: list[str] = []
        store = replace(
            SMALL, mapped_file_size_commit_log=LOG_FILE, mapped_file_size_timer_log=4096, max_index_num=60,
            max_hash_slot_num=97, file_reserved_time_hours=reserved_hours, delete_when=delete_when,
            clean_resource_interval_ms=20, clean_resource_delay_ms=1, disk_check_delay_ms=1,
            delete_commit_log_files_interval_ms=1, flush_interval_commit_log_ms=5,
            flush_commit_log_thorough_interval_ms=20, flush_interval_consume_queue_ms=5,
            flush_consume_queue_least_pages=1,
            flush_consume_queue_thorough_interval_ms=50,
        )  # fmt: skip
        self._config = broker_config(
            directory / "store", store=store, schedule_poll_interval_ms=5, timer_flush_interval_ms=50,
            flush_consumer_offset_interval_ms=50, flush_delay_offset_interval_ms=50,
            journal_dir=str(directory / "journal"), journal_max_bytes=JOURNAL_BYTES,
        )  # fmt: skip
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    async def days(self, count: float) -> Told:
        """Live for so many days."""
        ends_ms = self.clock.now_ms + int(count * DAY_MS)
        with patch.object(MappedFile, "modified_ms", lambda file: self._written_ms.get(file.path.name, self.clock())):
            try:
                while self.clock.now_ms < ends_ms:
                    async with self._started() as wire:
                        await self._live(wire, min(ends_ms, self.clock.now_ms + self._restart_hours * HOUR_MS))
            finally:
                if self._broker is not None:
                    await self._broker.close()
        return self.told

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[Wire]:
        self._broker = Broker(self._config, clock_ms=self.clock)
        await self._broker.start()
        async with Wire(self._broker.address) as wire:
            if not self.told.restarts:
                await self._once(wire)
            yield wire
        await self._broker.close()
        self._broker = None
        self.told.restarts += 1

    async def _once(self, wire: Wire) -> None:
        for topic in ("orders", "timed", "once"):
            await self._topic(wire, topic)
        await self._send(wire, "once")
        (await wire.heartbeat_stream("readers", "daily")).cancel()

    async def _live(self, wire: Wire, ends_ms: int) -> None:
        while self.clock.now_ms < ends_ms:
            before = time.localtime(self.clock.seconds())
            self.clock.now_ms += STEP_MS
            now = time.localtime(self.clock.seconds())
            self.told.zones.add(str(now.tm_zone))
            await self._step(wire)
            if now.tm_hour != before.tm_hour:
                await self._hour(wire)
            if now.tm_mday != before.tm_mday:
                await self._midnight(wire)
            if (now.tm_hour, now.tm_min) == LOOKED_AT:
                await self._look()

    # what happens

    async def _step(self, wire: Wire) -> None:
        begin = self.broker.domain.store.log_max
        for _ in range(self._per_step):
            await self._send(wire, "orders")
        for file in self.broker.domain.store.inspect().log.files.files:
            if file.end >= begin:
                self._written_ms[file.path.name] = self.clock()
        self._take_ids()
        await self._arrived()

    async def _hour(self, wire: Wire) -> None:
        wait_ms = self._chance.randrange(1, LONGEST_WAIT_H * 60) * MINUTE_MS
        await self._send(
            wire, "timed", due_ms=self.clock.now_ms + wait_ms, TIMER_DELIVER_MS=self.clock.now_ms + wait_ms
        )
        await self._send(wire, "timed", due_ms=self.clock.now_ms + 2 * HOUR_MS, DELAY=18)
        await wire.commit("readers", "orders", self.broker.domain.store.max_offset("orders", 0))
        self._look_by_key()
        self._look_by_time()

    async def _midnight(self, wire: Wire) -> None:
        """Yesterday's topic ends, and with it everybody's offsets of it; today's begins."""
        for topic in self._day_topics:
            await wire.call(self._admin(wire).DeleteTopic, admin_pb2.DeleteTopicRequest(
                caller=wire.caller(), topic=topic
            ))  # fmt: skip
            self._sent = {key: sent for key, sent in self._sent.items() if key[0] != topic}
            await until(lambda topic=topic: self._forgotten(topic), DEADLINE_S)
        self._day_topics = [f"day-{datetime.fromtimestamp(self.clock.seconds()):%m-%d}"]
        await self._topic(wire, self._day_topics[0])
        for _ in range(QUEUES):
            await self._send(wire, self._day_topics[0])
        await wire.commit("daily", self._day_topics[0], 1)
        self._measure()

    def _forgotten(self, topic: str) -> bool:
        folder = self._directory / "store"
        offsets = json.loads((folder / "config" / "consumerOffset.json").read_text())["offsetTable"]
        known = any(topic == name for name, _ in self.broker.domain.store.queues())
        return not known and not any(topic in key for key in offsets) and not (folder / "consumequeue" / topic).exists()

    def _admin(self, wire: Wire) -> Any:
        return AdminStub(wire.channel)

    async def _topic(self, wire: Wire, name: str) -> None:
        config = common_pb2.TopicConfig(topic=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
        request = admin_pb2.CreateTopicRequest(caller=wire.caller(), topic=config)
        await wire.call(self._admin(wire).CreateTopic, request)

    async def _send(self, wire: Wire, topic: str, *, due_ms: int = 0, **properties: object) -> None:
        number, key = next(self._numbers), self._take()
        self._fresh(key)
        texts = {"UNIQ_KEY": key, "KEYS": f"k{number}"} | {name: str(value) for name, value in properties.items()}
        queue_id = number % QUEUES
        run = a_run(
            topic, [key.encode().ljust(BODY, b".")], queue_id=queue_id, seq=number + 1, properties=texts,
            rewrite=bool(properties),
        )  # fmt: skip
        result = await wire.send(run)
        if result.code:
            self.told.faults.append(f"{self._now()}: a send was refused: {result.code} {result.remark}")
            return
        self.told.sent += 1
        sent = Sent(topic, queue_id, self.clock.now_ms, key, due_ms)
        if due_ms:
            self._waiting[key] = sent
        else:
            self._sent.setdefault((topic, queue_id), []).append(sent)

    # what must hold

    def _take_ids(self) -> None:
        month = datetime.fromtimestamp(self.clock.seconds()).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        for key in (self._take(), self._plain_ids.take()):
            self._fresh(key)
            stands_for_ms = int(month.timestamp() * 1000) + int(key[20:28], 16)
            if abs(stands_for_ms - self.clock.now_ms) > 1000:
                self.told.faults.append(f"{self._now()}: id {key} tells {stands_for_ms}, it is {self.clock.now_ms}")

    def _fresh(self, key: str) -> None:
        self.told.ids += 1
        if key in self._ids:
            self.told.faults.append(f"{self._now()}: id {key} came twice")
        self._ids.add(key)

    async def _arrived(self) -> None:
        """Messages for a time are there when they are due, once, and not before."""
        store = self.broker.domain.store
        due = [sent for sent in self._waiting.values() if sent.due_ms <= self.clock.now_ms]
        places = {queue_id: len(self._sent.get(("timed", queue_id), ())) for queue_id in range(QUEUES)}
        wanted = Counter(sent.queue_id for sent in due)

        def all_there() -> bool:
            return all(
                store.max_offset("timed", queue_id) >= places[queue_id] + count for queue_id, count in wanted.items()
            )

        try:
            await until(all_there, DEADLINE_S)
        except AssertionError:
            self.told.faults.append(f"{self._now()}: of {len(due)} messages that are due not all came")
        for queue_id, before in places.items():
            for record in self._records("timed", queue_id, before):
                self._take_delivered(record)

    def _take_delivered(self, record: Record) -> None:
        key = record.properties["UNIQ_KEY"]
        sent = self._waiting.pop(key, None)
        if sent is None:
            self.told.faults.append(f"{self._now()}: {key} came twice")
        elif sent.due_ms > self.clock.now_ms or sent.due_ms < self.clock.now_ms - STEP_MS - 1000:
            self.told.faults.append(f"{self._now()}: {key} was due at {sent.due_ms}, came at {self.clock.now_ms}")
        self._sent.setdefault(("timed", record.queue_id), []).append(
            Sent("timed", record.queue_id, record.store_timestamp_ms, key)
        )
        self.told.delivered += 1

    def _records(self, topic: str, queue_id: int, begin: int) -> Iterator[Record]:
        store = self.broker.domain.store
        begin = max(begin, store.min_offset(topic, queue_id))
        while begin < store.max_offset(topic, queue_id):
            found, at = store.read(topic, queue_id, begin, max_messages=64, max_bytes=1 << 20), 0
            if not len(found.sizes):
                self.told.faults.append(f"{self._now()}: {topic} {queue_id} at {begin}: {found.status}")
                return
            for size in found.sizes:
                yield decode(memoryview(found.records)[at : at + size])
                at += size
            begin += len(found.sizes)

    async def _look(self) -> None:
        """Everything within retention is there, and everything older is gone."""
        store = self.broker.domain.store
        files = store.inspect().log.files
        keeps_from_ms = self.clock.now_ms - self._reserved_ms

        def expired_are_gone() -> bool:
            return all(self._written_ms.get(file.path.name, self.clock()) > keeps_from_ms for file in files.files[:-1])

        try:
            await until(expired_are_gone, DEADLINE_S)
            await until(lambda: self._followed(store.log_min), DEADLINE_S)
        except AssertionError:
            self.told.faults.append(f"{self._now()}: files that have expired are still there")
        self.told.gone = 0
        for (topic, queue_id), sent in self._sent.items():
            kept = [record.properties["UNIQ_KEY"] for record in self._records(topic, queue_id, 0)]
            gone = len(sent) - len(kept)
            self.told.gone += gone
            if kept != [one.key for one in sent[gone:]]:
                self.told.faults.append(f"{self._now()}: {topic} {queue_id}: not the messages that were sent")
            if any(one.stored_ms > self.clock.now_ms - self._reserved_ms for one in sent[:gone]):
                self.told.faults.append(f"{self._now()}: {topic} {queue_id}: a message went before its time")
            if store.min_offset(topic, queue_id) != gone or store.max_offset(topic, queue_id) != len(sent):
                self.told.faults.append(f"{self._now()}: {topic} {queue_id}: not from {gone} to {len(sent)}")
        self.told.looks += 1

    def _followed(self, log_min: int) -> bool:
        """Queues begin behind what expired."""
        store = self.broker.domain.store
        for topic, queue_id in store.queues():
            begin = store.min_offset(topic, queue_id)
            entries = (
                store.queue_entries(topic, queue_id, begin, 1) if begin < store.max_offset(topic, queue_id) else []
            )
            if entries and entries[0][0] < log_min:
                return False
        return True

    def _look_by_key(self) -> None:
        """A message of some hours ago and the newest one are found by their keys."""
        sent = self._sent[("orders", 0)]
        for one in {len(sent) - 1, max(0, len(sent) - 1 - self._chance.randrange(20))}:
            wanted = sent[one]
            found = self.broker.domain.store.query(KeyQuery(
                "orders", wanted.key, wanted.stored_ms - STEP_MS, wanted.stored_ms + STEP_MS, unique=True
            ))  # fmt: skip
            if len(found.records) != 1:
                self.told.faults.append(f"{self._now()}: {wanted.key} of {wanted.stored_ms} is found {found.records!r}")

    def _look_by_time(self) -> None:
        store, sent = self.broker.domain.store, self._sent[("orders", 0)]
        wanted = sent[max(0, len(sent) - 1 - self._chance.randrange(20))].stored_ms
        found = store.search_offset("orders", 0, wanted)
        if sent[found].stored_ms != wanted or (found and sent[found - 1].stored_ms >= wanted):
            self.told.faults.append(f"{self._now()}: the search for {wanted} finds offset {found}")

    def _measure(self) -> None:
        gc.collect()
        journals = list((self._directory / "journal").glob("*.jsonl"))
        for path in journals:
            if path.stat().st_size > JOURNAL_BYTES:
                self.told.faults.append(f"{self._now()}: {path.name} has {path.stat().st_size} bytes")
        self.told.rotations = sum(path.name.endswith(".1.jsonl") for path in journals)
        store = self._directory / "store"
        opened = list(_opened())
        files = sum(path.startswith(str(store.resolve())) for path in opened)
        self.told.days.append(Day(
            self._now(), len(opened) - files, files, memory_mib(os.getpid()),
            len(list((store / "commitlog").iterdir())), len(list((store / "index").iterdir())),
            sum(path.is_file() for path in store.rglob("*")),
        ))  # fmt: skip

    def _now(self) -> str:
        return f"{datetime.fromtimestamp(self.clock.seconds()):%Y-%m-%d %H:%M}"


def _opened() -> Iterator[str]:
    """What is behind the descriptors of this process; that of the look itself is gone already."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            yield os.readlink(f"/proc/self/fd/{name}")


async def lived(directory: Path, begins: datetime, days: float, **more: Any) -> Told:
    """``begins`` is a time in Berlin."""
    with zone(BERLIN):
        life = Life(directory, begins, **more)
        return await life.days(days)
