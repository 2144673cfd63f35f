"""Consumer groups that the broker knows: ``config/subscriptionGroup.json`` in RocketMQ's format."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, InvalidName

from dejamq_broker.base import json_file
from dejamq_broker.base.data_version import Int64, TableVersion
from dejamq_broker.base.json_file import Int32
from dejamq_broker.base.table_file import TableFile
from dejamq_broker.store.files.paths import is_folder_name

FORBIDDEN_TO_READ = 1 << 2
AT_LEAST_0 = ("retry_queue_nums", "retry_max_times", "consume_timeout_minute", "broker_id")
BUILT_IN = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
)  # fmt: skip


class SubscriptionGroup(msgspec.Struct, frozen=True, rename="camel"):
    """One group's settings as the file keeps them (RocketMQ: SubscriptionGroupConfig).

    ``retry_queue_nums`` 0 drops what is given back; ``retry_max_times`` tries come before dead letters. Fields
    that this broker does not use are read and written back unchanged, so that a RocketMQ finds them again.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[Any] | None = None
    attributes: dict[str, Any] = {}

    def check(self, name: str) -> None:
        """Raise ValueError for a row of a file that no broker has written: its name becomes part of a folder's."""
        if name != self.group_name:
            raise ValueError(f"under {name[:100]!a} is group {self.group_name[:100]!a}")
        if not is_folder_name(name):
            raise ValueError(f"a group cannot have the name {name[:100]!a}")


class SubscriptionGroupTable:
    """All groups by name. The file follows each change: see ``kept``.

    Owned by the event loop. RocketMQ: SubscriptionGroupManager.
    """

    def __init__(self, path: Path, clock_ms: Callable[[], int], *, auto_create: bool) -> None:
        self._path, self._clock_ms, self.auto_create = path, clock_ms, auto_create
        self._file = TableFile(path)
        self.kept = self._file.kept
        """Awaited before an operator is told of a change."""
        self._groups: dict[str, SubscriptionGroup] = {}
        self._forbidden: dict[str, Any] = {}
        self.version = TableVersion(timestamp=clock_ms())

    def load(self) -> None:
        """Read the file. Raises UnreadableFile."""
        found = json_file.load_table(self._path, "subscriptionGroupTable", SubscriptionGroup)
        if found is not None:
            self._groups, self.version, content = found
            self._forbidden = content.get("forbiddenTable", {})

    def get(self, group: str) -> SubscriptionGroup | None:
        """The group, without making it; built-in groups need no entry in the file."""
        found = self._groups.get(group)
        return SubscriptionGroup(group) if found is None and group in BUILT_IN else found

    def require(self, group: str) -> SubscriptionGroup:
        """The group, made if the broker makes groups on first use. Raises SUBSCRIPTION_GROUP_NOT_EXIST, InvalidName."""
        found = self.get(group)
        if found is not None:
            return found
        self._check_new(group)
        return self._put(SubscriptionGroup(group))

    def require_each(
        self, groups: Iterable[str], most_new: int
    ) -> tuple[dict[str, SubscriptionGroup], list[DejamqError]]:
        """As ``require`` for each, with one write for all. The groups that are there now, and the others' errors.

        At most ``most_new`` are made; those over it have to be asked for again.
        """
        wanted, new, errors = list(groups), dict[str, SubscriptionGroup](), list[DejamqError]()
        for group in wanted:
            if self.get(group) is not None or group in new:
                continue
            try:
                self._check_new(group)
                if len(new) >= most_new:
                    text = f"group {group!r} is not made yet, as {most_new} groups are made at a time; say it again"
                    raise DejamqError(text, code=Code.SYSTEM_BUSY)
            except DejamqError as error:
                errors.append(error)
            else:
                new[group] = SubscriptionGroup(group)
        if new:
            try:
                self._write(self._groups | new, self._forbidden)
            except DejamqError as error:
                errors.append(error)
        return {group: found for group in wanted if (found := self.get(group)) is not None}, errors

    def known(self, group: str) -> SubscriptionGroup:
        """As ``require`` but never makes one. Raises SUBSCRIPTION_GROUP_NOT_EXIST."""
        found = self.get(group)
        if found is None:
            text = f"group {group!r} is not known to this broker; its consumers have not sent a heartbeat yet"
            raise DejamqError(text, code=Code.SUBSCRIPTION_GROUP_NOT_EXIST)
        return found

    def __iter__(self) -> Iterator[SubscriptionGroup]:
        yield from self._groups.values()

    def update(self, group: str, **changes: Any) -> None:
        """Make the group or change these settings of it. Raises InvalidName, INVALID_PARAMETER for a negative number.

        An unchanged group is not written again.
        """
        names.check_group(group)
        wrong = [name for name in AT_LEAST_0 if changes.get(name, 0) < 0]
        if wrong:
            raise DejamqError(f"group {group!r}: {wrong[0]} is 0 or more", code=Code.INVALID_PARAMETER)
        changed = msgspec.structs.replace(self.get(group) or SubscriptionGroup(group), **changes)
        if changed != self._groups.get(group):
            self._put(changed)

    def delete(self, group: str) -> bool:
        """Forget the group and its prohibitions; False when there was no such group.

        Raises InvalidName for a built-in one. Members that are still there make it again with their next heartbeat,
        where groups are made on first use.
        """
        if group in BUILT_IN:
            raise InvalidName(f"group {group!r} belongs to the broker itself")
        if group not in self._groups and group not in self._forbidden:
            return False
        existed = group in self._groups
        groups = {name: value for name, value in self._groups.items() if name != group}
        self._write(groups, {name: value for name, value in self._forbidden.items() if name != group})
        return existed

    def forbid(self, group: str, topic: str, forbidden: bool) -> None:
        """Take a topic from the group's readers, or give it back. Raises SUBSCRIPTION_GROUP_NOT_EXIST.

        Other bits of the table are kept as they are. Source: RocketMQ ``SubscriptionGroupManager.setForbidden``.
        """
        self.known(group)
        topics = self._forbidden.get(group)
        topics = dict(topics) if isinstance(topics, dict) else {}
        before = topics.get(topic, 0) if isinstance(topics.get(topic, 0), int) else 0
        bits = before | FORBIDDEN_TO_READ if forbidden else before & ~FORBIDDEN_TO_READ
        if bits == before:
            return
        topics[topic] = bits
        topics = {name: value for name, value in topics.items() if value}
        others = {name: value for name, value in self._forbidden.items() if name != group}
        self._write(self._groups, others | ({group: topics} if topics else {}))

    def forbidden_topics(self, group: str) -> list[str]:
        """The topics that the group may not read."""
        topics = self._forbidden.get(group)
        return sorted(one for one in topics if self.reading_forbidden(group, one)) if isinstance(topics, dict) else []

    def reading_forbidden(self, group: str, topic: str) -> bool:
        """Whether an administrator took the topic from the group (RocketMQ: ``forbiddenTable``, its third bit)."""
        topics = self._forbidden.get(group)
        bits = topics.get(topic, 0) if isinstance(topics, dict) else 0
        return isinstance(bits, int) and bool(bits & FORBIDDEN_TO_READ)

    def _check_new(self, group: str) -> None:
        names.check_group(group)
        if not self.auto_create:
            text = f"group {group!r} does not exist on this broker and it makes none by itself; create it first"
            raise DejamqError(text, code=Code.SUBSCRIPTION_GROUP_NOT_EXIST)

    def _put(self, group: SubscriptionGroup) -> SubscriptionGroup:
        self._write(self._groups | {group.group_name: group}, self._forbidden)
        return group

    def content(self) -> dict[str, Any]:
        """As the file has it."""
        return _content(self._groups, self._forbidden, self.version)

    def replace(self, groups: dict[str, SubscriptionGroup], forbidden: dict[str, Any], version: TableVersion) -> None:
        """Become a copy of another table, the version included: a slave's, of its master's."""
        self._file.write(lambda: _content(groups, forbidden, version))
        self._groups, self._forbidden, self.version = groups, forbidden, version

    def _write(self, groups: dict[str, SubscriptionGroup], forbidden: dict[str, Any]) -> None:
        self.replace(groups, forbidden, self.version.next(self._clock_ms()))


def _content(groups: dict[str, SubscriptionGroup], forbidden: dict[str, Any], version: TableVersion) -> dict[str, Any]:
    return {
        "dataVersion": msgspec.to_builtins(version),
        "forbiddenTable": forbidden,
        "subscriptionGroupTable": {name: _to_json(value) for name, value in groups.items()},
    }


def _to_json(group: SubscriptionGroup) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(group)
    if fields["subscriptionDataSet"] is None:  # RocketMQ leaves null fields out
        del fields["subscriptionDataSet"]
    return fields
