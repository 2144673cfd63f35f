"""A program that keeps its offsets itself: in a table of its own, written apart from its effects, as some do."""

from collections.abc import Sequence

from dejamq import LitePullConsumer, MessageQueue, ReceivedMessage

from dejamq_lab.scenario.ledger import Ledger

SCHEMA = """CREATE TABLE IF NOT EXISTS own_offsets (
    consumer_group TEXT NOT NULL, topic TEXT NOT NULL, broker_name TEXT NOT NULL, queue_id INTEGER NOT NULL,
    queue_offset INTEGER NOT NULL, PRIMARY KEY (consumer_group, topic, broker_name, queue_id))"""


class OwnOffsets:
    """The next offset of each queue, written after every ``every`` messages; a crash loses those in between."""

    def __init__(self, ledger: Ledger, group: str, every: int) -> None:
        self._connection, self._group, self._every = ledger.connection, group, every
        self._connection.execute(SCHEMA)
        self._next: dict[MessageQueue, int] = {}
        self._count = 0

    def begin(self, lite: LitePullConsumer, queues: Sequence[MessageQueue]) -> None:
        """Go on where the table says: at 0 in a queue that it does not have."""
        query = "SELECT topic, broker_name, queue_id, queue_offset FROM own_offsets WHERE consumer_group = ?"
        rows = self._connection.execute(query, (self._group,))
        kept = {MessageQueue(topic, broker_name, queue_id): at for topic, broker_name, queue_id, at in rows}
        for queue in queues:
            lite.seek(queue, kept.get(queue, 0))

    def done(self, received: ReceivedMessage) -> None:
        """Its effect is there."""
        self._next[received.queue] = received.queue_offset + 1
        self._count += 1
        if self._count % self._every == 0:
            rows = [(self._group, at.topic, at.broker_name, at.queue_id, kept) for at, kept in self._next.items()]
            self._connection.executemany("INSERT OR REPLACE INTO own_offsets VALUES (?, ?, ?, ?, ?)", rows)
