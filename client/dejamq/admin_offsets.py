"""How far groups are, and where operators send them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from dejamq_proto import admin_pb2 as pb
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import check_group

from dejamq.admin_groups import GroupLife
from dejamq.message import MessageQueue
from dejamq.rpc_admin import AdminLink


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


Ask = Callable[[AdminLink, list[int]], Awaitable[list[pb.OffsetMove]]]


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
        """What ``reset_offsets`` would do now; it does nothing. Raises as that."""
        target = _target(to_time_ms, to_offset, to_begin, to_end)
        return await self._moves(group, topic, queues, _reset(group, topic, target, force=force, dry_run=True))

    async def reset_offsets(
        self, group: str, topic: str, *, to_time_ms: int | None = None, to_offset: int | None = None,
        to_begin: bool = False, to_end: bool = False, force: bool = False, queues: Sequence[MessageQueue] | None = None,
    ) -> list[OffsetMove]:  # fmt: skip
        """Set where the group goes on in these queues of the topic, all by default; what became of each.

        To the first message stored at ``to_time_ms`` or later: without ``force`` only backwards, so that nothing is
        passed over. Or to an offset, kept within what the queue holds; or to its oldest message, or its end. Members
        that are online follow with their next pull: what their handlers are at is discarded, and comes again where it
        lies behind. Every queue is planned before the first is moved.

        Raises RouteNotFound for an unknown topic, DejamqError for a group that no broker knows and a target that is
        none or not one. Source: RocketMQ ``resetOffsetByTime``, ``resetOffsetInner``.
        """
        target = _target(to_time_ms, to_offset, to_begin, to_end)
        await self._moves(group, topic, queues, _reset(group, topic, target, force=force, dry_run=True))
        return await self._moves(group, topic, queues, _reset(group, topic, target, force=force, dry_run=False))

    async def skip_offsets(self, group: str, topic: str) -> list[OffsetMove]:
        """Go on at the end of every queue: what was not consumed is passed over (RocketMQ: skipAccumulatedMessage)."""
        return await self.reset_offsets(group, topic, to_end=True)

    async def plan_clone(self, source: str, target: str, topic: str) -> list[OffsetMove]:
        """What ``clone_offsets`` would do now; it does nothing."""
        return await self._moves(target, topic, None, _clone(source, target, topic, dry_run=True))

    async def clone_offsets(self, source: str, target: str, topic: str) -> list[OffsetMove]:
        """Let ``target`` go on where ``source`` is in every queue of the topic. Raises as ``reset_offsets``.

        The brokers have to know the group already: ``create_group`` makes it.
        """
        return await self._moves(target, topic, None, _clone(source, target, topic, dry_run=False))

    async def _moves(self, group: str, topic: str, queues: Sequence[MessageQueue] | None, ask: Ask) -> list[OffsetMove]:
        """Ask every master that has the topic; those that do not know the group have nothing of it to move."""
        check_group(group)
        having = await self._having(topic)
        wanted = _by_broker(topic, having, queues)
        masters = await self._open().masters(sorted(wanted))
        links = {name: self._open().admin(address) for name, address in masters.items()}
        answers = await asyncio.gather(*(ask(links[name], wanted[name]) for name in links), return_exceptions=True)
        found, unknown = [], None
        for name, answer in zip(links, answers, strict=True):
            if isinstance(answer, DejamqError) and answer.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST:
                unknown = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += [_move(name, one) for one in answer]
        if unknown is not None and not found:
            raise unknown
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


def _reset(group: str, topic: str, target: dict[str, Any], *, force: bool, dry_run: bool) -> Ask:
    def ask(link: AdminLink, queue_ids: list[int]) -> Awaitable[list[pb.OffsetMove]]:
        return link.reset_offsets(pb.ResetOffsetsRequest(
            group=group, topic=topic, force=force, dry_run=dry_run, queue_ids=queue_ids, **target
        ))  # fmt: skip

    return ask


def _clone(source: str, target: str, topic: str, *, dry_run: bool) -> Ask:
    check_group(source)

    def ask(link: AdminLink, queue_ids: list[int]) -> Awaitable[list[pb.OffsetMove]]:
        return link.clone_offsets(pb.CloneOffsetsRequest(source=source, target=target, topic=topic, dry_run=dry_run))

    return ask


def _by_broker(topic: str, having: dict[str, Any], queues: Sequence[MessageQueue] | None) -> dict[str, list[int]]:
    """The queue ids by broker, none for all of a broker's. Raises INVALID_PARAMETER for a queue that is none."""
    if queues is None:
        return {name: [] for name in having}
    wanted: dict[str, list[int]] = {}
    for queue in queues:
        if queue.topic != topic or queue.broker_name not in having:
            raise DejamqError(f"{queue} is no queue of topic {topic!r}", code=Code.INVALID_PARAMETER)
        wanted.setdefault(queue.broker_name, []).append(queue.queue_id)
    return wanted


def _move(broker_name: str, told: pb.OffsetMove) -> OffsetMove:
    queue = MessageQueue(told.queue.topic, broker_name, told.queue.queue_id)
    return OffsetMove(queue, told.before if told.HasField("before") else None, told.after, told.reason)
