"""A master's side of replication: the bytes for its slaves, how far they are, and the producers that wait for them.

Source: RocketMQ ``DefaultHAService``, ``DefaultHAConnection``.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.events import ReplicaEvent
from dejamq_proto.journal.writer import Journal
from dejamq_proto.names import MASTER_ID
from dejamq_proto.records.record import decode
from dejamq_proto.wire.replication import LogSlice

from dejamq_broker.base.config import SYNC_MASTER, BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.replication.read_bound import ReadBound
from dejamq_broker.replication.slave_progress import HaStatus, SlavePosition, SlaveStatus, SlaveTable
from dejamq_broker.store import SlaveNote

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore


# Waits of producers whose answer needs slaves that have their messages. Source: RocketMQ GroupTransferService.


class Waiting(msgspec.Struct, frozen=True):
    """One of them: it waits for everything before this log offset."""

    log_end: int
    deadline: float
    done: "asyncio.Future[Code]"


class SlaveWaits:
    """In the order of the log, which is the order of deadlines too. Owned by the event loop."""

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_s = timeout_ms / 1000
        self._waiting: deque[Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, log_end: int, done: "asyncio.Future[Code]") -> None:
        """Resolve it with SUCCESS when that much is confirmed, with FLUSH_SLAVE_TIMEOUT when it takes too long."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        self._waiting.append(Waiting(log_end, deadline, done))
        if self._timer is None:
            self._set_timer()

    def confirm(self, log_end: int) -> None:
        """Enough slaves have everything before this log offset."""
        waiting = self._waiting
        while waiting and waiting[0].log_end <= log_end:
            _resolve(waiting.popleft(), Code.SUCCESS)

    def close(self) -> None:
        """Nobody hears any more that it took too long."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self._waiting[0].deadline, self._on_deadline) if self._waiting else None

    def _on_deadline(self) -> None:
        now, waiting = asyncio.get_running_loop().time(), self._waiting
        while waiting and waiting[0].deadline <= now:
            _resolve(waiting.popleft(), Code.FLUSH_SLAVE_TIMEOUT)
        self._set_timer()


def _resolve(waiting: Waiting, code: Code) -> None:
    if not waiting.done.done():
        waiting.done.set_result(code)


log = logging.getLogger(__name__)
NOTED_MS = 1000
"""A position is journalled so often while it moves."""


class SlaveName(msgspec.Struct, frozen=True):
    """Which replica of which broker calls."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    boot_id: str


class Replication:
    """Owned by the event loop. A slave has none of its own followers."""

    def __init__(
        self, config: BrokerConfig, store: "MessageStore", journal: Journal, site: Site, bound: ReadBound | None = None
    ) -> None:  # fmt: skip
        """``bound``: how far consumers may read; None: to the end."""
        self._bound = bound
        if bound is not None:
            store.hold_back(lambda: bound.limit)
        self.config, self.store, self._journal, self._site = config, store, journal, site
        self.boot_id, self.replica = site.boot_id, site.replica
        needed = config.in_sync_replicas - 1 if config.broker_role == SYNC_MASTER else 0
        self.table = SlaveTable(needed, config.ha_max_gap_not_in_sync)
        self.waits = needed > 0
        """Whether producers are answered only after slaves have their messages."""
        self.closing = asyncio.Event()
        self._idle: set[Feed] = set()
        self._waits = SlaveWaits(config.slave_timeout_ms)
        self._left = asyncio.Event()
        store.on_append.connect(self.wake)

    # Waits for slaves.

    def acknowledged(self, log_end: int) -> "asyncio.Future[Code]":
        """Resolves with SUCCESS when enough slaves have everything before ``log_end``.

        With SLAVE_NOT_AVAILABLE at once when too few are there or near, with FLUSH_SLAVE_TIMEOUT when it takes too
        long; the messages are stored all the same. Call it in the order of the log.
        """
        done: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        if self.table.confirmed >= log_end:
            done.set_result(Code.SUCCESS)
        elif not self.table.available(self.store.log_max):
            done.set_result(Code.SLAVE_NOT_AVAILABLE)
        else:
            self._waits.add(log_end, done)
        return done

    # Slaves.

    def admit(self, slave: SlaveName) -> None:
        """Raise DejamqError with INVALID_PARAMETER for a caller that is no slave of this broker, NO_PERMISSION at a
        slave.
        """
        site = self._site
        if not site.master:
            text = f"this is slave {site.broker_id} of {site.broker_name}; follow its master"
            raise DejamqError(text, code=Code.NO_PERMISSION)
        if (slave.cluster, slave.broker_name) != (site.cluster, site.broker_name):
            text = f"this is {site.broker_name} of {site.cluster}, no master of {slave.broker_name} of {slave.cluster}"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
        if slave.broker_id == MASTER_ID:
            raise DejamqError("a slave's broker id is above 0", code=Code.INVALID_PARAMETER)

    def check_boot(self, boot_id: str) -> None:
        """Raise SERVICE_NOT_AVAILABLE when the slave has spoken with an earlier process: its log may differ."""
        if boot_id != self._site.boot_id:
            raise DejamqError("the master has been restarted: compare with it again", code=Code.SERVICE_NOT_AVAILABLE)

    def connect(self, slave: SlaveName, log_offset: int) -> "Feed":
        """A slave begins to follow from this log offset, all before it counts as acknowledged. Raises DejamqError."""
        self.admit(slave)
        if self.closing.is_set() or not self.store.log_min <= log_offset <= self.store.log_max:
            raise DejamqError(f"the log cannot be sent from {log_offset} on now", code=Code.SERVICE_NOT_AVAILABLE)
        position = SlavePosition(slave.broker_id, slave.boot_id, slave.address, log_offset)
        feed = Feed(self, position)
        self.table.add(feed, position)
        self.note(position, "connected")
        self._waits.confirm(self.table.confirmed)
        return feed

    def disconnect(self, feed: "Feed", reason: str) -> None:
        """A connection ended; its slave's position counts no more."""
        self._idle.discard(feed)
        position = self.table.remove(feed)
        if position is not None:
            if self._bound is not None:
                self._bound.lost(position)
            self.note(position, "lost", reason)
        if not len(self.table):
            self._left.set()

    def acknowledge(self, feed: "Feed", log_offset: int) -> None:
        """A slave said how far it is. Raises DejamqError for an offset that it was never sent."""
        if log_offset > feed.sent:
            text = f"acknowledged up to {log_offset}, and only {feed.sent} was sent"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
        self.table.acknowledge(feed, log_offset)
        if self._waits:
            self._waits.confirm(self.table.confirmed)
        self.let_read()

    def sent_all(self, position: SlavePosition) -> None:
        """This slave gets the end of the log now. Called before that leaves: the slave may take over when it has it."""
        if self._bound is not None:
            self._bound.joined(position)

    async def look(self) -> None:
        """The periodic ``let_read``."""
        self.let_read()

    def let_read(self) -> None:
        """Consumers get what slaves have, or need not have any more."""
        if self._bound is not None:
            self._bound.look()
            self.store.look_again()

    def wake(self) -> None:
        """There is more to send. Called after every append, by the loop."""
        if self._idle:
            for feed in self._idle:
                feed.more.set()
            self._idle.clear()

    async def idle(self, feed: "Feed") -> None:
        """Until something was appended, or for the interval of heartbeats."""
        feed.more.clear()
        self._idle.add(feed)
        try:
            async with asyncio.timeout(self.config.ha_send_heartbeat_interval_ms / 1000):
                await feed.more.wait()
        except TimeoutError:
            pass
        finally:
            self._idle.discard(feed)

    async def close(self, grace_ms: float) -> None:
        """Send what slaves have not got yet, at most for this long, and end their streams. May be called twice."""
        self.closing.set()
        self.wake()
        if len(self.table):
            self._left.clear()
            try:
                async with asyncio.timeout(grace_ms / 1000):
                    await self._left.wait()
            except TimeoutError:
                log.warning("slaves_left_behind slaves=%d", len(self.table))
        self._waits.close()

    def info(self, now_ms: int) -> dict[str, str]:
        """For operators: how many slaves there are, and of each how far behind it is in bytes and in time."""
        found = {"brokerRole": self.config.broker_role, "slaves": str(len(self.table))}
        for slave in self.table.slaves():
            name = f"slave.{slave.broker_id}"
            found[f"{name}.address"] = slave.address
            found[f"{name}.acknowledged"] = str(slave.acknowledged)
            found[f"{name}.lagBytes"] = str(max(0, self.store.log_max - slave.acknowledged))
            found[f"{name}.lagMs"] = str(lag_ms(self.store, slave.acknowledged, now_ms))
        return found

    def status(self) -> HaStatus:
        """As ``info``, for those who count with it."""
        end, table = self.store.log_max, self.table
        return HaStatus(end, tuple(
            SlaveStatus(one.address, one.acknowledged, one.sent, table.near(one, end)) for one in table.slaves()
        ))  # fmt: skip

    def note_promoted(self, note: SlaveNote | None) -> None:
        """This store was a slave's before: records that its master had beyond its end are not here."""
        log_end = self.store.log_max
        missing, stale_ms = (note.missing_bytes(log_end), note.stale_ms) if note else (-1, -1)
        log.warning("promoted log_offset=%d missing_bytes=%d tables_older_ms=%d", log_end, missing, stale_ms)
        self._journal.write(ReplicaEvent(
            broker_name=self._site.broker_name, broker_id=self._site.broker_id, change="promoted",
            log_offset=log_end, lag_bytes=max(0, missing),
        ))  # fmt: skip

    def note(self, slave: SlavePosition, change: str, reason: str = "") -> None:
        """Journal a step of a slave, and log it when it came or went."""
        lag_bytes = self.store.log_max - slave.acknowledged
        if change != "position":
            where = slave.broker_id, slave.address, slave.acknowledged, lag_bytes, reason.replace(" ", "_") or "-"
            log.info(f"slave_{change} id=%d address=%s log_offset=%d lag_bytes=%d reason=%s", *where)
        if self._journal.on:
            self._journal.write(ReplicaEvent(
                broker_name=self._site.broker_name, broker_id=self._site.broker_id, change=change,
                peer_id=slave.broker_id, peer_boot_id=slave.boot_id, address=slave.address,
                log_offset=slave.acknowledged, lag_bytes=lag_bytes, reason=reason,
            ))  # fmt: skip


class Feed:
    """One slave's stream: the next bytes to send, and the answers that came back. Owned by the stream's task."""

    def __init__(self, replication: Replication, position: SlavePosition) -> None:
        self._replication, self.position = replication, position
        position.sent = position.acknowledged
        self.more = asyncio.Event()
        self._noted = 0.0
        self._deleted: list[str] = []
        self._over: DejamqError | None = None
        self._greeted = False

    @property
    def sent(self) -> int:
        """Everything before this log offset was sent."""
        return self.position.sent

    async def next(self) -> LogSlice | None:
        """The next slice as soon as there is one; at first, and after a while without one, a sign of life.

        None when the master closes and the slave has all that was sent. Raises the DejamqError with which the stream
        was ended meanwhile. Bytes that may have left memory are read beside the loop: a slave that is far behind
        disturbs no append.
        """
        replication = self._replication
        while True:
            if self._over is not None:
                raise self._over
            data = await self._read()
            if len(data) or not self._greeted:
                break
            # a stream that ends takes what is under way with it, as the slave fails to answer the slices before
            if replication.closing.is_set() and self.position.acknowledged >= self.sent:
                return None
            await replication.idle(self)
            if not self.more.is_set():
                break
        self._greeted = True
        slice_ = self._slice(data)
        self.position.sent += len(data)
        if self._over is None and self.position.sent >= slice_.master_end:
            replication.sent_all(self.position)
        return slice_

    def acknowledged(self, log_offset: int) -> None:
        """Raises DejamqError for a position that cannot be."""
        self._replication.acknowledge(self, log_offset)
        if self._replication.closing.is_set():
            self.more.set()
        now = asyncio.get_running_loop().time()
        if (now - self._noted) * 1000 >= NOTED_MS:
            self._noted = now
            self._replication.note(self.position, "position")

    def end(self, why: DejamqError) -> None:
        """The slave counts no more; a write that is under way may still take long to fail. May be called twice."""
        self._over = self._over or why
        self._replication.disconnect(self, str(why))
        self.more.set()

    async def _read(self) -> bytes | memoryview:
        """No slice goes on over the place of a deletion: the slave makes it when its log ends there."""
        store, most = self._replication.store, self._replication.config.ha_transfer_batch_size
        copy = store.copy
        if self.sent < store.log_min:
            text = f"the log before {store.log_min} has expired, and this slave is at {self.sent}"
            raise DejamqError(text, code=Code.SERVICE_NOT_AVAILABLE)
        self._deleted, before_next = copy.deletions(self.sent)
        most = min(most, before_next)
        if copy.is_recent(self.sent):
            return copy.recent(self.sent, most)
        return await asyncio.to_thread(copy.from_disk, self.sent, most)

    def _slice(self, data: bytes | memoryview) -> LogSlice:
        store = self._replication.store
        return LogSlice(
            log_offset=self.sent, master_end=store.log_max, master_timestamp_ms=store.copy.last_timestamp_ms, data=data,
            deleted_topics=self._deleted if len(data) else [],
        )  # fmt: skip


def lag_ms(store: "MessageStore", acknowledged: int, now_ms: int) -> int:
    """How long the oldest record that a slave has not got has been in the log; 0 when it has all of them."""
    if acknowledged >= store.log_max:
        return 0
    record = store.record_at(acknowledged)
    if record is None:  # a blank: the next record begins the next file
        file_size = store.copy.file_size
        record = store.record_at(acknowledged - acknowledged % file_size + file_size)
    return max(0, now_ms - decode(record, check_crc=False).store_timestamp_ms) if record else 0
