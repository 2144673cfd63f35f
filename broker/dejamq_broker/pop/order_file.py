"""``config/consumerOrderInfo.json``: how it stands with queues that are popped in order, in RocketMQ's form.

It is written for a RocketMQ that opens the store. Here the records of the revive topic tell the same, without the delay
of a file. So it is read only for queues that no record tells of: a RocketMQ had the store.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from dejamq_proto.journal.writer import Journal
from dejamq_proto.loose_json import BAD_JSON

from dejamq_broker.base import json_file
from dejamq_broker.pop.order import OrderInfo, OrderQueue
from dejamq_broker.tables.offsets import Position

Table = dict[str, dict[int, dict[str, object]]]
"""Entries by ``topic@group`` and queue id."""


class OrderFile:
    """Owned by the event loop."""

    def __init__(self, path: Path, journal: Journal) -> None:
        self.path, self._journal = path, journal
        self._written = ""

    def read(self) -> dict[Position, OrderInfo]:
        """Batches with messages that are not done. Raises UnreadableFile."""
        content, _ = json_file.load(self.path)
        found: dict[Position, OrderInfo] = {}
        try:
            table = msgspec.convert((content or {}).get("table") or {}, Table, strict=False)
            for key, queues in table.items():
                topic, _, group = key.partition("@")
                for queue_id, entry in queues.items():
                    info = OrderInfo.read(msgspec.json.encode(entry))
                    if info is not None and info.left:
                        found[Position(group, topic, queue_id)] = info
        except BAD_JSON as error:
            raise json_file.UnreadableFile(f"{self.path} is no table of orders: {error}") from None
        return found

    async def write(self, queues: Iterable[OrderQueue]) -> None:
        """Replace the file where it would say something else."""
        table: dict[str, dict[str, object]] = {}
        for queue in queues:
            if queue.info is not None and queue.info.left:
                entry = msgspec.json.decode(queue.info.encode(queue.info.pop_time))
                table.setdefault(f"{queue.at.topic}@{queue.at.group}", {})[str(queue.at.queue_id)] = entry
        text = json_file.dumps({"table": table})
        if text != self._written and (table or self.path.exists()):
            await json_file.save(json_file.Snapshot(self.path, text), self._journal)
            self._written = text
