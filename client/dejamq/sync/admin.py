"""The blocking admin."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

from dejamq_proto.codes import DejamqError
from dejamq_proto.names import PERM_READ, PERM_WRITE

from dejamq.admin import Admin as AsyncAdmin
from dejamq.admin import GroupSettings, QueueProgress
from dejamq.admin_cluster import ClientConnection
from dejamq.admin_dead_letters import Replay
from dejamq.admin_links import BrokerInfo
from dejamq.admin_messages import TopicQueues
from dejamq.admin_queues import QueueRange
from dejamq.message import MessageQueue
from dejamq.received import ReceivedMessage
from dejamq.sync.facade import Facade

Item = TypeVar("Item")


class Admin(Facade[AsyncAdmin]):
    """``dejamq.Admin`` for threads."""

    def __init__(self, namesrv: str | Sequence[str] | None = None, **settings: Any) -> None:
        """As ``dejamq.Admin``."""
        super().__init__(AsyncAdmin(namesrv, **settings))

    def brokers(self) -> list[BrokerInfo]:
        """As ``dejamq.Admin.brokers``."""
        return self._await(self._inner.brokers)

    def runtime_info(self, broker_name: str) -> dict[str, str]:
        """As ``dejamq.Admin.runtime_info``."""
        return self._await(self._inner.runtime_info, broker_name)

    def settings(self, broker_name: str) -> dict[str, str]:
        """As ``dejamq.Admin.settings``."""
        return self._await(self._inner.settings, broker_name)

    def connections(self, group: str | None = None, *, broker_name: str | None = None) -> list[ClientConnection]:
        """As ``dejamq.Admin.connections``."""
        return self._await(self._inner.connections, group, broker_name=broker_name)

    def leave_out_silent(self) -> dict[str, DejamqError]:
        """As ``dejamq.Admin.leave_out_silent``."""
        return self._await(self._inner.leave_out_silent)

    def stop_writes(self, broker_name: str) -> dict[str, int]:
        """As ``dejamq.Admin.stop_writes``."""
        return self._await(self._inner.stop_writes, broker_name)

    def start_writes(self, broker_name: str) -> dict[str, int]:
        """As ``dejamq.Admin.start_writes``."""
        return self._await(self._inner.start_writes, broker_name)

    def topics(self) -> list[str]:
        """Topics with a live broker, sorted."""
        return self._await(self._inner.topics)

    def topic(self, topic: str) -> list[TopicQueues]:
        """As ``dejamq.Admin.topic``."""
        return self._await(self._inner.topic, topic)

    def queue_ranges(self, topic: str) -> list[QueueRange]:
        """As ``dejamq.Admin.queue_ranges``."""
        return self._await(self._inner.queue_ranges, topic)

    def create_topic(
        self, topic: str, *, queues: int = 8, perm: int = PERM_READ | PERM_WRITE, brokers: list[str] | None = None
    ) -> list[str]:
        """As ``dejamq.Admin.create_topic``."""
        return self._await(self._inner.create_topic, topic, queues=queues, perm=perm, brokers=brokers)

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

    def members(self, group: str) -> dict[str, list[str]]:
        """As ``dejamq.Admin.members``."""
        return self._await(self._inner.members, group)

    def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """As ``dejamq.Admin.progress``."""
        return self._await(self._inner.progress, group, topic)

    def reset_offsets(
        self, group: str, topic: str, *, to_time_ms: int | None = None, to_offset: int | None = None
    ) -> list[QueueProgress]:
        """As ``dejamq.Admin.reset_offsets``."""
        return self._await(self._inner.reset_offsets, group, topic, to_time_ms=to_time_ms, to_offset=to_offset)

    def clone_offsets(self, source: str, target: str, topic: str) -> list[QueueProgress]:
        """As ``dejamq.Admin.clone_offsets``."""
        return self._await(self._inner.clone_offsets, source, target, topic)

    def message(self, offset_message_id: str) -> ReceivedMessage:
        """As ``dejamq.Admin.message``."""
        return self._await(self._inner.message, offset_message_id)

    def messages_by_key(
        self, topic: str, key: str, *, unique: bool = False, begin_ms: int = 0, end_ms: int = 0
    ) -> list[ReceivedMessage]:
        """As ``dejamq.Admin.messages_by_key``."""
        return self._await(self._inner.messages_by_key, topic, key, unique=unique, begin_ms=begin_ms, end_ms=end_ms)

    def read(self, queue: MessageQueue, begin: int = 0, end: int | None = None) -> Iterator[ReceivedMessage]:
        """As ``dejamq.Admin.read``."""
        return self._iterate(self._inner.read(queue, begin, end))

    def dead_letters(
        self, group: str, *, topic: str | None = None, begin_ms: int = 0, end_ms: int = 0
    ) -> Iterator[ReceivedMessage]:
        """As ``dejamq.Admin.dead_letters``."""
        return self._iterate(self._inner.dead_letters(group, topic=topic, begin_ms=begin_ms, end_ms=end_ms))

    def replay_dead_letter(
        self, group: str, letter: ReceivedMessage | str, *, to_topic: bool = False, again: bool = False,
        dry_run: bool = False,
    ) -> Replay:  # fmt: skip
        """As ``dejamq.Admin.replay_dead_letter``."""
        return self._await(
            self._inner.replay_dead_letter, group, letter, to_topic=to_topic, again=again, dry_run=dry_run
        )

    def replay_dead_letters(
        self, group: str, *, topic: str | None = None, begin_ms: int = 0, end_ms: int = 0, to_topic: bool = False,
        again: bool = False, dry_run: bool = False,
    ) -> Iterator[Replay]:  # fmt: skip
        """As ``dejamq.Admin.replay_dead_letters``."""
        return self._iterate(self._inner.replay_dead_letters(
            group, topic=topic, begin_ms=begin_ms, end_ms=end_ms, to_topic=to_topic, again=again, dry_run=dry_run,
        ))  # fmt: skip

    def _iterate(self, items: AsyncIterator[Item]) -> Iterator[Item]:
        async def following() -> Item | None:
            return await anext(items, None)

        while (item := self._await(following)) is not None:
            yield item
