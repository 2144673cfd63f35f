"""The parts by which a broker decides: its tables and services, made of an open store and joined to one another."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from dejamq_proto import names
from dejamq_proto.clock import ClocksMs
from dejamq_proto.config.live_settings import LiveSettings
from dejamq_proto.journal.writer import Journal

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.counts import Counts
from dejamq_broker.base.identity import Site
from dejamq_broker.base.streams import Streams
from dejamq_broker.dedup.deduplication import Deduplication
from dejamq_broker.deferred.dead_letters import DeadLetters
from dejamq_broker.deferred.delay import DelayService
from dejamq_broker.deferred.retry import Retries
from dejamq_broker.deferred.transactions.check import CheckRounds
from dejamq_broker.deferred.transactions.halves import Halves
from dejamq_broker.deferred.transactions.rules import CheckLimits
from dejamq_broker.deferred.transactions.service import Transactions
from dejamq_broker.filters.chosen import FilterFactory
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.commands import PendingCommands
from dejamq_broker.members.handover import ClaimTable
from dejamq_broker.members.handover_service import Handovers
from dejamq_broker.members.lock_service import LockService
from dejamq_broker.operators.deletion import Lives
from dejamq_broker.operators.live_parts import changeable
from dejamq_broker.operators.offset_moves import OffsetMoves
from dejamq_broker.operators.runtime_info import RuntimeInfo
from dejamq_broker.operators.stats import Stats
from dejamq_broker.operators.store_rates import StoreRates
from dejamq_broker.paths.commits import Commits
from dejamq_broker.paths.confirmation import Confirmation
from dejamq_broker.paths.long_poll import LongPoll
from dejamq_broker.paths.pull import Puller, ReplicaRules
from dejamq_broker.paths.replies import Replies
from dejamq_broker.paths.rules import PullRules
from dejamq_broker.paths.send import SendPath
from dejamq_broker.pop.lines import PopLines
from dejamq_broker.pop.memory import PopMemory
from dejamq_broker.pop.order_file import OrderFile
from dejamq_broker.pop.ordered import OrderedPops
from dejamq_broker.pop.recovery import PopRecovery
from dejamq_broker.pop.renewals import Renewals
from dejamq_broker.pop.revive import Reviver
from dejamq_broker.pop.revive_log import ReviveLog
from dejamq_broker.pop.service import Pops
from dejamq_broker.pop.state import PopState
from dejamq_broker.pop.waiting import HeldPops
from dejamq_broker.replication.master import Replication
from dejamq_broker.replication.mastership import TRUSTED, Mastership, boot_clock_s
from dejamq_broker.replication.read_bound import ReadBound
from dejamq_broker.store import MessageStore
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.table_set import Tables
from dejamq_broker.tables.offsets import Position
from dejamq_broker.timer.recall import Recalls
from dejamq_broker.timer.rules import TimerRules
from dejamq_broker.timer.service import TimerService
from dejamq_broker.timer.units import TimerLog
from dejamq_broker.timer.wheel import TimerWheel
from dejamq_broker.writing.fast_failure import FastFailure
from dejamq_broker.writing.fence import NoFence
from dejamq_broker.writing.record_writer import RecordWriter


def monotonic_clock_ms() -> int:
    """Milliseconds from some moment on, whatever becomes of the time of day."""
    return time.monotonic_ns() // 1_000_000


def local_day(now_ms: int) -> int:
    """The day of this time where the broker runs, as one number."""
    local = time.localtime(now_ms / 1000)
    return local.tm_year * 1000 + local.tm_yday


def read_bound(config: BrokerConfig, mastership: Mastership) -> ReadBound:
    """A slave takes no place that was lost two leases and a sign of life ago, while this one was master.

    The rest is for clocks that do not run equally fast.
    """
    lost_ms = (3 - TRUSTED) * config.failover_lease_ms + config.ha_send_heartbeat_interval_ms
    return ReadBound(lost_ms / 1000, mastership.holds, boot_clock_s)


class Members:
    """The connected clients, their locks and claims, and the commands to them."""

    def __init__(
        self, config: BrokerConfig, tables: Tables, journal: Journal, clocks: ClocksMs, filters: FilterFactory
    ) -> None:
        """Generations of claims count on from the time of day, so that generations of a later start are higher.

        A broker without offsets has had no consumers that could come back with their claims.
        """
        life_ms = config.rebalance_lock_max_live_time_ms
        self.locks = LockService(config.broker_name, life_ms, journal, clocks.age_ms)
        opens_ms = monotonic_clock_ms() + config.claim_settle_ms if len(tables.offsets) else 0
        claims = ClaimTable(config.claim_life_ms, last_generation=clocks.wall_ms(), opens_ms=opens_ms)
        self.clients = Clients(config, tables.topics, tables.groups, journal, clocks.age_ms, filters.of)
        self.handovers = Handovers(
            config.broker_name, claims, tables.offsets, journal, monotonic_clock_ms, self.clients.groups.handover_off
        )
        self.commands = PendingCommands(self.clients, config.client_answer_timeout_ms)


class Paths:
    """The ways of messages: in, back, and out."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, journal: Journal, site: Site, clocks: ClocksMs,
        writer: RecordWriter, tables: Tables, members: Members, filters: FilterFactory, *,
        timing: TimerRules, counts: Counts, master_there: Callable[[], bool], fence: Mastership | None,
    ) -> None:  # fmt: skip
        topics, groups, offsets, clock_ms = tables.topics, tables.groups, tables.offsets, clocks.wall_ms
        levels_ms = tuple(ms * 1000 // config.store.delay_second_ms for ms in config.store.delay_levels_ms)
        self.retries = Retries(
            store, writer, topics, groups, levels_ms, writable=config.writable,
            ordered=lambda group: not members.locks.all_expired(group),
        )  # fmt: skip
        self.replication = Replication(config, store, journal, site, read_bound(config, fence) if fence else None)
        self.transactions = Transactions(store, writer, topics, offsets, journal, config, clock_ms, timing.waiting)
        self.dedup = Deduplication(config, store, journal, site, clock_ms)
        self.sender = SendPath(
            config, writer, topics, self.retries,
            Replies(
                writer, store=config.store_reply_message_enable, clock_ms=clock_ms, push=members.clients.push_reply
            ),
            Halves(writer, topics, self.transactions.stored, reject=config.reject_transaction_message),
            timing, self.dedup,
            self.replication.acknowledged if self.replication.waits else None,
        )  # fmt: skip
        self.confirmation = Confirmation(self.sender, self.retries, config.sync_flush_timeout_ms, writer.holds)
        self.commits = Commits(store, topics, groups, offsets)
        self.pull_rules = PullRules(config, topics, groups, members.clients.groups, filters)
        replicas = ReplicaRules(self.pull_rules, store, site, master_there)
        self.puller = Puller(store, self.pull_rules, offsets, journal, site, replicas, counts, clock_ms)


class PopParts:
    """What groups pop: who is given what, who waits, and what comes again."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, journal: Journal, site: Site, clock_ms: Callable[[], int],
        writer: RecordWriter, tables: Tables, rules: PullRules, *, counts: Counts,
    ) -> None:  # fmt: skip
        topics, offsets = tables.topics, tables.offsets
        order_file = OrderFile(Path(config.store_directory).expanduser() / "config" / "consumerOrderInfo.json", journal)
        memory, log = PopMemory(), ReviveLog(store, writer, topics, config.cluster_name)
        self._lines = PopLines(site.broker_name, journal)
        self.state = PopState(memory, log, site, offsets, order_file)
        self.recovery = PopRecovery(self.state, memory, log, store, topics, offsets, order_file)
        self.reviver = Reviver(
            store, writer, topics, tables.groups, self.state, self._lines, v2=config.enable_retry_topic_v2
        )
        in_order = OrderedPops(self.state, self.reviver, tables.groups, clock_ms, self._freed)
        self.pops = Pops(
            store, self.state, self.reviver, in_order, topics, offsets, rules, self._lines, site, counts, config,
            clock_ms,
        )  # fmt: skip
        self.held = HeldPops(self.pops, config)
        self._clock_ms = clock_ms
        self.renewals = Renewals(self.pops, site.broker_name, config, clock_ms)
        offsets.on_move.connect(self._moved)

    async def revive(self) -> None:
        """What is due comes again."""
        more = True
        while more:
            more = self.reviver.turn(self._clock_ms())
            await asyncio.sleep(0)
        for at in self.state.freed(self._clock_ms()):
            self._freed(at)

    async def tidy(self) -> None:
        """Tell the table of offsets how far the records count no more, and RocketMQ how it stands with orders."""
        await self.state.tidy()

    def close(self) -> None:
        """Answer those who wait, and give nothing away from now on."""
        self.held.close()
        self.pops.close()

    def topic_ended(self, topic: str) -> None:
        """Nothing of it is in flight any more."""
        self._lines.dropped(self.state.forget("", topic, self._clock_ms()), "deleted")

    def group_ended(self, group: str) -> None:
        """Nothing is in flight for it any more."""
        self._lines.dropped(self.state.forget(group, "", self._clock_ms()), "deleted")

    def _moved(self, at: Position, offset: int) -> None:
        self._lines.dropped(self.state.moved(at, offset, self._clock_ms()), "reset")
        self._freed(at)

    def _freed(self, at: Position) -> None:
        self.held.wake((at.group, at.topic))


class Services:
    """The broker's own work with the log, and the work that operators ask for."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, journal: Journal, clocks: ClocksMs, writer: RecordWriter,
        tables: Tables, members: Members, paths: Paths, *,
        timing: TimerRules, counts: Counts, wake: Callable[[list[tuple[str, int]]], None],
    ) -> None:  # fmt: skip
        """``wake`` makes held pulls of queues look again."""
        topics, groups, offsets, clock_ms = tables.topics, tables.groups, tables.offsets, clocks.wall_ms
        reserved_ms = config.store.file_reserved_ms
        self.transaction_rounds = CheckRounds(
            paths.transactions, writer, topics, members.clients, journal,
            CheckLimits(config.transaction_timeout_ms, config.transaction_check_max, reserved_ms),
            config.transaction_round_max_ms, clock_ms,
        )  # fmt: skip
        self.delay = DelayService(
            store, writer, tables.progress, config.store.delay_levels_ms, clock_ms, config.schedule_error_backoff_ms,
            lambda topic: topics.get(topic) is not None,
        )  # fmt: skip
        files = StorePaths(Path(config.store_directory).expanduser())
        self.timer = TimerService(
            store, writer, tables.timer_progress, timing, TimerWheel(files.timer_wheel, config.timer_precision_ms),
            TimerLog(files.timer_log, config.store.mapped_file_size_timer_log), clock_ms,
            config.schedule_error_backoff_ms, lambda topic: topics.get(topic) is not None,
            left_to_others=names.revive_topic(config.cluster_name),
        )  # fmt: skip
        self.recalls = Recalls(
            writer, topics, timing, clock_ms, enabled=config.recall_message_enable,
            writable=lambda: paths.retries.writable,
        )  # fmt: skip
        self.dead_letters = DeadLetters(
            store, writer, topics, groups,
            writable=lambda: paths.retries.writable, sync_flush=config.store.sync_flush,
        )  # fmt: skip
        self.moves = OffsetMoves(store, topics, groups, offsets, wake, writer.confirm)
        self.lives = Lives(topics, groups, offsets, counts, queues=store, wake=wake, stored=store.queues)
        self.settings = LiveSettings(config)
        self.settings.changeable |= changeable(
            self.settings, topics, groups, offsets, members.clients, paths.pull_rules, paths.sender, paths.retries
        )


class Measures:
    """The broker's counts, and the statistics and metrics made of them."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, clock_ms: Callable[[], int], counts: Counts, tables: Tables,
        fast_failure: FastFailure, timer: TimerService,
    ) -> None:  # fmt: skip
        self.counts = counts
        self.stats = Stats(counts, config.cluster_name, clock_ms)
        self.rates = StoreRates(counts, clock_ms, local_day)
        self.runtime = RuntimeInfo(
            store, Path(config.store_directory).expanduser(), counts, self.rates, clock_ms, progress=tables.progress,
            levels=len(config.store.delay_levels_ms), timer=timer,
            sends=lambda: (fast_failure.waiting, config.send_queue_capacity),
        )  # fmt: skip


class Domain:
    """The broker without its doors: nothing here knows gRPC. Belongs to the event loop that made it.

    It is a list of parts, each with the parts it is made of. A user of a part takes that part.
    """

    def __init__(
        self, config: BrokerConfig, store: MessageStore, journal: Journal, site: Site, clocks: ClocksMs,
        long_poll: LongPoll, *, on_topics: Callable[[], None], master_there: Callable[[], bool],
        mastership: Mastership | None = None,
    ) -> None:  # fmt: skip
        """``on_topics`` is called at each change of the topics; for ``master_there`` see ``ReplicaRules``.

        ``mastership``: with ``failover_enable``, by which a master knows whether it may store.
        """
        self.config, self.store, self.site = config, store, site
        self.long_poll, self.clock_ms = long_poll, clocks.wall_ms
        self.streams, self.fast_failure = Streams(), FastFailure(config)
        counts, filters = Counts(), FilterFactory(sql=config.enable_property_filter)
        timing = TimerRules(
            config.timer_precision_ms, config.timer_max_delay_sec * 1000, config.timer_roll_window_slot, self.clock_ms,
            config.store.file_reserved_ms,
        )  # fmt: skip
        fence = mastership if site.master else None
        self.writer = RecordWriter(store, journal, site, counts, self.fast_failure.appended, fence or NoFence())
        self.tables = Tables(
            config, journal, clocks.wall_ms, on_topics=on_topics,
            fenced=lambda at, asker: self.members.handovers.fenced(at, asker),
            queue_end=store.max_offset, log_on_disk=self.writer.on_disk,
        )  # fmt: skip
        if site.master:
            self._bring_back(store.queues())
        self.members = Members(config, self.tables, journal, clocks, filters)
        self.paths = Paths(
            config, store, journal, site, clocks, self.writer, self.tables, self.members, filters,
            timing=timing, counts=counts, master_there=master_there,
            fence=fence,
        )  # fmt: skip
        self.popping = PopParts(
            config, store, journal, site, clocks.wall_ms, self.writer, self.tables, self.paths.pull_rules, counts=counts
        )
        self.services = Services(
            config, store, journal, clocks, self.writer, self.tables, self.members, self.paths,
            timing=timing, counts=counts, wake=long_poll.on_arrival,
        )  # fmt: skip
        self.measures = Measures(
            config, store, clocks.wall_ms, counts, self.tables, self.fast_failure, self.services.timer
        )
        long_poll.on_wake.connect(self.popping.held.arrived)
        self.services.lives.on_topic_end.connect(self.popping.topic_ended)
        self.services.lives.on_group_end.connect(self.popping.group_ended)
        self.services.lives.on_topic_end.connect(self.paths.dedup.forget)
        self.services.lives.on_topic_end.connect(lambda topic: self.tables.request_modes.forget(topic=topic))
        self.services.lives.on_group_end.connect(lambda group: self.tables.request_modes.forget(group=group))
        if site.master:
            self.paths.transactions.recover()
            self.popping.recovery.recover()
            self.popping.renewals.resume(clean=store.clean_start)
            self.services.timer.recover()
            self.paths.dedup.recover()
        else:
            self.paths.dedup.follow()
        self.services.delay.clamp()

    def _bring_back(self, stored: Iterable[tuple[str, int]]) -> None:
        """Retry topics and dead letters that have messages, and that a crash kept from reaching the file of topics.

        At a store that was a slave's, all topics that were made after it had copied them last.
        """
        every = self.store.promoted and self.config.failover_enable
        lacking: dict[str, int] = {}
        for topic, queue_id in stored:
            if (every or names.is_internal(topic)) and self.tables.topics.get(topic) is None:
                lacking[topic] = max(lacking.get(topic, 0), queue_id + 1)
        self.tables.topics.ensure_each(lacking)

    def last_flushes(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """The last writes, when nobody can change the tables any more; the last one first."""
        return [
            ("timer's files", self.services.timer.close_files), ("consumer offsets", self.tables.offsets.flush),
            ("tables", self.tables.kept),
            ("delay progress", self.tables.progress.flush), ("timer progress", self.services.timer.flush),
            ("marks of transactions", self.paths.transactions.ops.flush), ("revive offsets", self.popping.tidy),
            *([("dedup mark", self.paths.dedup.flush)] if self.site.master else []),
        ]  # fmt: skip
