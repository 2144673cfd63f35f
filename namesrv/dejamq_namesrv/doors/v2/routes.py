"""Routes for RocketMQ 5's clients. They dial one address, and go to the brokers that their routes name.

Some of them say their settings to that first address as well, and end transactions there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
from dejamq_proto import names
from dejamq_proto.access.guard import Guard
from dejamq_proto.codes import DejamqError
from dejamq_proto.names import MASTER_ID
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2 import methods
from dejamq_proto.v2.methods import Call, Context, call_of, group_of, no_route, topic_of
from dejamq_proto.v2.queues import assignments_of, dialled, queues_of
from dejamq_proto.v2.statuses import OK, status_of
from dejamq_proto.v2.telemetry import SubscriptionSettings, settings_answer
from dejamq_proto.wire.calling import dial
from dejamq_proto.wire.tls import ClientTls

from dejamq_namesrv.registry import Registry
from dejamq_namesrv.topology import RouteAnswer

LONGEST_POLL_MS, PASSED_ON_S = 20_000, 3


class RouteService:
    """Owned by the event loop. The registry decides."""

    def __init__(self, registry: Registry, tls: ClientTls | None = None) -> None:
        """``tls``: for what is passed on to brokers."""
        self._registry, self._tls = registry, tls
        self._streams: set[asyncio.Timeout] = set()

    def handler(self, guard: Guard | None, true_peer: Callable[[str], str]) -> "grpc.GenericRpcHandler[Any, Any]":
        """For a server."""
        unary: dict[str, methods.Unary] = {
            "QueryRoute": self._query_route, "QueryAssignment": self._query_assignment, "Heartbeat": self._heartbeat,
            "NotifyClientTermination": self._terminated, "EndTransaction": self._end_transaction,
            "RecallMessage": self._recall,
        }  # fmt: skip
        return methods.generic_handler(unary, {}, self._telemetry, true_peer, guard)

    def end_streams(self) -> None:
        """Let go of clients that told their settings, and would hold up the stop of the server."""
        for stream in self._streams:
            stream.reschedule(0)

    async def _query_route(self, request: pb.QueryRouteRequest, _: Call) -> pb.QueryRouteResponse:
        queues = self._queues(request.topic, request.endpoints)
        return pb.QueryRouteResponse(status=OK, message_queues=queues)

    async def _query_assignment(self, request: pb.QueryAssignmentRequest, _: Call) -> pb.QueryAssignmentResponse:
        """Whether the group consumes in order is known to brokers. One entry a broker serves both kinds."""
        group_of(request.group)
        return assignments_of(self._queues(request.topic, request.endpoints), in_order=False)

    async def _heartbeat(self, _: pb.HeartbeatRequest, __: Call) -> pb.HeartbeatResponse:
        return pb.HeartbeatResponse(status=OK)

    async def _terminated(
        self, _: pb.NotifyClientTerminationRequest, __: Call
    ) -> pb.NotifyClientTerminationResponse:  # fmt: skip
        return pb.NotifyClientTerminationResponse(status=OK)

    async def _end_transaction(self, request: pb.EndTransactionRequest, call: Call) -> pb.EndTransactionResponse:
        answer: pb.EndTransactionResponse = await self._passed_on("EndTransaction", request, call)
        return answer

    async def _recall(self, request: pb.RecallMessageRequest, call: Call) -> pb.RecallMessageResponse:
        answer: pb.RecallMessageResponse = await self._passed_on("RecallMessage", request, call)
        return answer

    async def _passed_on(self, name: str, request: Any, call: Call) -> Any:
        """The word of the broker that it is for: some clients take the first address that they dialled for that."""
        answer = methods.UNARY[name][1](status=status_of(no_route(request.topic.name)))
        for address in dict.fromkeys(self._masters(topic_of(request.topic)).values()):
            try:
                async with dial(address, self._tls) as channel:
                    asking: Any = channel.unary_unary(f"/{methods.SERVICE}/{name}")  # type: ignore[call-arg]
                    raw = await asking(request.SerializeToString(), metadata=call.headers(), timeout=PASSED_ON_S)
            except grpc.aio.AioRpcError:
                continue
            answer = methods.UNARY[name][1].FromString(raw)
            if answer.status.code == pb.OK:
                break
        return answer

    def _masters(self, topic: str) -> dict[str, str]:
        """Addresses by broker name."""
        route = self._route(topic, "")
        return {one.broker_name: one.addresses[MASTER_ID] for one in route.brokers if MASTER_ID in one.addresses}

    async def _telemetry(self, frames: AsyncIterator[bytes], context: Context) -> None:
        """Rust's client goes on when it has the headers of the answer."""
        until_close = asyncio.timeout(None)
        try:
            call_of(context, context.peer())
            await context.send_initial_metadata(())
            async with until_close:
                self._streams.add(until_close)
                await self._tell_settings(frames, context)
        except TimeoutError:
            return  # this name server closes
        except DejamqError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._streams.discard(until_close)

    async def _tell_settings(self, frames: AsyncIterator[bytes], context: Context) -> None:
        """Groups are known to brokers, so these are the defaults; each broker tells its own."""
        async for raw in frames:
            command = methods.read(raw, pb.TelemetryCommand)
            if command.WhichOneof("command") == "settings":
                told = settings_answer(command.settings, SubscriptionSettings(), LONGEST_POLL_MS)
                await context.write(told.SerializeToString())

    def _queues(self, resource: pb.Resource, endpoints: pb.Endpoints) -> list[pb.MessageQueue]:
        """Of all brokers with a master. Raises TOPIC_NOT_FOUND."""
        topic, listener = topic_of(resource), dialled(endpoints).rpartition(":")[0].strip("[]")
        route = self._route(topic, listener)
        masters = {broker.broker_name: broker.addresses.get(MASTER_ID, "") for broker in route.brokers}
        return [
            queue
            for found in route.queues
            if (address := masters.get(found.broker_name))
            for queue in queues_of(
                resource, found.broker_name, address, read=found.read_queue_nums, write=found.write_queue_nums,
                perm=found.perm,
            )
        ]  # fmt: skip

    def _route(self, topic: str, listener: str) -> RouteAnswer:
        """A topic that a first message would make has the route of the template, as with RocketMQ's older clients."""
        for name in (topic,) if names.is_internal(topic) else (topic, names.AUTO_CREATE_TOPIC):
            try:
                route = self._registry.route(name, listener, "", direct=True)
            except DejamqError:
                continue
            if name == topic or any(queue.perm & names.PERM_INHERIT for queue in route.queues):
                return route
        raise no_route(topic)
