"""The requests of operators to one server: a broker's Admin service, a name server's lists. One channel each."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from dejamq_proto import admin_pb2 as pb
from dejamq_proto import running_pb2
from dejamq_proto.account import Account
from dejamq_proto.admin_pb2_grpc import AdminStub
from dejamq_proto.common_pb2 import TopicConfig
from dejamq_proto.dead_letters_pb2 import ReplayRequest, ReplayResponse
from dejamq_proto.dead_letters_pb2_grpc import DeadLettersStub
from dejamq_proto.namesrv_pb2 import (
    ClusterInfo,
    DeleteConfigRequest,
    DeleteNameServerTopicRequest,
    GetClusterInfoRequest,
    GetRouteRequest,
    GetRouteResponse,
    ListConfigRequest,
    ListTopicsRequest,
    PutConfigRequest,
    SetWritableRequest,
)
from dejamq_proto.namesrv_pb2_grpc import NameServerStub
from dejamq_proto.running_pb2_grpc import RunningStub
from dejamq_proto.wire.calling import call, dial
from dejamq_proto.wire.tls import ClientTls

from dejamq.net.identity import Identity

# What operators ask a broker about its clients: the Running service. One channel, for the time of a question.


class RunningLink:
    """``async with`` closes it."""

    def __init__(
        self, address: str, identity: Identity, *, timeout_ms: float, tls: ClientTls | None = None,
        account: Account | None = None,
    ) -> None:  # fmt: skip
        self.address, self._identity, self._timeout_ms = address, identity, timeout_ms
        self._channel = dial(address, tls, account)
        self._stub: Any = RunningStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def running_info(self, group: str, client_id: str, *, stacks: bool) -> running_pb2.ClientInfo:
        """The client's report. Raises DejamqError with CONSUMER_NOT_ONLINE or CONSUME_MSG_TIMEOUT."""
        caller = self._identity.caller()
        request = running_pb2.RunningInfoRequest(caller=caller, group=group, client_id=client_id, stacks=stacks)
        info: running_pb2.ClientInfo = (await self._call(self._stub.RunningInfo, request)).info
        return info

    async def consume_directly(self, group: str, client_id: str, message_id: str) -> running_pb2.DirectResult:
        """How the handler ended. Raises as ``running_info``, and with QUERY_NOT_FOUND."""
        caller = self._identity.caller()
        request = running_pb2.ConsumeDirectlyRequest(
            caller=caller, group=group, client_id=client_id, message_id=message_id
        )
        result: running_pb2.DirectResult = (await self._call(self._stub.ConsumeDirectly, request)).result
        return result

    async def stats(self, item: str, key: str) -> list[running_pb2.StatsLine]:
        """The broker's counters, '' for all of them."""
        request = running_pb2.StatsRequest(caller=self._identity.caller(), item=item, key=key)
        return list((await self._call(self._stub.Stats, request)).lines)

    async def _call(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        return await call(method, request, address=self.address, timeout_ms=self._timeout_ms)


# What operators change at one broker, as calls.


class AdminChangesLink:
    """The part of ``AdminLink`` that changes or ends what is there; the stub and the call are that one's."""

    _identity: Identity
    _stub: Any
    _call: Callable[..., Awaitable[Any]]

    async def update_topic(self, topic: str, changes: Mapping[str, Any]) -> None:
        """Changes these fields. Raises DejamqError with TOPIC_NOT_EXIST."""
        request = pb.UpdateTopicRequest(caller=self._identity.caller(), topic=topic, **changes)
        await self._call(self._stub.UpdateTopic, request)

    async def delete_topic(self, topic: str) -> bool:
        """Whether the broker had it. Raises DejamqError with INVALID_PARAMETER for its own topics."""
        request = pb.DeleteTopicRequest(caller=self._identity.caller(), topic=topic)
        return bool((await self._call(self._stub.DeleteTopic, request)).existed)

    async def delete_group(self, group: str, remove_offsets: bool) -> bool:
        """Whether the broker had it. Raises DejamqError with INVALID_PARAMETER for a built-in group."""
        request = pb.DeleteGroupRequest(caller=self._identity.caller(), group=group, remove_offsets=remove_offsets)
        return bool((await self._call(self._stub.DeleteGroup, request)).existed)

    async def forbid(self, group: str, topic: str, forbidden: bool) -> None:
        """Takes the topic from the group or gives it back. Raises DejamqError with SUBSCRIPTION_GROUP_NOT_EXIST."""
        request = pb.ForbidRequest(caller=self._identity.caller(), group=group, topic=topic, forbidden=forbidden)
        await self._call(self._stub.Forbid, request)

    async def reset_offsets(self, request: pb.ResetOffsetsRequest) -> list[pb.OffsetMove]:
        """The moves; made unless the request is a dry run."""
        request.caller.CopyFrom(self._identity.caller())
        return list((await self._call(self._stub.ResetOffsets, request)).moves)

    async def clone_offsets(self, request: pb.CloneOffsetsRequest) -> list[pb.OffsetMove]:
        """The moves; made unless the request is a dry run."""
        request.caller.CopyFrom(self._identity.caller())
        return list((await self._call(self._stub.CloneOffsets, request)).moves)

    async def update_settings(self, values: Mapping[str, str]) -> dict[str, str]:
        """All settings in force afterwards. Raises DejamqError with INVALID_PARAMETER; nothing has changed then."""
        request = pb.UpdateSettingsRequest(caller=self._identity.caller(), values=values)
        return dict((await self._call(self._stub.UpdateSettings, request)).values)

    async def clashes(self) -> list[pb.Clash]:
        """Client ids that several processes used in one group."""
        request = pb.ListClashesRequest(caller=self._identity.caller())
        return list((await self._call(self._stub.ListClashes, request)).clashes)


class NameServerAdminLink:
    """One name server, asked by its address: operators compare what each of them says."""

    def __init__(
        self, address: str, identity: Identity, *, timeout_ms: float, tls: ClientTls | None = None,
        account: Account | None = None,
    ) -> None:  # fmt: skip
        self.address, self._identity, self._timeout_ms = address, identity, timeout_ms
        self._listener = address.rpartition(":")[0].strip("[]")
        self._channel = dial(address, tls, account)
        self._stub: Any = NameServerStub(self._channel)

    async def cluster(self) -> ClusterInfo:
        """The brokers it knows."""
        request = GetClusterInfoRequest(caller=self._identity.caller(), listener=self._listener)
        answer: ClusterInfo = await self._call(self._stub.GetClusterInfo, request)
        return answer

    async def topics(self) -> list[str]:
        """Topics with a live broker."""
        return list((await self._call(self._stub.ListTopics, ListTopicsRequest(caller=self._identity.caller()))).topics)

    async def route(self, topic: str) -> GetRouteResponse:
        """Raises DejamqError with TOPIC_NOT_EXIST."""
        request = GetRouteRequest(caller=self._identity.caller(), topic=topic, listener=self._listener)
        answer: GetRouteResponse = await self._call(self._stub.GetRoute, request)
        return answer

    async def set_writable(self, broker_name: str, writable: bool) -> int:
        """Give or take the write permission of all routes through the broker; how many there are."""
        request = SetWritableRequest(caller=self._identity.caller(), broker_name=broker_name, writable=writable)
        return int((await self._call(self._stub.SetWritable, request)).topics)

    async def delete_topic(self, topic: str, broker_names: Sequence[str] = ()) -> int:
        """Forget the topic's routes through these brokers, through all by default; how many there were."""
        request = DeleteNameServerTopicRequest(
            caller=self._identity.caller(), topic=topic, broker_names=broker_names
        )  # fmt: skip
        return int((await self._call(self._stub.DeleteTopic, request)).routes)

    async def get_config(self, namespace: str, key: str) -> str:
        """One value of the key-value settings, '' for none."""
        request = ListConfigRequest(caller=self._identity.caller(), namespace=namespace)
        return str((await self._call(self._stub.ListConfig, request)).values.get(key, ""))

    async def put_config(self, namespace: str, key: str, value: str) -> None:
        """Kept on disk before it returns, where the name server has a directory."""
        request = PutConfigRequest(caller=self._identity.caller(), namespace=namespace, key=key, value=value)
        await self._call(self._stub.PutConfig, request)

    async def delete_config(self, namespace: str, key: str) -> None:
        """Deleting what is not there succeeds."""
        request = DeleteConfigRequest(caller=self._identity.caller(), namespace=namespace, key=key)
        await self._call(self._stub.DeleteConfig, request)

    async def close(self) -> None:
        """A question under way fails."""
        await self._channel.close(None)

    async def _call(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        return await call(method, request, address=self.address, timeout_ms=self._timeout_ms)


class AdminLink(AdminChangesLink):
    """The Admin service of one broker address."""

    def __init__(
        self, address: str, identity: Identity, *, timeout_ms: float, tls: ClientTls | None = None,
        account: Account | None = None,
    ) -> None:  # fmt: skip
        self.address, self._identity, self._timeout_ms = address, identity, timeout_ms
        self._channel = dial(address, tls, account)
        self._stub: Any = AdminStub(self._channel)
        self._dead_letters: Any = DeadLettersStub(self._channel)

    async def create_topic(self, topic: TopicConfig) -> None:
        """Make the topic or change it."""
        await self._call(self._stub.CreateTopic, pb.CreateTopicRequest(caller=self._identity.caller(), topic=topic))

    async def topic_configs(self) -> list[TopicConfig]:
        """All topics, system topics and retry topics included."""
        request = pb.ListTopicConfigsRequest(caller=self._identity.caller())
        return list((await self._call(self._stub.ListTopicConfigs, request)).topics)

    async def update_group(self, group: pb.GroupConfig) -> None:
        """Make the group or change it."""
        await self._call(self._stub.UpdateGroup, pb.UpdateGroupRequest(caller=self._identity.caller(), group=group))

    async def groups(self) -> list[pb.GroupConfig]:
        """All groups of the broker."""
        return list(
            (await self._call(self._stub.ListGroups, pb.ListGroupsRequest(caller=self._identity.caller()))).groups
        )

    async def runtime_info(self) -> dict[str, str]:
        """Numbers by RocketMQ's names, as texts."""
        request = pb.RuntimeInfoRequest(caller=self._identity.caller())
        return dict((await self._call(self._stub.RuntimeInfo, request)).values)

    async def settings(self) -> dict[str, str]:
        """The settings that the broker was started with."""
        request = pb.SettingsRequest(caller=self._identity.caller())
        return dict((await self._call(self._stub.Settings, request)).values)

    async def connections(self, group: str) -> list[pb.Connection]:
        """Clients of the group, of all groups for ''."""
        request = pb.ListConnectionsRequest(caller=self._identity.caller(), group=group)
        return list((await self._call(self._stub.ListConnections, request)).connections)

    async def offsets(self, group: str) -> list[pb.GroupOffset]:
        """Queues of which the group has committed an offset."""
        request = pb.ListOffsetsRequest(caller=self._identity.caller(), group=group)
        return list((await self._call(self._stub.ListOffsets, request)).offsets)

    async def view(self, message_id: str) -> bytes:
        """The record with this offset message id. Raises DejamqError with QUERY_NOT_FOUND."""
        request = pb.ViewMessageRequest(caller=self._identity.caller(), message_id=message_id)
        return bytes((await self._call(self._stub.ViewMessage, request)).record)

    async def query(self, request: pb.QueryMessageRequest) -> list[bytes]:
        """Records with a key. Raises DejamqError with QUERY_NOT_FOUND when there is none."""
        request.caller.CopyFrom(self._identity.caller())
        return list((await self._call(self._stub.QueryMessage, request)).records)

    async def replay(self, request: ReplayRequest) -> ReplayResponse:
        """Send a dead letter again. Raises DejamqError with QUERY_NOT_FOUND for another group's message."""
        request.caller.CopyFrom(self._identity.caller())
        answer: ReplayResponse = await self._call(self._dead_letters.Replay, request)
        return answer

    async def close(self) -> None:
        """A question under way fails."""
        await self._channel.close(None)

    async def _call(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        return await call(method, request, address=self.address, timeout_ms=self._timeout_ms)
