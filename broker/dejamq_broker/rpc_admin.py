"""The Admin service: topics, numbers and single messages for operators. It translates; the tables decide."""

from typing import Any

import grpc.aio
from dejamq_proto import admin_pb2 as pb
from dejamq_proto import common_pb2
from dejamq_proto.admin_pb2_grpc import AdminServicer

from dejamq_broker.inspect import Inspector
from dejamq_broker.topics import TopicConfig, TopicTable

Context = grpc.aio.ServicerContext[Any, Any]


class AdminService(AdminServicer):
    """RPC of operators."""

    def __init__(self, topics: TopicTable, inspector: Inspector) -> None:
        self._topics, self._inspector = topics, inspector

    async def CreateTopic(self, request: pb.CreateTopicRequest, _: Context) -> pb.CreateTopicResponse:
        """Create or change. Refused with INVALID_PARAMETER."""
        self._topics.update(config_from_proto(request.topic))
        return pb.CreateTopicResponse()

    async def ListTopicConfigs(self, request: pb.ListTopicConfigsRequest, _: Context) -> pb.ListTopicConfigsResponse:
        """All topics of this broker, those of the system and of retries included."""
        return pb.ListTopicConfigsResponse(topics=map(config_to_proto, self._topics))

    async def RuntimeInfo(self, request: pb.RuntimeInfoRequest, _: Context) -> pb.RuntimeInfoResponse:
        """What ``Inspector.runtime`` tells; names that RocketMQ does not have may be added at any time."""
        return pb.RuntimeInfoResponse(values=self._inspector.runtime())

    async def ListOffsets(self, request: pb.ListOffsetsRequest, _: Context) -> pb.ListOffsetsResponse:
        """The progress of one group; empty for a group that has committed nothing here, known or not."""
        return pb.ListOffsetsResponse(offsets=[
            pb.GroupOffset(
                queue=common_pb2.QueueKey(topic=each.topic, queue_id=each.queue_id), committed=each.committed,
                min_offset=each.min_offset, max_offset=each.max_offset,
            )
            for each in self._inspector.progress(request.group)
        ])  # fmt: skip

    async def ViewMessage(self, request: pb.ViewMessageRequest, _: Context) -> pb.ViewMessageResponse:
        """The record as stored. Refused with QUERY_NOT_FOUND."""
        return pb.ViewMessageResponse(record=self._inspector.record(request.log_offset))


def config_from_proto(topic: common_pb2.TopicConfig) -> TopicConfig:
    """Not checked; the table does that."""
    return TopicConfig(
        topic.topic, topic.read_queue_nums, topic.write_queue_nums, topic.perm,
        topic_sys_flag=topic.topic_sys_flag, order=topic.order,
    )  # fmt: skip


def config_to_proto(config: TopicConfig, *, perm_mask: int = 7) -> common_pb2.TopicConfig:
    """``perm_mask`` takes permissions away that the broker as a whole does not give."""
    return common_pb2.TopicConfig(
        topic=config.topic_name, read_queue_nums=config.read_queue_nums, write_queue_nums=config.write_queue_nums,
        perm=config.perm & perm_mask, topic_sys_flag=config.topic_sys_flag, order=config.order,
    )  # fmt: skip
