"""The door of the name server: messages to values and back; the registry decides."""

import asyncio
from typing import Any

import grpc.aio
from dejamq_proto import common_pb2, namesrv_pb2, namesrv_pb2_grpc
from dejamq_proto.codes import DejamqError

from dejamq_namesrv.masterships import Candidate
from dejamq_namesrv.registry import Registry
from dejamq_namesrv.topology import BrokerIdentity, BrokerReplicas, RegisteredTopic, TopicTableVersion

SERVICE = "dejamq.v1.NameServer"
Context = Any


class NameServerServicer(namesrv_pb2_grpc.NameServerServicer):
    """Errors are raised as DejamqError; the server's interceptor makes trailers of them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._channels: set[asyncio.Timeout] = set()

    async def RegisterBroker(
        self, request: namesrv_pb2.RegisterBrokerRequest, context: Context
    ) -> namesrv_pb2.RegisterBrokerResponse:
        """Answers the master's address to slaves, and the order topics.

        Refused with INVALID_PARAMETER or SYSTEM_ERROR.
        """
        done = self._registry.register(
            _identity(request.broker),
            [_topic(config) for config in request.topics],
            _version(request.data_version),
            request.heartbeat_timeout_ms,
        )
        return namesrv_pb2.RegisterBrokerResponse(
            master_address=done.master_address, order_topics=dict(self._registry.order_topics())
        )

    async def UnregisterBroker(
        self, request: namesrv_pb2.UnregisterBrokerRequest, context: Context
    ) -> namesrv_pb2.UnregisterBrokerResponse:
        """Applied before the answer: the next caller does not find the broker (RocketMQ queues it)."""
        self._registry.unregister(_identity(request.broker))
        return namesrv_pb2.UnregisterBrokerResponse()

    async def BrokerChannel(  # type: ignore[override]  # grpc.aio also takes a coroutine that writes by itself
        self, request_iterator: Any, context: Context
    ) -> None:
        """Held open by the broker; its end (by the broker, the network, a kill) removes the broker at once."""
        channel = object()
        try:
            async with asyncio.timeout(None) as until_close:
                self._channels.add(until_close)
                await self._read_presence(channel, request_iterator, context)
        except TimeoutError:
            return  # this name server closes: it forgets everything anyway
        finally:
            self._channels.discard(until_close)
            self._registry.channel_closed(channel)

    async def _read_presence(self, channel: object, request_iterator: Any, context: Context) -> None:
        async for presence in request_iterator:
            self._registry.attach(channel, _identity(presence.broker))
            await context.write(namesrv_pb2.BrokerPresenceAck())

    async def SetWritable(
        self, request: namesrv_pb2.SetWritableRequest, context: Context
    ) -> namesrv_pb2.SetWritableResponse:
        """Never refused; the answer tells how many routes name the broker."""
        topics = self._registry.set_writable(request.broker_name, request.writable)
        return namesrv_pb2.SetWritableResponse(topics=topics)

    def end_channels(self) -> None:
        """Let go of the brokers' channels, which would otherwise hold up the stop of the server."""
        for channel in self._channels:
            channel.reschedule(0)

    async def GetRoute(self, request: namesrv_pb2.GetRouteRequest, context: Context) -> namesrv_pb2.GetRouteResponse:
        """Refused with TOPIC_NOT_EXIST when no live broker has the topic."""
        return self._route(request.topic, request.listener, request.caller.boot_id)

    async def GetRoutes(self, request: namesrv_pb2.GetRoutesRequest, context: Context) -> namesrv_pb2.GetRoutesResponse:
        """As ``GetRoute`` of each; the refusal that this would give is the topic's answer."""
        answers = []
        for topic in request.topics:
            try:
                route = self._route(topic, request.listener, request.caller.boot_id)
                answers.append(namesrv_pb2.RouteAnswer(route=route))
            except DejamqError as error:
                answers.append(namesrv_pb2.RouteAnswer(code=int(error.code), remark=str(error)))
        return namesrv_pb2.GetRoutesResponse(answers=answers)

    def _route(self, topic: str, listener: str, asker_boot_id: str) -> namesrv_pb2.GetRouteResponse:
        route = self._registry.route(topic, listener, asker_boot_id, direct=True)
        return namesrv_pb2.GetRouteResponse(
            order_conf=self._registry.order_conf(topic),
            queues=[
                namesrv_pb2.QueueData(
                    broker_name=queue.broker_name,
                    read_queue_nums=queue.read_queue_nums,
                    write_queue_nums=queue.write_queue_nums,
                    perm=queue.perm,
                    topic_sys_flag=queue.topic_sys_flag,
                )
                for queue in route.queues
            ],
            brokers=[_broker_data(broker) for broker in route.brokers],
        )

    async def GetClusterInfo(
        self, request: namesrv_pb2.GetClusterInfoRequest, context: Context
    ) -> namesrv_pb2.ClusterInfo:
        """Empty without brokers; that is no error."""
        brokers = self._registry.cluster_info(request.listener)
        return namesrv_pb2.ClusterInfo(brokers=[_broker_data(broker) for broker in brokers])

    async def ListTopics(
        self, request: namesrv_pb2.ListTopicsRequest, context: Context
    ) -> namesrv_pb2.ListTopicsResponse:
        """Topics of live brokers only, system topics included."""
        return namesrv_pb2.ListTopicsResponse(topics=self._registry.topics())

    async def PutConfig(self, request: namesrv_pb2.PutConfigRequest, context: Context) -> namesrv_pb2.PutConfigResponse:
        """Kept on disk before the answer, where this name server has a directory."""
        await self._registry.kv.put(request.namespace, request.key, request.value)
        return namesrv_pb2.PutConfigResponse()

    async def GetConfig(self, request: namesrv_pb2.GetConfigRequest, context: Context) -> namesrv_pb2.GetConfigResponse:
        """Refused with QUERY_NOT_FOUND."""
        return namesrv_pb2.GetConfigResponse(value=self._registry.kv.get(request.namespace, request.key))

    async def DeleteConfig(
        self, request: namesrv_pb2.DeleteConfigRequest, context: Context
    ) -> namesrv_pb2.DeleteConfigResponse:
        """Deleting what is not there succeeds."""
        await self._registry.kv.delete(request.namespace, request.key)
        return namesrv_pb2.DeleteConfigResponse()

    async def ListConfig(
        self, request: namesrv_pb2.ListConfigRequest, context: Context
    ) -> namesrv_pb2.ListConfigResponse:
        """Empty for a namespace that nobody has put anything into (RocketMQ refuses)."""
        return namesrv_pb2.ListConfigResponse(values=self._registry.kv.namespace(request.namespace))

    async def DeleteTopic(
        self, request: namesrv_pb2.DeleteNameServerTopicRequest, context: Context
    ) -> namesrv_pb2.DeleteNameServerTopicResponse:
        """Never refused; the answer tells how many routes there were."""
        routes = self._registry.delete_topic(request.topic, request.broker_names)
        return namesrv_pb2.DeleteNameServerTopicResponse(routes=routes)

    async def Mastership(
        self, request: namesrv_pb2.MastershipRequest, context: Context
    ) -> namesrv_pb2.MastershipResponse:
        """Refused with SYSTEM_ERROR when an epoch cannot be kept; every other "no" is an answer with its reason."""
        masterships, candidate = self._registry.masterships, _candidate(request)
        if request.wish == namesrv_pb2.MASTERSHIP_TAKE:
            answer = await masterships.take(candidate)
        elif request.wish == namesrv_pb2.MASTERSHIP_RENEW:
            answer = await masterships.renew(candidate)
        else:
            answer = masterships.look(candidate)
        granted, confirmed = answer.at.granted, answer.at.confirmed
        return namesrv_pb2.MastershipResponse(
            done=answer.done, reason=answer.reason, granted_epoch=granted.epoch, granted_replica=granted.replica,
            confirmed_epoch=confirmed.epoch, confirmed_replica=confirmed.replica,
            confirmed_broker_id=confirmed.broker_id, silent_ms=answer.silent_ms, other_process=answer.other_process,
        )  # fmt: skip


def add_to(server: grpc.aio.Server, servicer: NameServerServicer) -> None:
    """The door of the generated code, in the one file that knows it."""
    namesrv_pb2_grpc.add_NameServerServicer_to_server(servicer, server)


def _identity(broker: namesrv_pb2.BrokerIdentity) -> BrokerIdentity:
    return BrokerIdentity(
        broker.cluster, broker.broker_name, broker.broker_id, broker.address, broker.boot_id, dict(broker.advertised)
    )


def _candidate(request: namesrv_pb2.MastershipRequest) -> Candidate:
    return Candidate(
        cluster=request.cluster, broker_name=request.broker_name, replica=request.replica,
        broker_id=request.broker_id, epoch=request.epoch, followed=request.followed, lease_ms=request.lease_ms,
        ended=tuple(request.ended), before=tuple(request.before),
    )  # fmt: skip


def _topic(config: common_pb2.TopicConfig) -> RegisteredTopic:
    return RegisteredTopic(
        config.topic, config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag
    )


def _version(version: common_pb2.DataVersion) -> TopicTableVersion:
    return TopicTableVersion(version.state_version, version.timestamp_ms, version.counter)


def _broker_data(broker: BrokerReplicas) -> namesrv_pb2.BrokerData:
    return namesrv_pb2.BrokerData(
        cluster=broker.cluster, broker_name=broker.broker_name, addresses=dict(broker.addresses)
    )
