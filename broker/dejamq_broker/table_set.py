"""Tables that a broker keeps in files of its own beside the store: topics, groups, offsets, progress of delayed
delivery.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from dejamq_proto.journal.writer import Journal

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.periodic import Periodic
from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.replication.copied_tables import CopiedTables
from dejamq_broker.tables.offsets import Asker, OffsetTable, Position
from dejamq_broker.tables.request_modes import RequestModes
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.timer.progress import TimerProgress


class Tables:
    """Making it reads RocketMQ's files in ``config/``; nothing is written before all of them were read."""

    def __init__(
        self, config: BrokerConfig, journal: Journal, clock_ms: Callable[[], int], *,
        on_topics: Callable[[], None], fenced: Callable[[Position, Asker], str],
        queue_end: Callable[[str, int], int], log_on_disk: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        """``on_topics`` is called at each change of the topics; see ``OffsetTable`` for the others."""
        folder = Path(config.store_directory).expanduser() / "config"
        self.topics = TopicTable(folder / "topics.json", clock_ms, on_topics)
        self.groups = SubscriptionGroupTable(
            folder / "subscriptionGroup.json", clock_ms, auto_create=config.auto_create_subscription_group
        )
        self.offset_flushes = Periodic(
            "flush offsets", config.flush_consumer_offset_interval_ms, lambda: self.offsets.flush()
        )
        """Writes the offsets; the server starts it."""
        self.offsets = OffsetTable(
            folder / "consumerOffset.json", config.broker_name, journal, clock_ms, fenced=fenced,
            queue_end=queue_end, log_on_disk=log_on_disk, flush_soon=self.offset_flushes.poke,
            serve_resets=config.use_server_side_reset_offset, refuse_lower=config.refuse_lower_offsets,
        )  # fmt: skip
        self.progress = DelayProgress(folder / "delayOffset.json", config.broker_name, journal, log_on_disk)
        self.timer_progress = TimerProgress(
            folder / "timercheck", config.broker_name, journal, config.timer_precision_ms, log_on_disk
        )
        self.request_modes = RequestModes(folder / "messageRequestMode.json")
        for table in (
            self.topics, self.groups, self.progress, self.timer_progress, self.offsets, self.request_modes
        ):  # fmt: skip
            table.load()
        self.copied = CopiedTables(
            self.topics, self.groups, self.offsets, self.progress, self.timer_progress, self.request_modes
        )
        """The same, as slaves get and take them."""
        auto_create_queues = config.default_topic_queue_nums if config.auto_create_topic_enable else 0
        self.topics.ensure_system(auto_create_queues, config.cluster_name, config.broker_name)
        self.topics.mask_permissions(config.broker_permission)

    async def kept(self) -> None:
        """Until topics, groups and request modes are on disk as they are now. Raises SERVICE_NOT_AVAILABLE."""
        for table in (self.topics, self.groups, self.request_modes):
            await table.kept()
