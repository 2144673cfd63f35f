"""The Admin service: topics, numbers and single messages for operators. It translates; the tables decide."""

from typing import TYPE_CHECKING, Any

import grpc.aio
import msgspec
from dejamq_proto import admin_pb2 as pb
from dejamq_proto import common_pb2

from dejamq_broker.inspect import Inspector
from dejamq_broker.retry_policy import policy_from_json
from dejamq_broker.rpc_admin_changes import AdminChanges
from dejamq_broker.rpc_values import topic_from_proto, topic_to_proto
from dejamq_broker.store import Wanted
from dejamq_broker.store.query import ALL, NO_END

if TYPE_CHECKING:
    from dejamq_broker.domain import Domain

Context = grpc.aio.ServicerContext[Any, Any]
GROUP_SETTINGS = (
    "consume_enable", "consume_broadcast_enable", "consume_message_orderly", "retry_queue_nums", "retry_max_times",
    "consume_from_min_enable", "broker_id", "which_broker_when_consume_slowly", "notify_consumer_ids_changed_enable",
    "group_sys_flag", "consume_timeout_minute",
)  # fmt: skip


class AdminService(AdminChanges):
    """RPC of operators."""

    def __init__(self, domain: "Domain", inspector: Inspector) -> None:
        super().__init__(domain)
        self._topics, self._groups, self._inspector = domain.topics, domain.groups, inspector

    async def CreateTopic(self, request: pb.CreateTopicRequest, _: Context) -> pb.CreateTopicResponse:
        """Create or change; name servers that live know it when this answers. Refused with INVALID_PARAMETER."""
        self._own().topics.update(topic_from_proto(request.topic))
        await self._domain.told()
        return pb.CreateTopicResponse()

    async def ListTopicConfigs(self, request: pb.ListTopicConfigsRequest, _: Context) -> pb.ListTopicConfigsResponse:
        """All topics of this broker, those of the system and of retries included."""
        return pb.ListTopicConfigsResponse(topics=map(topic_to_proto, self._topics))

    async def RuntimeInfo(self, request: pb.RuntimeInfoRequest, _: Context) -> pb.RuntimeInfoResponse:
        """What ``Inspector.runtime`` tells; names that RocketMQ does not have may be added at any time."""
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
        given = request.group
        changes = {name: getattr(given, name) for name in GROUP_SETTINGS if given.HasField(name)}  # type: ignore[arg-type]
        if given.HasField("group_retry_policy"):
            changes["group_retry_policy"] = policy_from_json(given.group_retry_policy)
        self._groups.update(given.group, **changes)
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
        """The record as stored. Refused with QUERY_NOT_FOUND, or INVALID_PARAMETER for a message id that is none."""
        if request.message_id:
            return pb.ViewMessageResponse(record=self._inspector.record_by_id(request.message_id))
        return pb.ViewMessageResponse(record=self._inspector.record(request.log_offset))

    async def QueryMessage(self, request: pb.QueryMessageRequest, _: Context) -> pb.QueryMessageResponse:
        """The newest records with a key. Refused with QUERY_NOT_FOUND when there is none."""
        result = await self._inspector.query(wanted_from_proto(request))
        return pb.QueryMessageResponse(
            records=result.records, index_last_update_timestamp_ms=result.index_timestamp_ms,
            index_last_update_log_offset=result.index_log_offset,
        )  # fmt: skip


def wanted_from_proto(request: pb.QueryMessageRequest) -> Wanted:
    """What the request leaves at 0 is without a bound."""
    return Wanted(
        request.topic, request.key, begin_ms=request.begin_timestamp_ms, end_ms=request.end_timestamp_ms or NO_END,
        max_messages=request.max_messages or ALL, unique=request.unique,
    )  # fmt: skip
