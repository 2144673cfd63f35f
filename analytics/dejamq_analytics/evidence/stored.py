"""Records of commit logs by their unique keys: where a traced message lies, and what lies beside it.

That are trace messages, records that wait for a delay or a retry, and halves of transactions with their marks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dejamq_proto import names
from dejamq_proto.names import PROPERTY_UNIQUE_KEY, RETRY_PREFIX
from dejamq_proto.records.compression import BadCompression, decompress
from dejamq_proto.records.hosts import host_text
from dejamq_proto.records.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_MASK, Record
from dejamq_proto.texts import MOST_32, number_of

from dejamq_analytics.evidence import popped
from dejamq_analytics.evidence.mark import MS, Mark, PropertyFilters, QueueName
from dejamq_analytics.evidence.trace import TraceMessage, is_trace_topic
from dejamq_analytics.sources.commit_log import blank_at, log_files, scan

INNER = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_", "rmq_sys_", "%DLQ%", "TRANS_CHECK_MAX_TIME_TOPIC")
Waited = tuple[str, str, int, int]
"""What a record keeps while it waits: unique key, topic, number of the try, and when it was born."""


class Stored(NamedTuple):
    """A record as far as a delivery or a send needs it."""

    queue: QueueName
    queue_offset: int
    log_offset: int
    unique_key: str
    reconsume_times: int
    store_host: str
    store: str
    born_ms: int
    stored_ms: int
    waits_for: str = ""
    """The topic that it goes to after its delay; of one that has come from there, its own topic."""
    by_consumer: bool = False
    """Whether a consumer itself sent it to a retry topic, since its broker had not taken the message back."""
    committed: bool = False
    prepared: int = 0
    """Whether it ended a transaction, and the log offset of the half message that it ended."""
    checks: int = 0
    tags: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    """Properties that a filter looks at, by name."""

    @property
    def waited(self) -> Waited:
        return self.unique_key, self.waits_for, self.reconsume_times, self.born_ms

    @property
    def place(self) -> str:
        """In words."""
        return f"{self.store} log offset {self.log_offset}"

    def mark(self) -> Mark:
        """That it was stored."""
        return Mark(self.stored_ms * MS, MS, self.place, self.store, "stored", {})


class Ended(NamedTuple):
    """The mark that some half messages have ended."""

    store: str
    log_offset: int
    stored_ms: int
    half_offsets: tuple[int, ...]

    def mark(self) -> Mark:
        return Mark(self.stored_ms * MS, MS, f"{self.store} log offset {self.log_offset}", self.store, "ended", {})


class Records:
    """All records of some stores that a handler may have had, once each, and all trace messages."""

    def __init__(self, filters: PropertyFilters | None = None) -> None:
        """``filters`` tell which properties of records to keep."""
        self._filters = filters or PropertyFilters()
        self.by_key: dict[str, list[Stored]] = defaultdict(list)
        self.traces: list[TraceMessage] = []
        self.waiting: dict[Waited, list[Stored]] = defaultdict(list)
        self.halves: dict[str, list[Stored]] = defaultdict(list)
        self.ended: list[Ended] = []
        self.popped: dict[tuple[str, str, str], Mark] = {}
        """Check points and acks of popped messages, each once, by broker, kind and content."""
        self.counted: dict[str, Counter[str]] = defaultdict(Counter)
        """What there is in each store."""
        self.hosts: dict[str, set[str]] = defaultdict(set)
        self.brokers: set[str] = set()
        """Names of brokers whose stores these are."""
        self.absent: set[str] = set()
        """Names of brokers that logs tell of and whose stores are not here."""
        self._ends: dict[QueueName, int] = {}
        self._seen: set[tuple[str, int]] = set()
        self._spans: dict[str, list[tuple[int, int]]] = defaultdict(list)

    def has_all_between(self, first: Stored, second: Stored) -> bool:
        """Whether no piece of the commit log is missing from one record to the other."""
        spans = self._spans[first.store]
        return first.store == second.store and any(
            begin <= first.log_offset and second.log_offset < end for begin, end in spans
        )

    def _spanned(self, store: str, file: Path, size: int) -> None:
        """One file's records, which are so many bytes; a blank leads to the next file."""
        begin, spans = int(file.name), self._spans[store]
        end = begin + size + blank_at(file, size)
        if spans and spans[-1][1] == begin:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((begin, end))

    def read(self, stores: Iterable[str], more_trace_topics: frozenset[str] = frozenset()) -> None:
        """Slaves have their master's records: those count once."""
        for store in stores:
            for file in log_files(str(store)):
                total = 0
                for record, size in scan(file):
                    total += size
                    host = host_text(record.store_host)
                    if (host, record.log_offset) in self._seen:
                        continue
                    self._seen.add((host, record.log_offset))
                    self.hosts[str(store)].add(host)
                    self.counted[str(store)]["records"] += 1
                    if is_trace_topic(record.topic, more_trace_topics):
                        self.counted[str(store)]["trace messages"] += 1
                        self.traces.append(_trace(record, str(store)))
                    elif popped.is_one(record):
                        self._pop(record, host, str(store))
                    elif record.topic == names.OP_TOPIC:
                        self.ended.append(_ended(record, str(store)))
                    else:
                        self._keep(record, host, str(store))
                self._spanned(str(store), file, total)

    def _pop(self, record: Record, host: str, store: str) -> None:
        if told := popped.mark(record, store):
            key = host, told.what, record.body.decode("utf-8", "replace")
            if key not in self.popped:
                self.popped[key] = told
                self.counted[store]["check points of pops" if told.what == "popped" else "acks of pops"] += 1

    def _keep(self, record: Record, host: str, store: str) -> None:
        key = record.properties.get(PROPERTY_UNIQUE_KEY)
        if not key:  # clients then show the broker's id, as RocketMQ's MessageClientExt.getMsgId does
            if record.topic in (names.SCHEDULE_TOPIC, names.HALF_TOPIC):
                return
            key = record.offset_message_id
        one = _stored(record, key, host, store)
        if looked_at := self._filters.properties(record.topic):
            facts = sorted((name, value) for name, value in record.properties.items() if name in looked_at)
            one = one._replace(facts=tuple(facts))
        if record.topic == names.SCHEDULE_TOPIC:
            self.waiting[one.waited].append(one)
        elif record.topic == names.HALF_TOPIC:
            self.halves[key].append(one)
        elif not record.topic.startswith(INNER):
            self.by_key[key].append(one)

    def named(self, names: dict[str, str]) -> None:
        """Give brokers their names, by the addresses that records have."""
        self.brokers = {names.get(host, store) for store, hosts in self.hosts.items() for host in hosts}
        self.absent = set(names.values()) - self.brokers
        for records in (*self.by_key.values(), *self.waiting.values(), *self.halves.values()):
            records[:] = [
                one._replace(queue=one.queue._replace(broker_name=names.get(one.store_host, one.store)))
                for one in records
            ]
        for records in self.by_key.values():
            for one in records:
                self._ends[one.queue] = max(self._ends.get(one.queue, 0), one.queue_offset + 1)

    def end_of(self, queue: QueueName) -> int:
        """The offset behind the last record of a queue, 0 without one. Only once brokers are ``named``."""
        return self._ends.get(queue, 0)

    def of_delivery(self, unique_key: str, group: str, times: int) -> list[Stored]:
        """Records that a handler of the group may have been given as this try."""
        retry = f"{RETRY_PREFIX}{group}"
        if times:
            return [one for one in self.by_key[unique_key] if one.queue.topic == retry and one.reconsume_times == times]
        return [one for one in self.by_key[unique_key] if not one.queue.topic.startswith(RETRY_PREFIX)]

    def copies(self) -> Iterator[list[Stored]]:
        """Records that clients sent of one message to one topic, where there are several."""
        for records in self.by_key.values():
            by_topic: dict[str, list[Stored]] = defaultdict(list)
            for one in records:
                if not one.queue.topic.startswith("%") and not one.committed and one.waits_for != one.queue.topic:
                    by_topic[one.queue.topic].append(one)
            yield from (some for some in by_topic.values() if len(some) > 1)


def _stored(record: Record, key: str, host: str, store: str) -> Stored:
    properties = record.properties
    checks = number_of(properties.get(names.PROPERTY_CHECK_TIMES), MOST_32)
    return Stored(
        QueueName(record.topic, host, record.queue_id), record.queue_offset, record.log_offset, key,
        record.reconsume_times, host, store, record.born_timestamp_ms, record.store_timestamp_ms,
        waits_for=properties.get(names.PROPERTY_REAL_TOPIC, ""),
        # a client writes the number of the try into its own message, a broker counts it without that
        by_consumer=record.reconsume_times > 0
        and properties.get(names.PROPERTY_RECONSUME_TIME) == str(record.reconsume_times),
        committed=record.sys_flag & SYS_TRANSACTION_MASK == SYS_TRANSACTION_COMMIT,
        prepared=record.prepared_transaction_offset, checks=checks or 0, tags=properties.get(names.PROPERTY_TAGS, ""),
    )  # fmt: skip


def _ended(record: Record, store: str) -> Ended:
    named = record.body.decode("ascii", "replace").split(",")
    offsets = tuple(number for one in named if (number := number_of(one)) is not None)
    return Ended(store, record.log_offset, record.store_timestamp_ms, offsets)


def _trace(record: Record, store: str) -> TraceMessage:
    source = f"{store} log offset {record.log_offset}"
    try:
        body = decompress(record.body, record.sys_flag).decode("utf-8", "replace")
    except BadCompression:
        body = ""
    return TraceMessage(source, host_text(record.born_host), body, record.born_timestamp_ms, record.store_timestamp_ms)
