"""Which settings may change while a broker runs, and who hears of a new value.

Left out is what decides about files, addresses and threads at start, and what clients were told already.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dejamq_broker.domain import Domain


def changeable(domain: "Domain") -> dict[str, Callable[[Any], None]]:
    """By our name. Periods of services are added by whoever runs these."""

    def permission(value: int) -> None:
        writable = domain.settings.config.writable
        domain.sender.writable = domain.retries.writable = writable
        domain.topics.mask_permissions(value)
        reconfigure(value)

    def reconfigure(value: object) -> None:
        """For parts that look at their settings each time."""
        domain.clients.reconfigure(domain.settings.config)
        domain.pull_rules.reconfigure(domain.settings.config)

    def auto_create(value: bool) -> None:
        domain.topics.allow_auto_create(domain.config.default_topic_queue_nums if value else 0)

    def groups(value: bool) -> None:
        domain.groups.auto_create = value

    def lower(value: bool) -> None:
        domain.offsets.refuse_lower = value

    def resets(value: bool) -> None:
        domain.offsets.serve_resets = value

    looked_at = (
        "notify_consumer_ids_changed_enable", "channel_expired_timeout_ms", "enable_property_filter",
        "filter_support_retry", "lite_pull_message_enable", "slave_read_enable", "offset_check_in_slave",
    )  # fmt: skip
    parts: dict[str, Callable[[Any], None]] = {
        "broker_permission": permission,
        "auto_create_topic_enable": auto_create,
        "auto_create_subscription_group": groups,
        "refuse_lower_offsets": lower,
        "use_server_side_reset_offset": resets,
    }
    return parts | dict.fromkeys(looked_at, reconfigure)
