"""A broker's parts over a real, small store, without network: what the send, retry and pull paths decide."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_wire import SMALL, a_run
from dejamq_broker.config import BrokerConfig
from dejamq_broker.groups import GroupTable
from dejamq_broker.offsets import OffsetTable
from dejamq_broker.pull import Puller
from dejamq_broker.pull_rules import PullRules
from dejamq_broker.record_writer import RecordWriter
from dejamq_broker.replies import Replies
from dejamq_broker.retry import Retries
from dejamq_broker.send import Outcome, Sender
from dejamq_broker.site import Site
from dejamq_broker.store import MessageStore
from dejamq_broker.subscription_groups import SubscriptionGroupTable
from dejamq_broker.topics import TopicTable
from dejamq_proto.journal import Journal, Level
from dejamq_proto.record import Record, decode
from dejamq_proto.wire import SendRun, SendRunResult

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
        self.topics = TopicTable(config_folder / "topics.json", clock_ms)
        self.topics.ensure_system(config.default_topic_queue_nums if config.auto_create_topic_enable else 0, "c")
        self.groups = SubscriptionGroupTable(
            config_folder / "groups.json", clock_ms, auto_create=config.auto_create_subscription_group
        )
        self.offsets = OffsetTable(config_folder / "offsets.json", "broker-a", self.journal, clock_ms)
        self.writer = RecordWriter(store, self.journal, site)
        levels_ms = config.store.delay_levels_ms
        self.retries = Retries(store, self.writer, self.topics, self.groups, levels_ms, writable=config.writable)
        self.replies = Replies(self.writer, store=config.store_reply_message_enable, clock_ms=clock_ms)
        self.sender = Sender(config, self.writer, self.topics, self.retries, self.replies)
        self.members = GroupTable()
        self.rules = PullRules(config, self.topics, self.groups, self.members)
        self.puller = Puller(store, self.rules, self.offsets, self.journal, site)

    def send(self, topic: str, *bodies: bytes, **more: Any) -> SendRunResult:
        """Send a run as a client would: over the frame's bytes."""
        return self.outcome(a_run(topic, list(bodies), **more)).result

    def outcome(self, run: SendRun) -> Outcome:
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
        lines = map(json.loads, (self.directory / "j.jsonl").read_text().splitlines())
        return [line for line in lines if line["event"] == event]


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
