"""Journal lines of messages that are popped, and of what becomes of them. Nothing where there is no journal."""

from collections.abc import Iterable
from typing import Any

from dejamq_proto.journal.events import Ack, Change, Pop, PopDrop, Revive
from dejamq_proto.journal.writer import Journal

from dejamq_broker.pop.flight import CheckPoint
from dejamq_broker.pop.memory import DroppedDelivery
from dejamq_broker.pop.query import PopQuery
from dejamq_broker.tables.offsets import Asker, Position


class PopLines:
    """Writes those of one broker."""

    def __init__(self, broker_name: str, journal: Journal) -> None:
        self._broker_name, self._journal = broker_name, journal

    def popped(self, query: PopQuery, point: CheckPoint, next_offset: int) -> None:
        """A delivery was given away; the group goes on at ``next_offset``."""
        if self._journal.on:
            self._journal.write(Pop(
                broker_name=self._broker_name, group=query.group, topic=point.at.topic,
                queue_id=point.at.queue_id, client_id=query.asker.client_id, client_boot_id=query.asker.boot_id,
                request_seq=query.asker.seq, start_offset=point.start_offset, queue_offsets=list(point.offsets),
                pop_time=point.pop_time, invisible_ms=point.invisible_ms, next_offset=next_offset,
                ordered=query.ordered,
            ))  # fmt: skip

    def acknowledged(
        self, at: Position, offsets: list[int], pop_time: int, asker: Asker, outcome: str, reason: str = ""
    ) -> None:
        """Somebody said that these are done; for ``outcome`` see ``Ack``."""
        if self._journal.on:
            self._journal.write(Ack(
                broker_name=self._broker_name, group=at.group, topic=at.topic, queue_id=at.queue_id,
                client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq,
                queue_offsets=offsets, pop_time=pop_time, outcome=outcome, reason=reason,
            ))  # fmt: skip

    def changed(self, at: Position, offset: int, asker: Asker, **what: Any) -> None:
        """A message is invisible until another time; for ``what`` see ``Change``."""
        if self._journal.on:
            self._journal.write(Change(
                broker_name=self._broker_name, group=at.group, topic=at.topic, queue_id=at.queue_id,
                client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq, queue_offset=offset,
                **what,
            ))  # fmt: skip

    def revived(self, at: Position, offset: int, **what: Any) -> None:
        """A copy of a message was stored, for its next delivery or as a dead letter; for ``what`` see ``Revive``."""
        if self._journal.on:
            self._journal.write(Revive(
                broker_name=self._broker_name, group=at.group, topic=at.topic, queue_id=at.queue_id,
                queue_offset=offset, **what,
            ))  # fmt: skip

    def dropped(self, every: Iterable[DroppedDelivery], reason: str) -> None:
        """These are in flight no more; for ``reason`` see ``PopDrop``."""
        if self._journal.on:
            for one in every:
                self._journal.write(PopDrop(
                    broker_name=self._broker_name, group=one.at.group, topic=one.at.topic, queue_id=one.at.queue_id,
                    queue_offsets=one.offsets, pop_time=one.pop_time, reason=reason,
                ))  # fmt: skip
