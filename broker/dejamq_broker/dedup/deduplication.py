"""The windows of all topics: which ids were stored lately, and where. No second message with a known id is stored.

A window has hashes of ids and log offsets, some 50 bytes an id. An equal hash is only a hint: the record there is read
and compared. So a window never outlives the log, and two ids with one hash cost nothing but that look.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto import names
from dejamq_proto.journal.events import Repeat
from dejamq_proto.journal.writer import Journal
from dejamq_proto.native import RecentIds
from dejamq_proto.records.record import decode
from dejamq_proto.records.run import parse, properties_of, unique_keys
from dejamq_proto.wire.messages import SendRun, SendRunResult

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.dedup.ids import Hashes, hashes_of, id_of
from dejamq_broker.dedup.in_log import counts, queue_of, stored_in, topic_of
from dejamq_broker.dedup.mark import STEP_BYTES, WindowMark
from dejamq_broker.store.questions import StoreReading
from dejamq_broker.timer.rules import out_of

log = logging.getLogger(__name__)

Offsets = npt.NDArray[np.int64]


class First(msgspec.Struct, frozen=True):
    """The message that is stored under an id. ``number``: it is this record of the same run, and has no place yet."""

    number: int = -1
    queue_id: int = 0
    queue_offset: int = 0
    log_offset: int = 0
    end: int = 0
    stored_ms: int = 0
    unique_key: str = ""
    timer_out_ms: int = 0


class Deduplication:
    """Looks before a run is stored, and notes what was. Between the two nothing else is stored."""

    def __init__(
        self, config: BrokerConfig, store: StoreReading, journal: Journal, site: Site, clock_ms: Callable[[], int]
    ) -> None:
        self._store, self._journal, self._site, self._clock_ms = store, journal, site, clock_ms
        self._life_ms, self._most = config.dedup_window_ms, config.dedup_window_ids
        self.windows: dict[str, RecentIds] = {}
        """By topic; one is made for a first id."""
        self._told_full: set[str] = set()
        self._mark = WindowMark(Path(config.store_directory).expanduser() / "config" / "dedupWindow.json")

    @property
    def on(self) -> bool:
        """Whether this broker keeps windows at all."""
        return self._most > 0

    def hashes(self, run: SendRun) -> Hashes | None:
        """Of the ids of its records; None for bytes that are no run, which nobody has checked so far."""
        return hashes_of(run.records[0], run.sizes)

    def fresh(self, run: SendRun, hashes: Hashes) -> bool:
        """Whether no id of the run is known, and no two of its messages have one id."""
        before_ms = self._clock_ms() - self._life_ms
        for topic, of_topic in _by_topic(run, hashes):
            window = self._window(topic)
            window.expire(before_ms)
            if not window.fresh(of_topic):
                return False
        return True

    def firsts(self, run: SendRun, hashes: Hashes) -> list[First | None]:
        """For each record the message that is stored under its id, as ``fresh`` left the windows; None: it is new."""
        parsed, earlier = parse(run.records[0], run.sizes), dict[tuple[str, str], int]()
        found: list[First | None] = []
        queue_index = run.queue_index.tolist() or [0] * len(hashes)
        for number, (key, one) in enumerate(zip(queue_index, hashes.tolist(), strict=True)):
            topic, first = run.queues[key][0], None
            if one and counts(topic):
                own_id = topic, id_of(properties_of(parsed, number))
                first = First(earlier[own_id]) if own_id in earlier else self._stored(*own_id, one)
                if first is None:
                    earlier[own_id] = number
            found.append(first)
        return found

    def add(self, run: SendRun, hashes: Hashes, log_offsets: Offsets, stored_ms: int) -> None:
        """The records are stored there."""
        for topic, of_topic in _by_topic(run, hashes):
            window = self._window(topic)
            window.add(of_topic, log_offsets, stored_ms)
            if window.pushed_out and topic not in self._told_full:
                self._told_full.add(topic)
                log.warning("dedup_window_full topic=%s ids=%d: newer ids push out older ones", topic, self._most)

    def tell(self, run: SendRun, repeats: Mapping[int, First], result: SendRunResult) -> None:
        """The journal's line on records of the run that are not stored, by their numbers, and where ``result`` says the
        first ones are.
        """
        if not self._journal.on:
            return
        parsed, numbers, queue_index = parse(run.records[0], run.sizes), list(repeats), run.queue_index.tolist()
        keys = unique_keys(parsed)
        self._journal.write(Repeat(
            broker_name=self._site.broker_name, topics=[topic for topic, _ in run.queues],
            queue_index=[queue_index[number] if queue_index else 0 for number in numbers],
            queue_ids=result.queue_ids[numbers].tolist(), queue_offsets=result.queue_offsets[numbers].tolist(),
            log_offsets=result.span_log_offsets[numbers].tolist(), unique_keys=[keys[number] for number in numbers],
            first_unique_keys=[keys[first.number] if first.number >= 0 else first.unique_key
                               for first in repeats.values()],
            client_id=run.client_id, client_boot_id=run.boot_id, request_seq=run.seq, group=run.group,
        ))  # fmt: skip

    def forget(self, topic: str) -> None:
        """The topic is deleted: its next life knows nothing of this one."""
        self.windows.pop(topic, None)

    def _window(self, topic: str) -> RecentIds:
        window = self.windows.get(topic)
        if window is None:
            window = self.windows[topic] = RecentIds(self._most)
        return window

    def _stored(self, topic: str, own_id: str, hash_of_it: int) -> First | None:
        """None as well where the log has the record no more: nobody can be told a place that is not there."""
        log_offset = self._window(topic).find(hash_of_it)
        raw = None if log_offset < self._store.log_min else self._store.record_at(log_offset)
        record = None if raw is None else decode(raw, check_crc=False)
        if raw is None or record is None or topic_of(record) != topic or id_of(record.properties) != own_id:
            return None
        properties = record.properties
        return First(
            queue_id=queue_of(record), queue_offset=record.queue_offset, log_offset=log_offset,
            end=log_offset + len(raw), stored_ms=record.store_timestamp_ms,
            unique_key=properties.get(names.PROPERTY_UNIQUE_KEY, ""),
            timer_out_ms=(out_of(properties) or 0) if record.topic == names.TIMER_TOPIC else 0,
        )  # fmt: skip

    # From the log, at a start.

    def recover(self) -> None:
        """Build the windows from the log as this start found it. Raises OSError."""
        begin = self._mark.take()
        if not self.on:
            return
        for found in self._store.records_since(self._clock_ms() - self._life_ms, begin):
            for stored in stored_in(found):
                if self._store.is_alive(stored.topic, int(stored.log_offsets[0])):
                    self._window(stored.topic).add(stored.hashes, stored.log_offsets, stored.stored_ms)
        self._expire()
        if self.windows:
            ids = sum(map(len, self.windows.values()))
            log.info("dedup_windows_rebuilt topics=%d ids=%d", len(self.windows), ids)

    def follow(self) -> None:
        """This broker is a slave: it keeps no windows, and its log may be cut. Raises OSError."""
        self._mark.take()

    async def tidy(self) -> None:
        """Let go of what is too old, and note from where on a start has to read the log. Raises OSError."""
        if self.on:
            self._expire()
            await self._mark.save(self._first(), at_least=STEP_BYTES)

    async def flush(self) -> None:
        """As ``tidy``, for the last time."""
        if self.on:
            await self._mark.save(self._first())

    def _expire(self) -> None:
        before_ms = self._clock_ms() - self._life_ms
        for topic, window in tuple(self.windows.items()):
            window.expire(before_ms)
            if not len(window):
                del self.windows[topic]

    def _first(self) -> int:
        """Nothing that counts is before this log offset."""
        return min((window.first for window in self.windows.values() if len(window)), default=self._store.log_max)


def _by_topic(run: SendRun, hashes: Hashes) -> Iterator[tuple[str, Hashes]]:
    """The hashes for each topic that windows are kept of; 0 where a record is of another one."""
    topics = dict.fromkeys(topic for topic, _ in run.queues)
    for topic in topics:
        if not counts(topic):
            continue
        if len(topics) == 1:
            yield topic, hashes
            continue
        its = np.array([name == topic for name, _ in run.queues])[run.queue_index]
        yield topic, np.where(its, hashes, np.uint64(0))
