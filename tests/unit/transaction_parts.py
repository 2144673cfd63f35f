"""The transactions of a broker over a real, small store, with a clock that stands still; no network."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_tables import a_writer, clients_of, offset_table, topic_table
from broker_wire import SMALL
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.deferred.transactions.check import CheckProducer, CheckRounds
from dejamq_broker.deferred.transactions.halves import Halves
from dejamq_broker.deferred.transactions.rules import CheckLimits
from dejamq_broker.deferred.transactions.service import Ending, Transactions
from dejamq_broker.store import MessageStore
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.writing.record_writer import RecordOrigin
from dejamq_proto import names
from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.records.record import (
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_ROLLBACK,
    Record,
    decode,
    encode_properties,
)
from journalled import journalled

COMMIT, ROLLBACK, UNKNOWN = SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK, 0
START_MS = 1_790_000_000_000
HOST = "127.0.0.1", 10911


class Clock:
    """Milliseconds; moves only when told."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms

    def move(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


class TransactionParts:
    """Wired as the broker wires them. ``asked`` collects what producers were asked."""

    def __init__(self, directory: Path, store: MessageStore, config: BrokerConfig, clock: Clock, boot: int) -> None:
        self.store, self.clock, self.directory = store, clock, directory
        self._path = directory / f"j{boot}.jsonl"
        self.journal = Journal(self._path, role="broker", process="b", boot_id=f"b{boot}", level=Level.FORENSIC)
        site = Site(cluster="c", broker_name="broker-a", broker_id=0, boot_id=f"b{boot}", store_host=HOST)
        folder = directory / "config"
        self.topics = topic_table(folder / "topics.json", clock)
        self.offsets = offset_table(folder / "offsets.json", self.journal, clock)
        groups = SubscriptionGroupTable(folder / "groups.json", clock, auto_create=True)
        for table in (self.topics, self.offsets, groups):
            table.load()
        self.clients = clients_of(self.topics, groups, self.journal, clock, config)
        writer = self.writer = a_writer(store, self.journal, site)
        self.transactions = Transactions(
            store, writer, self.topics, self.offsets, self.journal, config, clock, lambda record: record
        )
        self.halves = Halves(writer, self.topics, self.transactions.stored, reject=config.reject_transaction_message)
        limits = CheckLimits(config.transaction_timeout_ms, config.transaction_check_max, 72 * 3_600_000)
        self.rounds = CheckRounds(
            self.transactions, writer, self.topics, self.clients, self.journal, limits, config.transaction_round_max_ms,
            clock,
        )  # fmt: skip
        self.transactions.recover()
        self.topics.ensure("orders", 4)
        self.asked: list[tuple[str, CheckProducer]] = []

    def producer(self, client_id: str = "p1", group: str = "g") -> int:
        """A producer comes online; the channel it came by."""

        def take(command: object) -> bool:
            assert isinstance(command, CheckProducer)
            self.asked.append((client_id, command))
            return True

        channel = self.clients.open(lambda group: None, command=take)
        self.clients.heartbeat(channel, Asker(client_id, "boot", 1), (), [group])
        return channel

    def begin(self, key: str = "k", **properties: str) -> Record:
        """Store a half message of topic ``orders``, queue 3, born now; as it stands in the log."""
        record = Record(
            "orders", 3, key.encode(), sent_properties(key, **properties), born_timestamp_ms=self.clock.now_ms,
        )  # fmt: skip
        half = self.halves.made_of(record)
        assert half is not None
        log_offset = int(self.halves.put(half, RecordOrigin("client")).log_offsets[0])
        found = self.transactions.queues.half_at(log_offset)
        assert found is not None
        return found

    def end(self, half: Record, state: int = COMMIT, **changes: Any) -> None:
        named = {"half_queue_offset": half.queue_offset, "half_log_offset": half.log_offset, "from_check": False}
        told: dict[str, Any] = {"group": "g", "state": state} | named | changes
        self.transactions.end(Ending(**told))

    def answer(self, number: int = -1, state: int = COMMIT) -> None:
        """Answer one of the questions."""
        command = self.asked[number][1]
        self.transactions.end(Ending(
            group=command.group, half_queue_offset=command.half_queue_offset, half_log_offset=command.half_log_offset,
            state=state, from_check=True,
        ))  # fmt: skip

    async def round(self, after_seconds: float = 30) -> None:
        """The marks of now are stored, time passes, and a round runs."""
        self.transactions.ops.write()
        self.clock.move(after_seconds)
        await self.rounds.step()

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        found, at, records = self.store.read(topic, queue_id, 0, max_messages=1000), 0, []
        for size in found.sizes:
            records.append(decode(found.records, at))
            at += size
        return records

    def orders(self) -> list[str]:
        """The bodies that consumers of the topic would get."""
        return [record.body.decode() for queue_id in range(4) for record in self.records("orders", queue_id)]

    def events(self, event: str) -> list[dict[str, Any]]:
        return journalled(self._path, event)


def sent_properties(key: str, **more: str) -> bytes:
    own = {names.PROPERTY_UNIQUE_KEY: key, names.PROPERTY_TRANSACTION: "true", names.PROPERTY_PRODUCER_GROUP: "g"}
    return encode_properties({name: value for name, value in (own | more).items() if value})


class TransactionHouse:
    """A directory in which the parts are opened, killed and opened again, on one clock."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.clock, self._boots = directory, Clock(), 0

    @contextmanager
    def open(self, **settings: Any) -> Iterator[TransactionParts]:
        """Parts over the store as it is. What was not written to files is lost at the end, as in a crash."""
        self._boots += 1
        config = BrokerConfig(**({"store": SMALL} | settings))
        store = MessageStore.open(self.directory / "store", config.store, clock_ms=self.clock)
        parts = TransactionParts(self.directory, store, config, self.clock, self._boots)
        try:
            yield parts
        finally:
            store.close()
            parts.journal.close()


def refusal(parts: TransactionParts, half: Record, **changes: Any) -> DejamqError:
    with pytest.raises(DejamqError) as raised:
        parts.end(half, **changes)
    return raised.value
