"""A slave's side of replication: find the master, agree on where the logs part, then copy on. Never ends by itself.

Source: RocketMQ ``DefaultHAClient``; the comparison of the logs before each connection is ours.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

import msgspec
from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.events import ReplicaEvent
from dejamq_proto.journal.writer import Journal
from dejamq_proto.wire.fields import BadMessage
from dejamq_proto.wire.replication import LogSlice

from dejamq_broker.base.config import SLAVE, BrokerConfig
from dejamq_broker.base.disk_work import beside_loop
from dejamq_broker.base.identity import Site
from dejamq_broker.replication.common_end import Apart, LogExtent, check_extents, common_end, first_offset
from dejamq_broker.replication.mastership import boot_clock_s
from dejamq_broker.replication.slave_progress import HaStatus
from dejamq_broker.store import BadCopy, SlaveStore

log = logging.getLogger(__name__)
FIRST_PAUSE = 1 / 16
"""Of the longest pause between two tries; each failure doubles it."""


class MasterLog(msgspec.Struct, frozen=True):
    """The master's log as it says; ``damaged`` are ranges of it that hold no records, ``replica`` its store."""

    extent: LogExtent
    boot_id: str
    damaged: tuple[tuple[int, int], ...] = ()
    replica: str = ""


class MasterConnection(Protocol):
    """One connection to a master. All but ``close`` raise DejamqError when it is over."""

    address: str

    async def log(self, suspect: int) -> MasterLog: ...
    async def digest(self, boot_id: str, log_offset: int, size: int) -> tuple[int, int]: ...
    async def follow(self, boot_id: str, log_offset: int) -> None: ...
    async def read(self) -> LogSlice: ...
    async def report(self, log_offset: int) -> None: ...
    async def close(self) -> None: ...


class ReplicationState(msgspec.Struct):
    """How it stands with the master; ``trouble``: why the last try ended, ``heard_ms``: when it last gave a sign.

    ``heard_s``: the same on a clock that never jumps. ``replica``: whose log is copied, or was when it was lost;
    ``caught_up``: all of it was there once since.
    """

    master_address: str = ""
    connected: bool = False
    master_end: int = 0
    master_timestamp_ms: int = 0
    heard_ms: int = 0
    heard_s: float = 0.0
    replica: str = ""
    caught_up: bool = False
    trouble: str = "the master is not known yet"


class LogFollower:
    """Owned by the event loop; the only one that changes a slave's log."""

    def __init__(
        self,
        config: BrokerConfig,
        store: SlaveStore,
        journal: Journal,
        site: Site,
        dial: Callable[[str], MasterConnection],
        *,
        look_for_master: Callable[[], None],
        on_connected: Callable[[], None],
    ) -> None:
        """``look_for_master`` asks the name servers; their answer comes to ``master_is``.

        ``on_connected``: the log is copied from now on, or all here now, so the tables can be copied too.
        """
        self._look_for_master, self._on_connected = look_for_master, on_connected
        self._config, self._store, self._journal, self._site, self._dial = config, store, journal, site, dial
        self.state = ReplicationState(master_address=config.ha_master_address)
        self._progress = asyncio.Event()
        self._found = asyncio.Event()
        self._suspect = 0
        self._pause_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.create_task(self._run(), name="follow the master")

    async def close(self) -> None:
        """Let go of the master; the records in the log stay. May be called twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def master_is(self, address: str) -> None:
        """A name server gave the master's address; '' that it knows none. A configured one is stronger."""
        if address not in ("", self.state.master_address) and not self._config.ha_master_address:
            self.state.master_address = address
            self._found.set()

    def status(self) -> HaStatus:
        """As ``info``, for those who count with it."""
        state = self.state
        return HaStatus(
            self._store.log_max, master_address=state.master_address, master_end=state.master_end,
            heard_ms=state.heard_ms,
        )  # fmt: skip

    def info(self) -> dict[str, str]:
        """For operators: whom it follows, and how far behind it is, as far as the master's last word tells."""
        state, store = self.state, self._store
        behind = max(0, state.master_end - store.log_max)
        late = max(0, state.master_timestamp_ms - store.copy.last_timestamp_ms) if behind else 0
        return {
            "brokerRole": SLAVE,
            "masterAddr": state.master_address,
            "following": str(state.connected).lower(),
            "followingTrouble": "" if state.connected else state.trouble,
            "lagBytes": str(behind),
            "lagMs": str(late),
        }

    async def _run(self) -> None:
        """Try for ever, with growing pauses while nothing is copied."""
        longest_s = self._config.ha_reconnect_interval_ms / 1000
        self._pause_s = longest_s * FIRST_PAUSE
        while True:
            if self.state.master_address:
                await self._try()
            if not self.state.connected and not self._config.ha_master_address:
                self._look_for_master()
            self._found.clear()
            try:
                async with asyncio.timeout(self._pause_s):
                    await self._found.wait()
            except TimeoutError:
                pass
            self._pause_s = min(2 * self._pause_s, longest_s)

    async def _try(self) -> None:
        """One connection from beginning to end; why it ended is kept, and logged when it is another reason."""
        state, link = self.state, self._dial(self.state.master_address)
        before = state.trouble
        try:
            await self._follow(link)
        except* (DejamqError, Apart, BadMessage, BadCopy, OSError) as errors:
            error = errors.exceptions[0]
            if isinstance(error, BadCopy):
                self._suspect = error.log_offset
            state.trouble = str(error)
        except* Exception as errors:  # whatever it is: a slave that no longer tries would be a slave no more
            log.exception("follow_failed master=%s", link.address)
            state.trouble = repr(errors.exceptions[0])
        finally:
            if state.connected:
                self._note("lost", link.address, reason=state.trouble)
            elif state.trouble != before:
                log.warning("not_following master=%s reason=%s", link.address, state.trouble)
                self._note("refused", link.address, reason=state.trouble)
            state.connected = False
            await link.close()

    async def _follow(self, link: MasterConnection) -> None:
        """Each slice and each sign of life is answered with how far this slave is."""
        store = self._store
        if not store.is_open:
            await asyncio.to_thread(store.reopen)
        master = await link.log(self._suspect)
        await self._meet(link, master)
        self._suspect = 0
        begin = store.begin_copy(master.damaged)
        await link.follow(master.boot_id, begin)
        self.state.replica, self.state.caught_up = master.replica, False
        sync_flush = self._config.store.sync_flush
        async with asyncio.TaskGroup() as tasks:
            if sync_flush:
                tasks.create_task(self._report_flushed(link))
            while True:
                await self._take(await link.read(), link.address)
                if sync_flush:
                    self._progress.set()
                else:
                    await link.report(store.log_max)

    async def _take(self, slice_: LogSlice, address: str) -> None:
        state, store = self.state, self._store
        if not state.connected:
            state.connected, state.trouble = True, ""
            self._note("connected", address)
            self._on_connected()
        state.master_end, state.master_timestamp_ms = slice_.master_end, slice_.master_timestamp_ms
        state.heard_ms, state.heard_s = time.time_ns() // 1_000_000, boot_clock_s()
        for topic in slice_.deleted_topics:
            await beside_loop(store.note_deletion, topic)
            store.delete_topic(topic, noted=True)
        if len(slice_.data):
            store.take_copy(slice_.log_offset, slice_.data)
        if not state.caught_up and store.log_max >= slice_.master_end:
            state.caught_up = True
            self._on_connected()  # tables that waited for the log
        self._pause_s = self._config.ha_reconnect_interval_ms / 1000 * FIRST_PAUSE

    async def _report_flushed(self, link: MasterConnection) -> None:
        """With SYNC_FLUSH, acknowledge the bytes on disk; bytes that come while one flush runs share the next."""
        while True:
            await self._progress.wait()
            self._progress.clear()
            log_end = self._store.log_max
            await asyncio.wrap_future(self._store.durable(log_end))
            await link.report(log_end)

    # Before a stream begins.

    async def _meet(self, link: MasterConnection, master: MasterLog) -> None:
        """Make this log a beginning of the master's. Raises Apart when that cannot be."""
        store, theirs = self._store, master.extent
        mine = LogExtent(store.log_min, store.log_max, store.copy.file_size)
        check_extents(mine, theirs)
        if mine.empty:
            begin = first_offset(theirs, full=self._config.ha_full_copy)
            if begin != mine.max_offset:
                await asyncio.to_thread(store.begin_at, begin)
                self._note("begun", link.address)
            return

        async def equal(begin: int, end: int) -> bool:
            here = await asyncio.to_thread(store.copy.digest, begin, end - begin)
            return here == await link.digest(master.boot_id, begin, end - begin)

        common = await common_end(mine, theirs, equal)
        if common < mine.max_offset:
            await self._cut(link, common)

    async def _cut(self, link: MasterConnection, common: int) -> None:
        """Give up what the master does not have. Raises Apart when nothing would be left."""
        store, before = self._store, self._store.log_max
        place = await asyncio.to_thread(store.copy.boundary, common)
        if place <= store.log_min:
            raise Apart(
                f"this log and the master's have nothing in common from {store.log_min} on: start this broker as "
                "master to keep what it has, or empty its store directory to lose it"
            )
        reason = f"the master at {link.address} does not have what follows"
        cuts = await asyncio.to_thread(store.cut_back, place, reason)
        kept = [cut.kept for cut in cuts]
        log.warning("slave_cut_back at=%d bytes=%d kept=%s", place, before - place, ",".join(kept))
        self._note("cut", link.address, reason=reason, size=before - place, kept=kept)

    def _note(
        self, change: str, address: str, *, reason: str = "", size: int = 0, kept: list[str] | None = None
    ) -> None:
        log_end = self._store.log_max
        log.info("master_%s address=%s log_offset=%d reason=%s", change, address, log_end, reason or "-")
        if self._journal.on:
            self._journal.write(ReplicaEvent(
                broker_name=self._site.broker_name, broker_id=self._site.broker_id, change=change, address=address,
                log_offset=log_end, lag_bytes=max(0, self.state.master_end - log_end), reason=reason, size=size,
                kept=kept or [],
            ))  # fmt: skip
