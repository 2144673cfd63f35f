"""What a broker decides with: its tables and services, made of an open store and joined to one another."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from dejamq_proto.clock import ClocksMs
from dejamq_proto.journal import Journal

from dejamq_broker.clients import Clients
from dejamq_broker.commands import Commands
from dejamq_broker.config import BrokerConfig
from dejamq_broker.counts import Counts
from dejamq_broker.dead_letters import DeadLetters
from dejamq_broker.delay import DelayService
from dejamq_broker.delay_progress import DelayProgress
from dejamq_broker.fast_failure import FastFailure
from dejamq_broker.ha_master import Replication
from dejamq_broker.ha_tables import CopiedTables
from dejamq_broker.handover import ClaimTable
from dejamq_broker.handover_service import Handovers
from dejamq_broker.json_file import nothing
from dejamq_broker.live_parts import changeable
from dejamq_broker.live_settings import LiveSettings
from dejamq_broker.lives import Lives
from dejamq_broker.lock_service import Locks
from dejamq_broker.long_poll import LongPoll
from dejamq_broker.offset_moves import OffsetMoves
from dejamq_broker.offsets import OffsetTable
from dejamq_broker.pull import Puller
from dejamq_broker.pull_rules import PullRules
from dejamq_broker.record_writer import RecordWriter
from dejamq_broker.replies import Replies
from dejamq_broker.retry import Retries
from dejamq_broker.runtime_info import RuntimeInfo
from dejamq_broker.send import Sender
from dejamq_broker.site import Site
from dejamq_broker.stats import Stats
from dejamq_broker.store import MessageStore
from dejamq_broker.store_rates import StoreRates
from dejamq_broker.streams import Streams
from dejamq_broker.subscription_groups import SubscriptionGroupTable
from dejamq_broker.topics import TopicTable
from dejamq_broker.transaction_check import Rounds
from dejamq_broker.transaction_rules import Limits
from dejamq_broker.transactions import Transactions


def monotonic_clock_ms() -> int:
    """Milliseconds from some moment on, whatever becomes of the time of day."""
    return time.monotonic_ns() // 1_000_000


def local_day(now_ms: int) -> int:
    """The day of this time where the broker runs, as one number."""
    local = time.localtime(now_ms / 1000)
    return local.tm_year * 1000 + local.tm_yday


class Domain:
    """The broker without its doors: nothing here knows gRPC. Belongs to the event loop that made it.

    Making it reads RocketMQ's files in ``config/``; nothing is written before all of them were read.
    """

    def __init__(
        self, config: BrokerConfig, store: MessageStore, journal: Journal, site: Site, clocks: ClocksMs,
        long_poll: LongPoll,
    ) -> None:  # fmt: skip
        self.config, self.store, self.journal, self.site, self.long_poll = config, store, journal, site, long_poll
        self.clock_ms, self.age_ms = clocks.wall_ms, clocks.age_ms
        clock_ms = self.clock_ms
        self.streams = Streams()
        self.fast_failure = FastFailure(config)
        self.counts = Counts()
        self.stats = Stats(self.counts, config.cluster_name, clock_ms)
        self.rates = StoreRates(self.counts, clock_ms, local_day)
        self.runtime = RuntimeInfo(store, Path(config.store_directory).expanduser(), self.counts, self.rates, clock_ms)
        self.writer = RecordWriter(store, journal, site)
        self.writer.on_append_ms = self.fast_failure.appended
        self.writer.counts = self.counts
        self._load_tables(Path(config.store_directory).expanduser() / "config")
        self._make_groups()
        self._make_writers()
        self._make_readers()
        self._make_changes()

    def last_flushes(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """What is written when nobody can change it any more; the last one first."""
        return [
            ("consumer offsets", self.offsets.flush), ("delay progress", self.progress.flush),
            ("marks of transactions", self.transactions.ops.flush),
        ]  # fmt: skip

    def _load_tables(self, folder: Path) -> None:
        config = self.config
        self.topics = TopicTable(folder / "topics.json", self.clock_ms)
        self.groups = SubscriptionGroupTable(
            folder / "subscriptionGroup.json", self.clock_ms, auto_create=config.auto_create_subscription_group
        )
        self.offsets = OffsetTable(folder / "consumerOffset.json", config.broker_name, self.journal, self.clock_ms)
        self.progress = DelayProgress(folder / "delayOffset.json", config.broker_name, self.journal)
        for table in (self.topics, self.groups, self.progress, self.offsets):
            table.load()
        self.tables = CopiedTables(self.topics, self.groups, self.offsets, self.progress)
        self.offsets.serve_resets = config.use_server_side_reset_offset
        self.offsets.refuse_lower, self.offsets.queue_end = config.refuse_lower_offsets, self.store.max_offset
        self.offsets.log_on_disk = self.progress.log_on_disk = self.writer.on_disk
        auto_create_queues = config.default_topic_queue_nums if config.auto_create_topic_enable else 0
        self.topics.ensure_system(auto_create_queues, config.cluster_name)
        self.topics.mask_permissions(config.broker_permission)

    def _make_groups(self) -> None:
        config = self.config
        life_ms = config.rebalance_lock_max_live_time_ms
        self.locks = Locks(config.broker_name, life_ms, self.journal, self.age_ms)
        self.handovers = self._make_handovers()
        self.clients = Clients(config, self.topics, self.groups, self.journal, self.age_ms)
        self.commands = Commands(self.clients, config.client_answer_timeout_ms)

    def _make_handovers(self) -> Handovers:
        """Generations count on from the time of day, so that those of a later start are higher.

        A broker without offsets has had no consumers that could come back.
        """
        config = self.config
        opens_ms = monotonic_clock_ms() + config.claim_settle_ms if len(self.offsets) else 0
        table = ClaimTable(config.claim_life_ms, last_generation=self.clock_ms(), opens_ms=opens_ms)
        made = Handovers(config.broker_name, table, self.offsets, self.journal, monotonic_clock_ms)
        self.offsets.fenced = made.fenced
        return made

    def _make_writers(self) -> None:
        config, levels = self.config, self.config.store.delay_levels_ms
        self.retries = Retries(
            self.store, self.writer, self.topics, self.groups,
            tuple(ms * 1000 // config.store.delay_second_ms for ms in levels), writable=config.writable,
            ordered=lambda group: not self.locks.all_expired(group),
        )  # fmt: skip
        replies = Replies(self.writer, store=config.store_reply_message_enable, clock_ms=self.clock_ms)
        replies.push = self.clients.push_reply
        self.sender = Sender(config, self.writer, self.topics, self.retries, replies)
        self.replication = Replication(config, self.store, self.journal, self.site)
        self.ha_info: Callable[[], dict[str, str]] = lambda: self.replication.info(self.clock_ms())
        if self.replication.waits:
            self.sender.replicated = self.replication.acknowledged
        self._make_transactions()
        self.delay = DelayService(
            self.store, self.writer, self.progress, levels, self.clock_ms, config.schedule_error_backoff_ms
        )
        self.delay.is_topic = lambda topic: self.topics.get(topic) is not None
        self.delay.clamp()
        self.runtime.progress, self.runtime.levels = self.progress, len(levels)
        self.runtime.sends = lambda: (self.fast_failure.waiting, config.send_queue_capacity)
        self.dead_letters = DeadLetters(
            self.store, self.writer, self.topics, self.groups,
            writable=lambda: self.retries.writable, sync_flush=config.store.sync_flush,
        )  # fmt: skip

    def _make_transactions(self) -> None:
        config, clock_ms = self.config, self.clock_ms
        self.transactions = Transactions(
            self.store, self.writer, self.topics, self.offsets, self.journal, config, clock_ms
        )
        self.sender.halves.on_stored = self.transactions.stored
        reserved_ms = config.store.file_reserved_time_hours * config.store.file_reserved_hour_ms
        limits = Limits(config.transaction_timeout_ms, config.transaction_check_max, reserved_ms)
        self.transaction_rounds = Rounds(
            self.transactions, self.writer, self.topics, self.clients, self.journal, limits,
            config.transaction_round_max_ms, clock_ms,
        )  # fmt: skip
        if self.site.master:
            self.transactions.recover()

    def _make_readers(self) -> None:
        self.pull_rules = PullRules(self.config, self.topics, self.groups, self.clients.groups)
        self.clients.check_filter = self.pull_rules.filters.of
        self.puller = Puller(self.store, self.pull_rules, self.offsets, self.journal, self.site)
        self.puller.counts, self.puller.clock_ms = self.counts, self.clock_ms

    def _make_changes(self) -> None:
        """What operators change of all that."""
        wake = self.long_poll.on_arrival
        self.moves = OffsetMoves(self.store, self.topics, self.groups, self.offsets, wake)
        self.lives = Lives(self.topics, self.groups, self.offsets)
        self.lives.wake, self.lives.delete_queues = wake, self.store.delete_topic
        self.lives.counts = self.counts
        self.told: Callable[[], Awaitable[None]] = nothing
        """Waits until name servers were told of the topics as they are now."""
        self.settings = LiveSettings(self.config)
        self.settings.changeable |= changeable(self)
