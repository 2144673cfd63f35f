"""Questions of operators to a broker: numbers about itself, a group's progress, one message."""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto.codes import Code, DejamqError

from dejamq_broker.base.identity import Site
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.connections import MemberConnection
from dejamq_broker.tables.offsets import OffsetTable, Position

if TYPE_CHECKING:
    from dejamq_broker.store import KeyQuery, MessageStore, QueryResult


class GroupProgress(msgspec.Struct, frozen=True):
    """One group's committed offset of one queue beside what the queue holds, and where it was sent by the last pull."""

    topic: str
    queue_id: int
    committed: int
    min_offset: int
    max_offset: int
    pulled: int | None = None


class Inspector:
    """Answers operators; changes nothing."""

    def __init__(
        self, store: "MessageStore", offsets: OffsetTable, clients: Clients, site: Site, clock_ms: Callable[[], int],
        *, measured: Callable[[], dict[str, str]], replication: Callable[[], dict[str, str]],
    ) -> None:  # fmt: skip
        """``measured`` and ``replication``: the numbers that these parts of the broker add."""
        self._measured, self._replication = measured, replication
        self._store, self._offsets, self._clients, self._site = store, offsets, clients, site
        self._clock_ms, self._started_ms = clock_ms, clock_ms()

    def runtime(self) -> dict[str, str]:
        """Numbers by name as texts, RocketMQ's names where it has them.

        ``dispatchBehindBytes`` is what consumers cannot see yet; ``flushedOffset`` is a log offset before which
        everything survives a power loss. Times are wall-clock milliseconds.
        """
        store = self._store
        groups = self._clients.groups
        clashes = {group: ids for group in groups.names() if (ids := groups.clashes(group))}
        values = {
            "brokerName": self._site.broker_name, "brokerId": self._site.broker_id, "brokerAddr": self._site.address,
            "clusterName": self._site.cluster, "bootId": self._site.boot_id, "pid": os.getpid(),
            "bootTimestamp": self._started_ms, "runtimeMs": self._clock_ms() - self._started_ms,
            "commitLogMinOffset": store.log_min, "commitLogMaxOffset": store.log_max,
            "commitLogDiskRatio": store.disk_use.log / 100, "consumeQueueDiskRatio": store.disk_use.queues / 100,
            "flushedOffset": store.flushed, "dispatchBehindBytes": store.log_max - store.dispatched,
            "consumerGroups": ",".join(sorted(groups.names())),
            "clientIdClashes": ";".join(f"{group}:{','.join(ids)}" for group, ids in clashes.items()),
        }  # fmt: skip
        return {name: str(value) for name, value in values.items()} | self._measured() | self._replication()

    def progress(self, group: str) -> list[GroupProgress]:
        """Every queue of which the group has committed an offset."""
        return [
            GroupProgress(
                topic, queue_id, committed, *self._bounds(topic, queue_id),
                self._offsets.pulled(Position(group, topic, queue_id)),
            )
            for topic, queue_id, committed in self._offsets.of_group(group)
        ]  # fmt: skip

    def connections(self, group: str) -> list[MemberConnection]:
        """Producers and consumers of this group, of all for ''."""
        return self._clients.connections(group)

    def record(self, log_offset: int) -> bytes:
        """The stored bytes. Raises QUERY_NOT_FOUND."""
        raw = self._store.record_at(log_offset)
        if raw is None:
            raise DejamqError(f"no message begins at log offset {log_offset}", code=Code.QUERY_NOT_FOUND)
        return raw

    def record_by_id(self, message_id: str) -> bytes:
        """The stored bytes. Raises QUERY_NOT_FOUND, and INVALID_PARAMETER for a text that is no offset message id."""
        raw = self._store.record_by_id(message_id)
        if raw is None:
            raise DejamqError(f"no message has the id {message_id}", code=Code.QUERY_NOT_FOUND)
        return raw

    async def query(self, wanted: "KeyQuery") -> "QueryResult":
        """The records with a key, at least one. Raises QUERY_NOT_FOUND.

        The index may have to be brought up to date for it, so it runs beside the loop.
        Source: RocketMQ ``QueryMessageProcessor``.
        """
        result = await asyncio.to_thread(self._store.query, wanted)
        if not result.records:
            kind = "unique key" if wanted.unique else "key"
            raise DejamqError(
                f"no message of {wanted.topic} has the {kind} {wanted.key!r} in that time", code=Code.QUERY_NOT_FOUND
            )
        return result

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
