"""What operators change at one broker: the life of topics and groups, where groups go on, settings. It translates."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import grpc.aio
import msgspec
from dejamq_proto import admin_pb2 as pb
from dejamq_proto.admin_pb2_grpc import AdminServicer
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.common_pb2 import QueueKey

from dejamq_broker.offset_moves import Move, Target, To
from dejamq_broker.rpc_values import asker_of, topic_to_proto

if TYPE_CHECKING:
    from dejamq_broker.domain import Domain

Context = grpc.aio.ServicerContext[Any, Any]
TOPIC_FIELDS = ("read_queue_nums", "write_queue_nums", "perm", "order")


class AdminChanges(AdminServicer):
    """The part of the Admin service that changes more than one table, or what is there already."""

    def __init__(self, domain: "Domain") -> None:
        self._domain = domain

    def _own(self) -> "Domain":
        """What may be changed here. Raises SERVICE_NOT_AVAILABLE at a slave: what it copies is not its own."""
        if not self._domain.site.master:
            raise DejamqError("this broker is a slave; change it at its master", code=Code.SERVICE_NOT_AVAILABLE)
        return self._domain

    async def UpdateTopic(self, request: pb.UpdateTopicRequest, _: Context) -> pb.UpdateTopicResponse:
        """Refused with TOPIC_NOT_EXIST, or INVALID_PARAMETER for what cannot be."""
        changes = {name: getattr(request, name) for name in TOPIC_FIELDS if request.HasField(name)}  # type: ignore[arg-type]
        return pb.UpdateTopicResponse(topic=topic_to_proto(self._own().topics.change(request.topic, **changes)))

    async def DeleteTopic(self, request: pb.DeleteTopicRequest, _: Context) -> pb.DeleteTopicResponse:
        """Refused with INVALID_PARAMETER for a topic of the broker's own; one that is not there is no error.

        Answered when no registration with the topic is under way any more: it could come to a name server after the
        caller has had the topic forgotten there.
        """
        existed = self._own().lives.delete_topic(request.topic)
        if existed:
            await self._domain.told()
        return pb.DeleteTopicResponse(existed=existed)

    async def DeleteGroup(self, request: pb.DeleteGroupRequest, _: Context) -> pb.DeleteGroupResponse:
        """Refused with INVALID_PARAMETER for a built-in group; one that is not there is no error."""
        existed = self._own().lives.delete_group(request.group, remove_offsets=request.remove_offsets)
        return pb.DeleteGroupResponse(existed=existed)

    async def Forbid(self, request: pb.ForbidRequest, _: Context) -> pb.ForbidResponse:
        """Refused with SUBSCRIPTION_GROUP_NOT_EXIST."""
        self._own().groups.forbid(request.group, request.topic, request.forbidden)
        return pb.ForbidResponse()

    async def ResetOffsets(self, request: pb.ResetOffsetsRequest, _: Context) -> pb.OffsetMoves:
        """Refused for an unknown topic or group, a queue that cannot be read, a negative offset."""
        to = _target(request.target)
        value = {To.TIME: request.timestamp_ms, To.OFFSET: request.offset}.get(to, 0)
        moves = self._own().moves.reset(
            request.group, request.topic, Target(to, value, request.force), queue_ids=list(request.queue_ids),
            asker=None if request.dry_run else asker_of(request.caller),
        )  # fmt: skip
        return _to_proto(moves)

    async def CloneOffsets(self, request: pb.CloneOffsetsRequest, _: Context) -> pb.OffsetMoves:
        """Refused for an unknown topic or target group."""
        asker = None if request.dry_run else asker_of(request.caller)
        return _to_proto(self._own().moves.clone(request.source, request.target, request.topic, asker))

    async def UpdateSettings(self, request: pb.UpdateSettingsRequest, _: Context) -> pb.SettingsResponse:
        """Refused with INVALID_PARAMETER, all of them, when one cannot be changed."""
        return pb.SettingsResponse(values=self._domain.settings.update(dict(request.values)))

    async def Settings(self, request: pb.SettingsRequest, _: Context) -> pb.SettingsResponse:
        """Those in force: what the broker was started with, and what was changed since."""
        return pb.SettingsResponse(values=self._domain.settings.values())

    async def ListClashes(self, request: pb.ListClashesRequest, _: Context) -> pb.ListClashesResponse:
        """Since the broker started, those that are over too."""
        clashes = [pb.Clash(**msgspec.structs.asdict(one)) for one in self._domain.clients.clashes()]
        return pb.ListClashesResponse(clashes=clashes)


def _to_proto(moves: Iterable[Move]) -> pb.OffsetMoves:
    return pb.OffsetMoves(moves=[
        pb.OffsetMove(
            queue=QueueKey(topic=one.at.topic, queue_id=one.at.queue_id), before=one.before, after=one.after,
            reason=one.reason,
        )
        for one in moves
    ])  # fmt: skip


def _target(number: int) -> To:
    """Raises INVALID_PARAMETER for a number of a newer client."""
    try:
        return To(number)
    except ValueError:
        raise DejamqError(f"this broker knows no reset of kind {number}", code=Code.INVALID_PARAMETER) from None
