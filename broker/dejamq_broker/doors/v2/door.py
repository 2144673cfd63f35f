"""The door made of its parts: routes, telemetry, heartbeats, and the calls that the other files of this room answer."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from dejamq_proto import names
from dejamq_proto.access.admission import HEARER
from dejamq_proto.access.guard import Guard
from dejamq_proto.codes import DejamqError
from dejamq_proto.serving.acceptor import Acceptor
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2 import methods
from dejamq_proto.v2.methods import Call, Unary, call_of, group_of, no_route, topic_of
from dejamq_proto.v2.queues import assignments_of, dialled, queues_of
from dejamq_proto.v2.statuses import OK, StatusError
from dejamq_proto.v2.telemetry import SubscriptionSettings, settings_answer
from dejamq_proto.v2.times import ms_of

from dejamq_broker.base.streams import Outbox, Streams
from dejamq_broker.deferred.retry_policy import waits_of
from dejamq_broker.deferred.transactions.check import CheckProducer
from dejamq_broker.domain import Domain
from dejamq_broker.doors.v2.offsets import V2Offsets
from dejamq_broker.doors.v2.receive import V2Receiving
from dejamq_broker.doors.v2.send import V2Sending, check_of
from dejamq_broker.doors.v2.sessions import Session, Sessions, topics_of

log = logging.getLogger(__name__)
Context = Any
AGAIN_S = 1.0
"""Node's client misses an answer that comes before the last of its routes, and then waits for ever for another one."""


class V2Door:
    """Owned by the event loop."""

    def __init__(
        self, domain: Domain, acceptor: Acceptor, told: Callable[[], Awaitable[None]], max_wait_ms: int | None,
        guard: Guard | None = None,
    ) -> None:  # fmt: skip
        """``told`` and ``max_wait_ms``: as of the doors beside it."""
        self._site, self._config, self._acceptor, self._guard = domain.site, domain.config, acceptor, guard
        self._topics, self._groups = domain.tables.topics, domain.tables.groups
        self._streams: Streams = domain.streams
        self._renewals, self._clock_ms = domain.popping.renewals, domain.clock_ms
        self._sessions = Sessions(
            domain.members.clients, domain.clock_ms, domain.config.channel_expired_timeout_ms, self._renewals.gone,
            command_of,
        )  # fmt: skip
        config, paths = domain.config, domain.paths
        self._sending = V2Sending(
            paths.sender, paths.confirmation, paths.transactions, self._topics, self._sessions, domain.streams,
            domain.fast_failure, domain.site, config.store.max_message_size, domain.clock_ms, told,
            recalls=domain.services.recalls,
        )  # fmt: skip
        self._receiving = V2Receiving(
            domain.popping, self._groups, self._sessions, domain.streams, config, max_wait_ms, acceptor.true_peer,
            domain.clock_ms,
        )  # fmt: skip
        self._offsets = V2Offsets(
            domain.store, self._topics, domain.tables.offsets, paths.commits, paths.puller, domain.long_poll,
            self._sessions, domain.streams, config.max_grpc_polling_time_ms, acceptor.true_peer,
        )  # fmt: skip

    def handler(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """For a server."""
        unary: dict[str, Unary] = {
            "QueryRoute": self._query_route, "QueryAssignment": self._query_assignment, "Heartbeat": self._heartbeat,
            "NotifyClientTermination": self._terminated, "SyncLiteSubscription": self._sync_lite,
        }  # fmt: skip
        unary |= self._sending.calls() | self._receiving.calls() | self._offsets.calls()
        streams = {"ReceiveMessage": self._receiving.receive, "PullMessage": self._offsets.pull}
        return methods.generic_handler(unary, streams, self._telemetry, self._acceptor.true_peer, self._guard)

    async def renew(self) -> None:
        """Keep messages for push consumers that work on them."""
        self._renewals.turn(self._sessions.alive)

    async def expire(self) -> None:
        """End clients that are silent."""
        self._sessions.expire()

    async def _query_route(self, request: pb.QueryRouteRequest, call: Call) -> pb.QueryRouteResponse:
        """Of this broker alone; name servers know the others. Only who dialled this broker first asks it for routes."""
        session = self._sessions.of(call)
        session.dialled = dialled(request.endpoints)
        return pb.QueryRouteResponse(status=OK, message_queues=self._queues(request.topic, session, request.endpoints))

    async def _query_assignment(self, request: pb.QueryAssignmentRequest, call: Call) -> pb.QueryAssignmentResponse:
        group = self._groups.get(group_of(request.group))
        in_order = group is not None and group.consume_message_orderly
        queues = self._queues(request.topic, self._sessions.of(call), request.endpoints)
        return assignments_of(queues, in_order=in_order)

    async def _heartbeat(self, request: pb.HeartbeatRequest, call: Call) -> pb.HeartbeatResponse:
        """Well for clients, too, whose settings this broker does not know: they do not tell them again."""
        session = self._sessions.of(call)
        self._sessions.join(session, group_of(request.group) if request.group.name else "")
        return pb.HeartbeatResponse(status=OK)

    async def _terminated(
        self, _: pb.NotifyClientTerminationRequest, call: Call
    ) -> pb.NotifyClientTerminationResponse:  # fmt: skip
        self._sessions.terminated(call)
        return pb.NotifyClientTerminationResponse(status=OK)

    async def _sync_lite(
        self, _: pb.SyncLiteSubscriptionRequest, __: Call
    ) -> pb.SyncLiteSubscriptionResponse:  # fmt: skip
        raise StatusError(pb.UNSUPPORTED, "this broker has no lite topics")

    async def _telemetry(self, frames: AsyncIterator[bytes], context: Context) -> None:
        """Settings in, settings and commands out. Rust's client goes on when it has the headers of the answer."""
        try:
            call = call_of(context, self._acceptor.true_peer(context.peer()))
            session = self._sessions.of(call)
        except DejamqError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        await context.send_initial_metadata(())
        with self._streams.outbox() as outbox:
            self._sessions.attach(session, outbox, HEARER.get())
            refused: list[DejamqError] = []
            try:
                async with asyncio.TaskGroup() as tasks:
                    reader = tasks.create_task(self._read(frames, session, outbox, refused))
                    while (command := await outbox.get()) is not None:
                        assert isinstance(command, pb.TelemetryCommand)
                        await context.write(command.SerializeToString())
                        if command.WhichOneof("command") == "settings":
                            outbox.made_room()
                    reader.cancel()
            finally:
                self._sessions.detach(session, outbox)
        if refused:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused[0]))

    async def _read(
        self, frames: AsyncIterator[bytes], session: Session, outbox: Outbox[object], refused: list[DejamqError]
    ) -> None:
        again: asyncio.TimerHandle | None = None
        try:
            async for raw in frames:
                session.seen_ms = self._clock_ms()
                command = methods.read(raw, pb.TelemetryCommand)
                if command.WhichOneof("command") != "settings":
                    continue
                told = self._settled(session, command.settings)
                await outbox.room()
                outbox.put(told)
                if again is None:
                    again = asyncio.get_running_loop().call_later(AGAIN_S, outbox.put, told)
        except DejamqError as error:
            refused.append(error)
        finally:
            if again is not None:
                again.cancel()
            outbox.end()

    def _settled(self, session: Session, settings: pb.Settings) -> pb.TelemetryCommand:
        """Raises for names that are none. The client joins its group at once, and does not wait for a heartbeat."""
        session.request_timeout_ms = ms_of(settings.request_timeout)
        group = ""
        if settings.WhichOneof("pub_sub") == "subscription":
            group = group_of(settings.subscription.group)
            polls = settings.subscription.HasField("long_polling_timeout")
            session.poll_ms = ms_of(settings.subscription.long_polling_timeout) if polls else None
            session.subscriptions = {}
            for entry in settings.subscription.subscriptions:
                session.subscribed(topic_of(entry.topic), entry.expression, self._clock_ms())
        else:
            session.publishes = topics_of(settings.publishing.topics)
        self._sessions.join(session, group)
        return settings_answer(
            settings, self._group_settings(group), self._config.max_grpc_polling_time_ms,
            self._config.store.max_message_size,
        )  # fmt: skip

    def _group_settings(self, name: str) -> SubscriptionSettings:
        group = self._groups.get(name) if name else None
        if group is None:
            return SubscriptionSettings()
        return SubscriptionSettings(
            group.consume_message_orderly, group.retry_max_times + 1,
            waits_of(group.group_retry_policy, group.retry_max_times, self._config.store.delay_levels_ms),
        )  # fmt: skip

    def _queues(self, resource: pb.Resource, session: Session, endpoints: pb.Endpoints) -> list[pb.MessageQueue]:
        """Raises TOPIC_NOT_FOUND. A topic that a first message makes has the queues that it would get."""
        topic = topic_of(resource)
        config = self._topics.get(topic)
        if config is None and self._topics.auto_create and not names.is_internal(topic):
            config = self._topics.get(names.AUTO_CREATE_TOPIC)
        if config is None:
            raise no_route(topic)
        return list(queues_of(
            resource, self._site.broker_name, self._address(session, endpoints), read=config.read_queue_nums,
            write=config.write_queue_nums, perm=config.perm & self._topics.perm_mask,
        ))  # fmt: skip

    def _address(self, session: Session, endpoints: pb.Endpoints) -> str:
        """The address that the client dialled, if it was this broker's: Rust's client hears commands there alone.

        Else the one that name servers tell: gRPC's own, where all clients reach that. ``endpoints`` may be theirs.
        """
        listener = dialled(endpoints).rpartition(":")[0].strip("[]")
        told = self._site.advertised.get(names.DIRECT, self._site.address)
        return session.dialled or self._site.advertised.get(listener, told)


def command_of(command: object) -> pb.TelemetryCommand | None:
    """Questions about running clients, and messages to take directly, are words of the older protocols."""
    return check_of(command) if isinstance(command, CheckProducer) else None
