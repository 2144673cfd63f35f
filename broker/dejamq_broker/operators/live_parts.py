"""The settings that may change while a broker runs, and the parts that hear of a new value.

Left out are settings that decide about files, ports and threads at start, and settings that clients were told
already.
"""

from collections.abc import Callable
from typing import Any

from dejamq_proto.config.live_settings import LiveSettings

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.deferred.retry import Retries
from dejamq_broker.members.clients import Clients
from dejamq_broker.paths.rules import PullRules
from dejamq_broker.paths.send import SendPath
from dejamq_broker.tables.offsets import OffsetTable
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable


def changeable(
    settings: LiveSettings[BrokerConfig], topics: TopicTable, groups: SubscriptionGroupTable, offsets: OffsetTable,
    clients: Clients, rules: PullRules, sender: SendPath, retries: Retries,
) -> dict[str, Callable[[Any], None]]:  # fmt: skip
    """By our name. The broker adds the periods of its services, and the addresses that clients are told."""

    def permission(value: int) -> None:
        sender.writable = retries.writable = settings.config.writable
        topics.mask_permissions(value)
        reconfigure(value)

    def reconfigure(value: object) -> None:
        """For parts that look at their settings each time."""
        clients.reconfigure(settings.config)
        rules.reconfigure(settings.config)

    def auto_create(value: bool) -> None:
        topics.allow_auto_create(settings.config.default_topic_queue_nums if value else 0)

    def auto_create_group(value: bool) -> None:
        groups.auto_create = value

    def lower(value: bool) -> None:
        offsets.refuse_lower = value

    def resets(value: bool) -> None:
        offsets.serve_resets = value

    looked_at = (
        "notify_consumer_ids_changed_enable", "channel_expired_timeout_ms", "enable_property_filter",
        "filter_support_retry", "lite_pull_message_enable", "slave_read_enable", "offset_check_in_slave",
    )  # fmt: skip
    parts: dict[str, Callable[[Any], None]] = {
        "broker_permission": permission,
        "auto_create_topic_enable": auto_create,
        "auto_create_subscription_group": auto_create_group,
        "refuse_lower_offsets": lower,
        "use_server_side_reset_offset": resets,
    }
    return parts | dict.fromkeys(looked_at, reconfigure)
