"""A broker's parts over a real, small store, without network: what the send, retry and pull paths decide."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_tables import a_writer, offset_table, topic_table
from broker_wire import SMALL, a_run
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.counts import Counts
from dejamq_broker.base.identity import Site
from dejamq_broker.dedup.deduplication import Deduplication
from dejamq_broker.deferred.retry import Retries
from dejamq_broker.deferred.transactions.halves import Halves
from dejamq_broker.filters.chosen import FilterFactory
from dejamq_broker.members.groups import GroupTable
from dejamq_broker.paths.pull import Puller, ReplicaRules
from dejamq_broker.paths.replies import Replies
from dejamq_broker.paths.rules import PullRules
from dejamq_broker.paths.send import SendOutcome, SendPath
from dejamq_broker.store import MessageStore
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.timer.recall import Recalls
from dejamq_broker.timer.rules import TimerRules
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.records.record import Record, decode
from dejamq_proto.wire.messages import SendRun, SendRunResult
from journalled import journalled

BORN_HOST = (0x0A000001, 4711)


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Parts:
    """Wired as the broker wires them. ``topics`` has the system's; everything else is made by the tests."""

    def __init__(self, directory: Path, store: MessageStore, config: BrokerConfig) -> None:
        self.store, self.directory = store, directory
        self.journal = Journal(directory / "j.jsonl", role="broker", process="b", boot_id="b0", level=Level.FORENSIC)
        site = Site(
            cluster="c", broker_name="broker-a", broker_id=0, boot_id="b0", address="127.0.0.1:10911",
            store_host=("127.0.0.1", 10911),
        )  # fmt: skip
        config_folder = directory / "config"
        self.topics = topic_table(config_folder / "topics.json", clock_ms)
        self.topics.ensure_system(config.default_topic_queue_nums if config.auto_create_topic_enable else 0, "c")
        self.groups = SubscriptionGroupTable(
            config_folder / "groups.json", clock_ms, auto_create=config.auto_create_subscription_group
        )
        self.offsets = offset_table(config_folder / "offsets.json", self.journal, clock_ms)
        self.writer = a_writer(store, self.journal, site)
        levels_ms = config.store.delay_levels_ms
        self.retries = Retries(
            store, self.writer, self.topics, self.groups, levels_ms,
            writable=config.writable, ordered=lambda group: False,
        )  # fmt: skip
        self.push: Callable[[str, bytes, str], bool] = lambda client_id, record, group: False
        self.replies = Replies(
            self.writer, store=config.store_reply_message_enable, clock_ms=clock_ms,
            push=lambda client_id, record, group: self.push(client_id, record, group),
        )  # fmt: skip
        timing = TimerRules(
            config.timer_precision_ms, config.timer_max_delay_sec * 1000, config.timer_roll_window_slot, clock_ms
        )
        self.recalls = Recalls(
            self.writer, self.topics, timing, clock_ms, enabled=config.recall_message_enable,
            writable=lambda: config.writable,
        )  # fmt: skip
        halves = Halves(self.writer, self.topics, lambda half: None, reject=config.reject_transaction_message)
        self.dedup = Deduplication(config, store, self.journal, site, clock_ms)
        self.dedup.recover()
        self.sender = SendPath(
            config, self.writer, self.topics, self.retries, self.replies, halves, timing, self.dedup, None
        )
        self.members = GroupTable()
        filters = FilterFactory(sql=config.enable_property_filter)
        self.rules = PullRules(config, self.topics, self.groups, self.members, filters)
        self.puller = self.a_puller(site, self.writer.counts)

    def a_puller(
        self, site: Site, counts: Counts, *, master_there: bool = False, clock_ms: Callable[[], int] = clock_ms
    ) -> Puller:
        """Another one over the same store and tables."""
        replicas = ReplicaRules(self.rules, self.store, site, lambda: master_there)
        return Puller(self.store, self.rules, self.offsets, self.journal, site, replicas, counts, clock_ms)

    def send(self, topic: str, *bodies: bytes, **more: Any) -> SendRunResult:
        """Send a run as a client would: over the frame's bytes."""
        return self.outcome(a_run(topic, list(bodies), **more)).result

    def outcome(self, run: SendRun) -> SendOutcome:
        return self.sender.accept(SendRun.decode(run.encode()), BORN_HOST)

    def settle(self) -> None:
        """Until everything stored is in its queue."""
        deadline = time.monotonic() + 10
        while self.store.dispatched < self.store.log_max:
            assert time.monotonic() < deadline
            time.sleep(0.0005)

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """Everything in a queue."""
        self.settle()
        found, at, records = self.store.read(topic, queue_id, 0, max_messages=1000), 0, []
        for size in found.sizes:
            records.append(decode(found.records, at))
            at += size
        return records

    def everywhere(self, topic: str) -> list[Record]:
        """Everything in all queues of a topic."""
        config = self.topics.get(topic)
        return [
            record for queue_id in range(config.queues if config else 0) for record in self.records(topic, queue_id)
        ]

    def events(self, event: str) -> list[dict[str, Any]]:
        return journalled(self.directory / "j.jsonl", event)


@contextmanager
def parts_in(directory: Path, **settings: Any) -> Iterator[Parts]:
    config = BrokerConfig(**({"store": SMALL} | settings))
    store = MessageStore.open(directory / "store", config.store, clock_ms=clock_ms)
    parts = Parts(directory, store, config)
    try:
        yield parts
    finally:
        store.close()
        parts.journal.close()
