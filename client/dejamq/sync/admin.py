"""The blocking admin."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

from dejamq_proto.codes import DejamqError

from dejamq.admin.admin import Admin as AsyncAdmin
from dejamq.admin.cluster import ClientConnection
from dejamq.admin.dead_letters import Replay
from dejamq.admin.links import BrokerInfo
from dejamq.admin.queues import QueueRange
from dejamq.admin.running import DirectResult, RunningInfo, StatsLine
from dejamq.receiving.received import ReceivedMessage
from dejamq.sync.admin_changes import AdminChanges
from dejamq.values.message import MessageQueue

Item = TypeVar("Item")


class Admin(AdminChanges):
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

    def queue_ranges(self, topic: str) -> list[QueueRange]:
        """As ``dejamq.Admin.queue_ranges``."""
        return self._await(self._inner.queue_ranges, topic)

    def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> RunningInfo:
        """As ``dejamq.Admin.running_info``."""
        return self._await(self._inner.running_info, group, client_id, stacks=stacks)

    def consume_directly(self, group: str, client_id: str, message_id: str) -> DirectResult:
        """As ``dejamq.Admin.consume_directly``."""
        return self._await(self._inner.consume_directly, group, client_id, message_id)

    def stats(self, item: str = "", key: str = "", *, broker_name: str | None = None) -> list[StatsLine]:
        """As ``dejamq.Admin.stats``."""
        return self._await(self._inner.stats, item, key, broker_name=broker_name)

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
