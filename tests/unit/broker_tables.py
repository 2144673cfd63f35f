"""Tables of a broker by themselves, with nothing around them to ask or to tell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.counts import Counts
from dejamq_broker.base.identity import Site
from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.members.clients import Clients
from dejamq_broker.store import MessageStore
from dejamq_broker.tables.offsets import OffsetTable
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.timer.progress import TimerProgress
from dejamq_broker.writing.fence import NoFence
from dejamq_broker.writing.record_writer import RecordWriter
from dejamq_proto.journal.writer import Journal


async def at_once() -> None:
    """There is nothing to wait for."""


def topic_table(path: Path, clock_ms: Callable[[], int]) -> TopicTable:
    return TopicTable(path, clock_ms, lambda: None)


def offset_table(
    path: Path, journal: Journal, clock_ms: Callable[[], int], *, name: str = "broker-a", **wires: Any
) -> OffsetTable:
    """Of a broker where nothing is fenced and queues have no end, unless ``wires`` say so."""
    given: dict[str, Any] = {
        "fenced": lambda at, asker: "", "queue_end": lambda topic, queue_id: 0, "log_on_disk": at_once,
        "flush_soon": lambda: None, "serve_resets": True, "refuse_lower": False,
    }  # fmt: skip
    return OffsetTable(path, name, journal, clock_ms, **(given | wires))


def delay_progress(path: Path, journal: Journal, *, name: str = "broker-a") -> DelayProgress:
    return DelayProgress(path, name, journal, at_once)


def timer_progress(path: Path, journal: Journal, *, precision_ms: int = 1000) -> TimerProgress:
    return TimerProgress(path, "broker-a", journal, precision_ms, at_once)


def a_writer(store: MessageStore, journal: Journal, site: Site) -> RecordWriter:
    return RecordWriter(store, journal, site, Counts(), lambda took_ms: None, NoFence())


def clients_of(
    topics: TopicTable, groups: SubscriptionGroupTable, journal: Journal, clock_ms: Callable[[], int],
    config: BrokerConfig | None = None, check_filter: Callable[[str, str], object] = lambda expression, kind: None,
) -> Clients:  # fmt: skip
    return Clients(config or BrokerConfig(), topics, groups, journal, clock_ms, check_filter)
