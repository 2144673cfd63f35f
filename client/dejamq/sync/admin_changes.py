"""The blocking admin: topics, groups and their offsets."""

from collections.abc import Mapping, Sequence
from typing import Any

from dejamq_proto.codes import DejamqError
from dejamq_proto.names import PERM_READ, PERM_WRITE

from dejamq.admin.access import AccessRule, AccessUser
from dejamq.admin.admin import Admin as AsyncAdmin
from dejamq.admin.cluster import Clash
from dejamq.admin.groups import GroupSettings
from dejamq.admin.messages import TopicQueues
from dejamq.admin.offsets import OffsetMove, QueueProgress
from dejamq.sync.facade import Facade
from dejamq.values.message import MessageQueue


class AdminChanges(Facade[AsyncAdmin]):
    """The part of the blocking ``Admin`` that changes a cluster."""

    def topics(self) -> list[str]:
        """Topics with a live broker, sorted."""
        return self._await(self._inner.topics)

    def topic(self, topic: str) -> list[TopicQueues]:
        """As ``dejamq.Admin.topic``."""
        return self._await(self._inner.topic, topic)

    def create_topic(
        self, topic: str, *, queues: int = 8, perm: int = PERM_READ | PERM_WRITE, order: bool = False,
        brokers: list[str] | None = None,
    ) -> list[str]:  # fmt: skip
        """As ``dejamq.Admin.create_topic``."""
        return self._await(self._inner.create_topic, topic, queues=queues, perm=perm, order=order, brokers=brokers)

    def update_topic(
        self, topic: str, *, read_queues: int | None = None, write_queues: int | None = None, perm: int | None = None,
        order: bool | None = None, brokers: list[str] | None = None,
    ) -> list[str]:  # fmt: skip
        """As ``dejamq.Admin.update_topic``."""
        return self._await(
            self._inner.update_topic, topic, read_queues=read_queues, write_queues=write_queues, perm=perm,
            order=order, brokers=brokers,
        )  # fmt: skip

    def delete_topic(self, topic: str, *, brokers: list[str] | None = None) -> list[str]:
        """As ``dejamq.Admin.delete_topic``."""
        return self._await(self._inner.delete_topic, topic, brokers=brokers)

    def routes(self, topic: str) -> dict[str, list[TopicQueues] | DejamqError]:
        """As ``dejamq.Admin.routes``."""
        return self._await(self._inner.routes, topic)

    def groups(self) -> list[GroupSettings]:
        """As ``dejamq.Admin.groups``."""
        return self._await(self._inner.groups)

    def create_group(
        self, group: str, *, consume_enable: bool = True, ordered: bool = False, retry_queues: int = 1,
        retry_max_times: int = 16,
    ) -> list[str]:  # fmt: skip
        """As ``dejamq.Admin.create_group``."""
        return self._await(
            self._inner.create_group, group, consume_enable=consume_enable, ordered=ordered,
            retry_queues=retry_queues, retry_max_times=retry_max_times,
        )  # fmt: skip

    def update_group(self, group: str, *, brokers: list[str] | None = None, **fields: Any) -> list[str]:
        """As ``dejamq.Admin.update_group``."""
        return self._await(self._inner.update_group, group, brokers=brokers, **fields)

    def delete_group(self, group: str, *, remove_offsets: bool = True) -> list[str]:
        """As ``dejamq.Admin.delete_group``."""
        return self._await(self._inner.delete_group, group, remove_offsets=remove_offsets)

    def forbid(self, group: str, topic: str, *, forbidden: bool = True) -> list[str]:
        """As ``dejamq.Admin.forbid``."""
        return self._await(self._inner.forbid, group, topic, forbidden=forbidden)

    def members(self, group: str) -> dict[str, list[str]]:
        """As ``dejamq.Admin.members``."""
        return self._await(self._inner.members, group)

    def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """As ``dejamq.Admin.progress``."""
        return self._await(self._inner.progress, group, topic)

    def plan_reset(
        self, group: str, topic: str, *, to_time_ms: int | None = None, to_offset: int | None = None,
        to_begin: bool = False, to_end: bool = False, force: bool = False, queues: Sequence[MessageQueue] | None = None,
    ) -> list[OffsetMove]:  # fmt: skip
        """As ``dejamq.Admin.plan_reset``."""
        return self._await(
            self._inner.plan_reset, group, topic, to_time_ms=to_time_ms, to_offset=to_offset, to_begin=to_begin,
            to_end=to_end, force=force, queues=queues,
        )  # fmt: skip

    def reset_offsets(
        self, group: str, topic: str, *, to_time_ms: int | None = None, to_offset: int | None = None,
        to_begin: bool = False, to_end: bool = False, force: bool = False, queues: Sequence[MessageQueue] | None = None,
    ) -> list[OffsetMove]:  # fmt: skip
        """As ``dejamq.Admin.reset_offsets``."""
        return self._await(
            self._inner.reset_offsets, group, topic, to_time_ms=to_time_ms, to_offset=to_offset, to_begin=to_begin,
            to_end=to_end, force=force, queues=queues,
        )  # fmt: skip

    def skip_offsets(self, group: str, topic: str) -> list[OffsetMove]:
        """As ``dejamq.Admin.skip_offsets``."""
        return self._await(self._inner.skip_offsets, group, topic)

    def plan_clone(self, source: str, target: str, topic: str) -> list[OffsetMove]:
        """As ``dejamq.Admin.plan_clone``."""
        return self._await(self._inner.plan_clone, source, target, topic)

    def clone_offsets(self, source: str, target: str, topic: str) -> list[OffsetMove]:
        """As ``dejamq.Admin.clone_offsets``."""
        return self._await(self._inner.clone_offsets, source, target, topic)

    def update_settings(self, broker_name: str, values: Mapping[str, str]) -> dict[str, str]:
        """As ``dejamq.Admin.update_settings``."""
        return self._await(self._inner.update_settings, broker_name, values)

    def clashes(self) -> list[Clash]:
        """As ``dejamq.Admin.clashes``."""
        return self._await(self._inner.clashes)

    def create_user(self, name: str, secret: str, *, type: str = "Normal", status: str = "enable") -> None:
        """As ``dejamq.Admin.create_user``."""
        self._await(self._inner.create_user, name, secret, type=type, status=status)

    def update_user(self, name: str, *, secret: str = "", type: str = "", status: str = "") -> None:
        """As ``dejamq.Admin.update_user``."""
        self._await(self._inner.update_user, name, secret=secret, type=type, status=status)

    def delete_user(self, name: str) -> None:
        """As ``dejamq.Admin.delete_user``."""
        self._await(self._inner.delete_user, name)

    def users(self, filter: str = "") -> dict[str, list[AccessUser]]:
        """As ``dejamq.Admin.users``."""
        return self._await(self._inner.users, filter)

    def put_rules(self, rules: Sequence[AccessRule]) -> None:
        """As ``dejamq.Admin.put_rules``."""
        self._await(self._inner.put_rules, rules)

    def delete_rules(self, user: str, resource: str = "") -> None:
        """As ``dejamq.Admin.delete_rules``."""
        self._await(self._inner.delete_rules, user, resource)

    def rules(self, user: str = "", resource: str = "") -> dict[str, list[AccessRule]]:
        """As ``dejamq.Admin.rules``."""
        return self._await(self._inner.rules, user, resource)
