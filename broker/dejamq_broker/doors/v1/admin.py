"""The Admin service: topics, numbers and single messages for operators. It translates; the tables decide."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc.aio
import msgspec
from dejamq_proto import admin_pb2 as pb
from dejamq_proto import common_pb2
from dejamq_proto.admin_pb2_grpc import AdminServicer
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.common_pb2 import QueueKey
from dejamq_proto.config.live_settings import LiveSettings

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.deferred.retry_policy import policy_from_json
from dejamq_broker.doors.v1.values import asker_of, topic_from_proto, topic_to_proto
from dejamq_broker.members.clients import Clients
from dejamq_broker.operators.deletion import Lives
from dejamq_broker.operators.offset_moves import Move, MoveTarget, OffsetMoves, To
from dejamq_broker.operators.queries import Inspector
from dejamq_broker.store import KeyQuery
from dejamq_broker.store.index.query import ALL, NO_END
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable

Context = grpc.aio.ServicerContext[Any, Any]
# Changes by operators at one broker: the life of topics and groups, offsets of groups, settings. It translates.

TOPIC_FIELDS = ("read_queue_nums", "write_queue_nums", "perm", "order")


class AdminChangeMethods(AdminServicer):
    """The part of the Admin service that changes more than one table, or what is there already."""

    def __init__(
        self, site: Site, topics: TopicTable, groups: SubscriptionGroupTable, clients: Clients, lives: Lives,
        moves: OffsetMoves, settings: LiveSettings[BrokerConfig], told: Callable[[], Awaitable[None]],
        kept: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        """``told`` waits until changes are on disk and name servers know the topics as they are now, ``kept`` for the
        first of these.
        """
        self._site, self._topics, self._groups, self._clients = site, topics, groups, clients
        self._lives, self._moves, self._settings, self._told, self._kept = lives, moves, settings, told, kept

    def _check_own(self) -> None:
        """Raises SERVICE_NOT_AVAILABLE at a slave: it may not change its copies."""
        if not self._site.master:
            raise DejamqError("this broker is a slave; change it at its master", code=Code.SERVICE_NOT_AVAILABLE)

    async def UpdateTopic(self, request: pb.UpdateTopicRequest, _: Context) -> pb.UpdateTopicResponse:
        """Refused with TOPIC_NOT_EXIST, or INVALID_PARAMETER for values that cannot be."""
        changes = {name: getattr(request, name) for name in TOPIC_FIELDS if request.HasField(name)}  # type: ignore[arg-type]
        self._check_own()
        changed = self._topics.change(request.topic, **changes)
        await self._kept()
        return pb.UpdateTopicResponse(topic=topic_to_proto(changed))

    async def DeleteTopic(self, request: pb.DeleteTopicRequest, _: Context) -> pb.DeleteTopicResponse:
        """Refused with INVALID_PARAMETER for a topic of the broker's own; one that is not there is no error.

        The answer waits until no registration with the topic is under way. Such a registration could reach a name
        server after the caller has had the topic forgotten there.
        """
        self._check_own()
        existed = await self._lives.delete_topic(request.topic)
        if existed:
            await self._told()
        return pb.DeleteTopicResponse(existed=existed)

    async def DeleteGroup(self, request: pb.DeleteGroupRequest, _: Context) -> pb.DeleteGroupResponse:
        """Refused with INVALID_PARAMETER for a built-in group; one that is not there is no error."""
        self._check_own()
        existed = self._lives.delete_group(request.group, remove_offsets=request.remove_offsets)
        await self._kept()
        return pb.DeleteGroupResponse(existed=existed)

    async def Forbid(self, request: pb.ForbidRequest, _: Context) -> pb.ForbidResponse:
        """Refused with SUBSCRIPTION_GROUP_NOT_EXIST."""
        self._check_own()
        self._groups.forbid(request.group, request.topic, request.forbidden)
        await self._kept()
        return pb.ForbidResponse()

    async def ResetOffsets(self, request: pb.ResetOffsetsRequest, _: Context) -> pb.OffsetMoves:
        """Refused for an unknown topic or group, a queue that cannot be read, a negative offset."""
        to = _target(request.target)
        value = {To.TIME: request.timestamp_ms, To.OFFSET: request.offset}.get(to, 0)
        self._check_own()
        moves = self._moves.reset(
            request.group, request.topic, MoveTarget(to, value, request.force), queue_ids=list(request.queue_ids),
            asker=None if request.dry_run else asker_of(request.caller),
        )  # fmt: skip
        return _to_proto(moves)

    async def CloneOffsets(self, request: pb.CloneOffsetsRequest, _: Context) -> pb.OffsetMoves:
        """Refused for an unknown topic or target group."""
        asker = None if request.dry_run else asker_of(request.caller)
        self._check_own()
        return _to_proto(self._moves.clone(request.source, request.target, request.topic, asker))

    async def UpdateSettings(self, request: pb.UpdateSettingsRequest, _: Context) -> pb.SettingsResponse:
        """Refused with INVALID_PARAMETER, all of them, when one cannot be changed."""
        return pb.SettingsResponse(values=self._settings.update(dict(request.values)))

    async def Settings(self, request: pb.SettingsRequest, _: Context) -> pb.SettingsResponse:
        """Those in force: the settings that the broker was started with, and the changes since."""
        return pb.SettingsResponse(values=self._settings.values())

    async def ListClashes(self, request: pb.ListClashesRequest, _: Context) -> pb.ListClashesResponse:
        """Since the broker started, those that are over too."""
        clashes = [pb.Clash(**msgspec.structs.asdict(one)) for one in self._clients.clashes()]
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


GROUP_SETTINGS = (
    "consume_enable", "consume_broadcast_enable", "consume_message_orderly", "retry_queue_nums", "retry_max_times",
    "consume_from_min_enable", "broker_id", "which_broker_when_consume_slowly", "notify_consumer_ids_changed_enable",
    "group_sys_flag", "consume_timeout_minute",
)  # fmt: skip


class AdminService(AdminChangeMethods):
    """RPC of operators."""

    def __init__(
        self, site: Site, topics: TopicTable, groups: SubscriptionGroupTable, clients: Clients, lives: Lives,
        moves: OffsetMoves, settings: LiveSettings[BrokerConfig], *, inspector: Inspector,
        told: Callable[[], Awaitable[None]], kept: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        super().__init__(site, topics, groups, clients, lives, moves, settings, told, kept)
        self._inspector = inspector

    async def CreateTopic(self, request: pb.CreateTopicRequest, _: Context) -> pb.CreateTopicResponse:
        """Create or change; name servers that live know it when this answers. Refused with INVALID_PARAMETER."""
        self._check_own()
        self._topics.update(topic_from_proto(request.topic))
        await self._told()
        return pb.CreateTopicResponse()

    async def ListTopicConfigs(self, request: pb.ListTopicConfigsRequest, _: Context) -> pb.ListTopicConfigsResponse:
        """All topics of this broker, with system topics and retry topics."""
        return pb.ListTopicConfigsResponse(topics=map(topic_to_proto, self._topics))

    async def RuntimeInfo(self, request: pb.RuntimeInfoRequest, _: Context) -> pb.RuntimeInfoResponse:
        """The numbers of ``Inspector.runtime``. Names that RocketMQ does not have may be added at any time."""
        return pb.RuntimeInfoResponse(values=self._inspector.runtime())

    async def ListConnections(self, request: pb.ListConnectionsRequest, _: Context) -> pb.ListConnectionsResponse:
        """Empty for a group without clients here, known or not (RocketMQ refuses those)."""
        found = map(msgspec.structs.asdict, self._inspector.connections(request.group))
        return pb.ListConnectionsResponse(connections=[pb.Connection(**one) for one in found])

    async def ListOffsets(self, request: pb.ListOffsetsRequest, _: Context) -> pb.ListOffsetsResponse:
        """The progress of one group; empty for a group that has committed nothing here, known or not."""
        return pb.ListOffsetsResponse(offsets=[
            pb.GroupOffset(
                queue=common_pb2.QueueKey(topic=each.topic, queue_id=each.queue_id), committed=each.committed,
                min_offset=each.min_offset, max_offset=each.max_offset, pulled=each.pulled,
            )
            for each in self._inspector.progress(request.group)
        ])  # fmt: skip

    async def UpdateGroup(self, request: pb.UpdateGroupRequest, _: Context) -> pb.UpdateGroupResponse:
        """Create or change. Refused with INVALID_PARAMETER."""
        self._check_own()
        given = request.group
        changes = {name: getattr(given, name) for name in GROUP_SETTINGS if given.HasField(name)}  # type: ignore[arg-type]
        if given.HasField("group_retry_policy"):
            changes["group_retry_policy"] = policy_from_json(given.group_retry_policy)
        self._groups.update(given.group, **changes)
        await self._kept()
        return pb.UpdateGroupResponse()

    async def ListGroups(self, request: pb.ListGroupsRequest, _: Context) -> pb.ListGroupsResponse:
        """All groups that this broker keeps, with members or without."""
        return pb.ListGroupsResponse(groups=[
            pb.GroupConfig(
                group=one.group_name, forbidden_topics=self._groups.forbidden_topics(one.group_name),
                group_retry_policy=msgspec.json.encode(one.group_retry_policy).decode(),
                **{name: getattr(one, name) for name in GROUP_SETTINGS},
            )
            for one in self._groups
        ])  # fmt: skip

    async def ViewMessage(self, request: pb.ViewMessageRequest, _: Context) -> pb.ViewMessageResponse:
        """The record as stored.

        Refused with QUERY_NOT_FOUND, or with INVALID_PARAMETER for a text that is no message id.
        """
        if request.message_id:
            return pb.ViewMessageResponse(record=self._inspector.record_by_id(request.message_id))
        return pb.ViewMessageResponse(record=self._inspector.record(request.log_offset))

    async def QueryMessage(self, request: pb.QueryMessageRequest, _: Context) -> pb.QueryMessageResponse:
        """The newest records with a key. Refused with QUERY_NOT_FOUND when no record has it."""
        result = await self._inspector.query(wanted_from_proto(request))
        return pb.QueryMessageResponse(
            records=result.records, index_last_update_timestamp_ms=result.index_timestamp_ms,
            index_last_update_log_offset=result.index_log_offset,
        )  # fmt: skip


def wanted_from_proto(request: pb.QueryMessageRequest) -> KeyQuery:
    """A field of the request that is 0 sets no bound."""
    return KeyQuery(
        request.topic, request.key, begin_ms=request.begin_timestamp_ms, end_ms=request.end_timestamp_ms or NO_END,
        max_messages=request.max_messages or ALL, unique=request.unique,
    )  # fmt: skip
