"""Broadcasting: each member of a group gets every message, keeps its own offsets in a file, and has no retries.

Source: RocketMQ ``LocalFileOffsetStore``, ``RebalanceImpl.rebalanceByTopic`` and ``processConsumeResult`` for
MessageModel.BROADCASTING.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.events import OffLoad, Persist, Sendback

from dejamq.rebalance.local_offsets import LocalOffsets
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.config import ConsumerConfig
from dejamq.values.message import MessageQueue
from dejamq.values.unique_id import local_ip

log = logging.getLogger("dejamq.clients.consumer")

INSTANCE_NAME = "DEFAULT"


def everything(queues: Sequence[Any], members: Sequence[str], me: str) -> list[Any]:
    """The allocation of a broadcasting group: each member has all queues, whoever else there is."""
    return list(queues)


def stable_client_id(config: ConsumerConfig) -> str:
    """The same after each start, as the folder of the offsets is named after it: RocketMQ's ``<address>@DEFAULT``.

    All broadcasting consumers of one host have it, as in RocketMQ, so two of one group overwrite each other's file
    (cause O20): give each a ``client_id``. Raises ConfigError for one that names no folder.
    """
    client_id = config.client_id or f"{config.client_ip or local_ip()}@{INSTANCE_NAME}"
    if "/" in client_id or client_id in (".", ".."):
        raise ConfigError(f"client_id {client_id!r} cannot name the folder of a broadcasting consumer's offsets")
    return client_id


class LocalOffsetStore:
    """The group's offsets on this host. Owned by the event loop; the file is written by one thread of its own.

    A killed process goes on from the last write, up to ``persist_consumer_offset_interval_ms`` ago.
    """

    source = "local"

    def __init__(self, context: ConsumerContext, deliveries: Deliveries, file: LocalOffsets) -> None:
        self._context, self._deliveries, self._file = context, deliveries, file
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="dejamq-offsets")
        self._table: dict[MessageQueue, int] = {}
        self._due: asyncio.Future[None] | None = None
        self._stale = False  # the last write failed

    async def open(self) -> None:
        """Read the file. Raises OffsetsUnreadable: nobody knows then where to begin."""
        self._table = await asyncio.get_running_loop().run_in_executor(self._executor, self._file.load)
        if self._context.journal.on:
            self._context.journal.write(OffLoad(
                broker_name="", source=self._file.source, digest="", entries=len(self._table),
                file=str(self._file.path),
            ))  # fmt: skip

    async def load(self, queue: MessageQueue) -> int | None:
        """The queue's offset, None when nothing of it was ever saved."""
        return self._table.get(queue)

    def piggyback(self, owned: OwnedQueue, seq: int) -> int | None:
        """Brokers keep no offsets of broadcasting groups."""
        return None

    def commit_oneway(self, owned_queues: Iterable[OwnedQueue], reason: str = "timer") -> None:
        """The timer's: write what moved, and do not wait."""
        moved = [owned for owned in owned_queues if not owned.dropped and self._take(owned, reason, None)]
        if moved or self._stale:
            self._save().add_done_callback(partial(self._saved, moved, reason))

    async def commit(self, owned: OwnedQueue, reason: str, *, offset: int | None = None) -> None:
        """Write and wait until it is on disk; a failure is logged and journalled."""
        if self._take(owned, reason, offset) or self._stale:
            saving = self._save()
            await asyncio.wait((saving,))
            self._saved([owned], reason, saving)

    def close(self) -> None:
        """After the last commit. A write under way is not cut off."""
        self._executor.shutdown(wait=False)

    def _take(self, owned: OwnedQueue, reason: str, offset: int | None) -> bool:
        """Note the queue's offset for the next write; whether it differs from what was noted before."""
        offset = owned.process_queue.commit_offset if offset is None else offset
        if offset is None or self._table.get(owned.queue) == offset:
            return False
        self._table[owned.queue] = owned.committed_offset = offset
        self._journal(owned, reason, "sent")
        return True

    def _save(self) -> "asyncio.Future[None]":
        """All who ask in one iteration of the loop share one write."""
        if self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.create_future()
            loop.call_soon(self._begin)
        return self._due

    def _begin(self) -> None:
        due, self._due = self._due, None
        writing = asyncio.get_running_loop().run_in_executor(self._executor, self._file.merge, dict(self._table))
        writing.add_done_callback(lambda done: _pass_on(done, due))

    def _saved(self, owned_queues: Sequence[OwnedQueue], reason: str, saving: "asyncio.Future[None]") -> None:
        error = saving.exception()
        self._stale = error is not None
        if error is not None:
            log.warning("offsets_not_saved file=%s reason=%r", self._file.path, error)
            for owned in owned_queues:
                self._journal(owned, reason, "failed")

    def _journal(self, owned: OwnedQueue, reason: str, outcome: str) -> None:
        if not self._context.journal.on:
            return
        self._deliveries.flush(owned)
        queue = owned.queue
        self._context.journal.write(Persist(
            pq_id=owned.number, group=self._context.group, topic=queue.topic, broker_name=queue.broker_name,
            queue_id=queue.queue_id, value=self._table.get(queue, 0), reason=reason, outcome=outcome,
        ))  # fmt: skip


def _pass_on(done: "asyncio.Future[None]", to: "asyncio.Future[None] | None") -> None:
    """The waiters' future is their own: cancelling one of them cuts off neither the write nor the others."""
    if to is None or to.done():
        return
    error = done.exception()
    if error is None:
        to.set_result(None)
    else:
        to.set_exception(error)


class NoSendBack:
    """Replaces send-back in a broadcasting group: a failed message is logged, journalled and dropped."""

    def __init__(self, context: ConsumerContext, deliveries: Deliveries) -> None:
        self._context, self._deliveries = context, deliveries

    async def send(self, owned: OwnedQueue, message: ReceivedMessage, wanted: int, *, expired: bool = False) -> bool:
        """Always True: nothing is left to do about it."""
        queue = owned.queue
        log.warning("message_dropped group=%s message_id=%s: broadcasting", self._context.group, message.message_id)
        if self._context.journal.on:
            self._deliveries.flush(owned)
            self._context.journal.write(Sendback(
                delivery_ids=[message.delivery_number], group=self._context.group, topic=queue.topic,
                broker_name=queue.broker_name, queue_id=queue.queue_id, path="none", outcome="dropped",
                queue_offsets=[message.queue_offset], unique_keys=[message.message_id],
                reason="expired" if expired else "broadcasting",
            ))  # fmt: skip
        return True


class Unlocked:
    """Replaces queue locks in a broadcasting group: each member has every queue for itself."""

    def held(self, owned: OwnedQueue) -> bool:
        """Always."""
        return True

    async def renew(self, owned: Sequence[OwnedQueue]) -> None:
        """There is nothing to renew."""
