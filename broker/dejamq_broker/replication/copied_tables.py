"""The tables that a slave copies from its master: topics, groups, offsets, progress of delayed messages, modes of pops.

Source: RocketMQ ``SlaveSynchronize``, and the answers of ``AdminBrokerProcessor`` to it.
"""

from typing import Any, Protocol, TypeVar

import msgspec
from dejamq_proto.loose_json import BAD_JSON

from dejamq_broker.base import json_file
from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.tables.offsets import OffsetTable
from dejamq_broker.tables.request_modes import Modes, RequestModes
from dejamq_broker.tables.subscription_groups import SubscriptionGroup, SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicConfig, TopicTable
from dejamq_broker.timer.progress import TimerProgress

Kind = TypeVar("Kind")
TABLES = ("topics", "groups", "offsets", "delay_progress", "timer_progress", "request_modes")
"""In this order: offsets of a topic that came with the same copy find it there."""
OF_THE_LOG = ("offsets", "delay_progress", "timer_progress")
"""They tell what was done with records: a slave that had them and not the records would pass over others."""


class Held(Protocol):
    """Any of the tables."""

    def content(self) -> dict[str, Any]: ...


class OffsetsOf(msgspec.Struct, frozen=True, rename="camel"):
    """The table of offsets, or of the progress of delay levels, as its file has it."""

    offset_table: dict[str, dict[int, int]] = {}


class ProgressOf(msgspec.Struct, frozen=True, rename="camel"):
    """As ``OffsetsOf``, by level."""

    offset_table: dict[int, int] = {}


class TimedOf(msgspec.Struct, frozen=True):
    """How far timed messages are handled; a master that knows none of them tells another table."""

    read_ms: int = 0
    queue_offset: int = 0
    window_ms: int = 0


class ModesOf(msgspec.Struct, frozen=True, rename="camel"):
    """How groups ask for messages; a master that knows nothing of it tells another table."""

    message_request_mode_map: Modes = {}


class CopiedTables:
    """Both ends of the copy: a master tells its tables, a slave takes them. Owned by the event loop."""

    def __init__(
        self, topics: TopicTable, groups: SubscriptionGroupTable, offsets: OffsetTable, progress: DelayProgress,
        timed: TimerProgress, modes: RequestModes,
    ) -> None:  # fmt: skip
        self._timed, self._modes = timed, modes
        self._topics, self._groups, self._offsets, self._progress = topics, groups, offsets, progress
        self._had: set[str] = set()

    def version(self, table: str) -> str:
        """The version on this side; '' for tables without a version."""
        if table not in ("topics", "groups"):
            return ""
        version = self._topics.version if table == "topics" else self._groups.version
        return msgspec.json.encode(version).decode()

    def tell(self, table: str, known: str) -> bytes:
        """The table as JSON, in the form of its file; empty for a slave that knows this version."""
        if known and known == self.version(table):
            return b""
        return msgspec.json.encode(self._held(table).content())

    def take(self, table: str, content: bytes) -> None:
        """Become as the master is. Raises UnreadableFile for content that is no such table, and for a file that fails.

        Offsets that the master knows replace the offsets here, even where they are lower. Commits made here while the
        master was away are forgotten then, and their messages may be delivered again (cause O6). Offsets that the
        master never had stay, as in RocketMQ. Offsets that it had at the last copy and has no more were deleted there,
        and are deleted here.
        """
        if table == "topics":
            self._take_topics(content)
        elif table == "groups":
            self._take_groups(content)
        elif table == "offsets":
            self._take_offsets(content)
        elif table == "timer_progress":
            found = _read(content, TimedOf)
            self._timed.take_copy(found.read_ms, found.queue_offset, found.window_ms)
        elif table == "request_modes":
            self._modes.take_copy(_read(content, ModesOf).message_request_mode_map)
        else:
            self._progress.take_copy(_read(content, ProgressOf).offset_table)

    def _held(self, table: str) -> Held:
        held: dict[str, Held] = {
            "topics": self._topics, "groups": self._groups, "offsets": self._offsets, "timer_progress": self._timed,
            "request_modes": self._modes,
        }  # fmt: skip
        return held.get(table, self._progress)

    def _take_topics(self, content: bytes) -> None:
        found, version, _ = json_file.rows(_read(content, dict), "topicConfigTable", TopicConfig, "the master's table")
        self._topics.replace(found, version)

    def _take_groups(self, content: bytes) -> None:
        read = _read(content, dict)
        found, version, whole = json_file.rows(read, "subscriptionGroupTable", SubscriptionGroup, "the master's table")
        self._groups.replace(found, whole.get("forbiddenTable", {}), version)

    def _take_offsets(self, content: bytes) -> None:
        table = _read(content, OffsetsOf).offset_table
        for key in self._had - table.keys():
            topic, _, group = key.partition("@")
            self._offsets.forget(topic=topic, group=group)
        self._offsets.take_copy(table)
        self._had = set(table)


def _read(content: bytes, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(content, type=kind, strict=False)
    except BAD_JSON as error:
        raise json_file.UnreadableFile(f"the master's table cannot be read: {error}") from None
