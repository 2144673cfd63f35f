"""How far groups are, and where operators send them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from dejamq_proto import admin_pb2 as pb
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import check_group

from dejamq.admin.calls import AdminLink
from dejamq.admin.groups import GroupLife
from dejamq.values.message import MessageQueue


class QueueProgress(msgspec.Struct, frozen=True):
    """A group's place in one queue. ``committed`` is the next offset to consume."""

    queue: MessageQueue
    committed: int
    min_offset: int
    max_offset: int
    pulled: int | None = None
    """Where the broker's last answer to a pull sent the group; None when it was not pulled since the broker started."""

    @property
    def lag(self) -> int:
        """Messages that are not committed, in flight or not."""
        return self.max_offset - max(self.committed, self.min_offset)


class OffsetMove(msgspec.Struct, frozen=True):
    """Where a group goes on in one queue. ``before`` None: it had no offset of it. ``reason`` in words."""

    queue: MessageQueue
    before: int | None
    after: int
    reason: str


Ask = Callable[[AdminLink, list[int], bool], Awaitable[list[pb.OffsetMove]]]
"""Of which link, of which of its queues (none: all), and whether it is a dry run."""


class Offsets(GroupLife):
    """The part of ``Admin`` that is about offsets."""

    async def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """Every queue (of the topic) of which the group has committed an offset, sorted."""
        check_group(group)
        offsets = await self._open().each(lambda link: link.offsets(group))
        found = [
            QueueProgress(
                MessageQueue(one.queue.topic, name, one.queue.queue_id), one.committed, one.min_offset, one.max_offset,
                one.pulled if one.HasField("pulled") else None,
            )
            for name, rows in offsets.items()
            for one in rows
            if topic in (None, one.queue.topic)
        ]  # fmt: skip
        return sorted(found, key=lambda one: one.queue)

    async def plan_reset(
        self, group: str, topic: str, *, to_time_ms: int | None = None, to_offset: int | None = None,
        to_begin: bool = False, to_end: bool = False, force: bool = False, queues: Sequence[MessageQueue] | None = None,
    ) -> list[OffsetMove]:  # fmt: skip
        """The plan of ``reset_offsets``; nothing is changed. Raises as ``reset_offsets`` does."""
        target = _target(to_time_ms, to_offset, to_begin, to_end)
        return await self._plan(group, topic, queues, _reset(group, topic, target, force=force))

    async def reset_offsets(
        self, group: str, topic: str, *, to_time_ms: int | None = None, to_offset: int | None = None,
        to_begin: bool = False, to_end: bool = False, force: bool = False, queues: Sequence[MessageQueue] | None = None,
    ) -> list[OffsetMove]:  # fmt: skip
        """Set where the group goes on in these queues of the topic, all by default; what became of each.

        The target is one of four: the first message stored at ``to_time_ms`` or later, an offset (kept within the
        queue's range), the oldest message, or the end. Without ``force`` a time only moves backwards, so that nothing
        is passed over. Members that are online follow with their next pull. Messages in their handlers are discarded,
        and come again if they lie behind the target. Every queue is planned before the first is moved.

        Nothing has moved when it raises: RouteNotFound for an unknown topic, and DejamqError for a group that a broker
        of these queues does not know, by name (SUBSCRIPTION_GROUP_NOT_EXIST), and for no target or several.
        Source: RocketMQ ``resetOffsetByTime``, ``resetOffsetInner``.
        """
        target = _target(to_time_ms, to_offset, to_begin, to_end)
        return await self._move(group, topic, queues, _reset(group, topic, target, force=force))

    async def skip_offsets(self, group: str, topic: str) -> list[OffsetMove]:
        """Go on at the end of every queue: what was not consumed is passed over (RocketMQ: skipAccumulatedMessage)."""
        return await self.reset_offsets(group, topic, to_end=True)

    async def plan_clone(self, source: str, target: str, topic: str) -> list[OffsetMove]:
        """The plan of ``clone_offsets``; nothing is changed."""
        return await self._plan(target, topic, None, _clone(source, target, topic))

    async def clone_offsets(self, source: str, target: str, topic: str) -> list[OffsetMove]:
        """Let ``target`` go on where ``source`` is in every queue of the topic. Raises as ``reset_offsets``.

        The brokers have to know ``target`` already: ``update_group`` makes it.
        """
        return await self._move(target, topic, None, _clone(source, target, topic))

    async def _plan(self, group: str, topic: str, queues: Sequence[MessageQueue] | None, ask: Ask) -> list[OffsetMove]:
        return (await self._planned(group, topic, queues, ask))[1]

    async def _move(self, group: str, topic: str, queues: Sequence[MessageQueue] | None, ask: Ask) -> list[OffsetMove]:
        """No broker moves anything before all of them can."""
        wanted, _ = await self._planned(group, topic, queues, ask)
        return await self._ask_masters(group, topic, wanted, ask, dry_run=False)

    async def _planned(
        self, group: str, topic: str, queues: Sequence[MessageQueue] | None, ask: Ask
    ) -> tuple[dict[str, list[int]], list[OffsetMove]]:
        """The queue ids by broker, and their moves."""
        check_group(group)
        wanted = _by_broker(topic, await self._having(topic), queues)
        return wanted, await self._ask_masters(group, topic, wanted, ask, dry_run=True)

    async def _ask_masters(
        self, group: str, topic: str, wanted: dict[str, list[int]], ask: Ask, *, dry_run: bool
    ) -> list[OffsetMove]:
        """What these masters answer. One that does not know the group refuses, as in RocketMQ. The group has
        offsets there only once it is made, and would begin where its first member asks, not where it is sent now.
        """
        masters = await self._open().masters(sorted(wanted))
        questions = [ask(self._open().admin(address), wanted[name], dry_run) for name, address in masters.items()]
        found, unknown = [], []
        for name, answer in zip(masters, await asyncio.gather(*questions, return_exceptions=True), strict=True):
            if isinstance(answer, DejamqError) and answer.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST:
                unknown.append(name)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += [_told(name, one) for one in answer]
        if unknown:
            raise _unknown(group, topic, unknown)
        return sorted(found, key=lambda one: one.queue)


def _target(to_time_ms: int | None, to_offset: int | None, to_begin: bool, to_end: bool) -> dict[str, Any]:
    """The fields of a request that say where to. Raises INVALID_PARAMETER unless there is one target."""
    chosen = [
        {"target": pb.RESET_TO_TIME, "timestamp_ms": to_time_ms} if to_time_ms is not None else None,
        {"target": pb.RESET_TO_OFFSET, "offset": to_offset} if to_offset is not None else None,
        {"target": pb.RESET_TO_BEGIN} if to_begin else None,
        {"target": pb.RESET_TO_END} if to_end else None,
    ]
    targets = [one for one in chosen if one is not None]
    if len(targets) != 1:
        raise DejamqError("give either to_time_ms, to_offset, to_begin or to_end", code=Code.INVALID_PARAMETER)
    return targets[0]


def _reset(group: str, topic: str, target: dict[str, Any], *, force: bool) -> Ask:
    def ask(link: AdminLink, queue_ids: list[int], dry_run: bool) -> Awaitable[list[pb.OffsetMove]]:
        return link.reset_offsets(pb.ResetOffsetsRequest(
            group=group, topic=topic, force=force, dry_run=dry_run, queue_ids=queue_ids, **target
        ))  # fmt: skip

    return ask


def _clone(source: str, target: str, topic: str) -> Ask:
    check_group(source)

    def ask(link: AdminLink, queue_ids: list[int], dry_run: bool) -> Awaitable[list[pb.OffsetMove]]:
        return link.clone_offsets(pb.CloneOffsetsRequest(source=source, target=target, topic=topic, dry_run=dry_run))

    return ask


def _by_broker(topic: str, having: dict[str, Any], queues: Sequence[MessageQueue] | None) -> dict[str, list[int]]:
    """The queue ids by broker, none for all of a broker's. Raises INVALID_PARAMETER for a queue that does not exist."""
    if queues is None:
        return {name: [] for name in having}
    wanted: dict[str, list[int]] = {}
    for queue in queues:
        if queue.topic != topic or queue.broker_name not in having:
            raise DejamqError(f"{queue} is no queue of topic {topic!r}", code=Code.INVALID_PARAMETER)
        wanted.setdefault(queue.broker_name, []).append(queue.queue_id)
    return wanted


def _unknown(group: str, topic: str, brokers: list[str]) -> DejamqError:
    text = (
        f"group {group!r} is not known to {', '.join(brokers)}, where topic {topic!r} is; its first consumer makes it "
        "there, or Admin.update_group"
    )
    return DejamqError(text, code=Code.SUBSCRIPTION_GROUP_NOT_EXIST)


def _told(broker_name: str, told: pb.OffsetMove) -> OffsetMove:
    queue = MessageQueue(told.queue.topic, broker_name, told.queue.queue_id)
    return OffsetMove(queue, told.before if told.HasField("before") else None, told.after, told.reason)
