"""Clients of RocketMQ 5 by their ids: what they told of themselves, and by which stream commands reach them.

A client's calls come over any connection, so nothing hangs on one. Some do not tell their settings again after a
restart of the broker, so everything works without. Source: RocketMQ ``ClientActivity``, ``GrpcClientSettingsManager``.
"""

import logging
from collections.abc import Callable, Iterable

from dejamq_proto.access.admission import EVERYBODY, Hearer
from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.writer import new_boot_id
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.methods import Call
from dejamq_proto.v2.statuses import StatusError

from dejamq_broker.base.streams import Outbox
from dejamq_broker.doors.hearing import may_hear
from dejamq_broker.members.clients import Clients, log_foreign_id
from dejamq_broker.members.connections import peer_text
from dejamq_broker.members.groups import POPS, Channel, Consumer, GroupSubscription
from dejamq_broker.tables.offsets import Asker

log = logging.getLogger(__name__)
MOST_CLIENTS = 100_000
MOST_TOPICS = 1024
"""Of one client that are remembered."""
MOST_WAITING = 8 << 20
"""Bytes of commands that wait for one client that does not read."""
TYPES = {pb.FILTER_TYPE_UNSPECIFIED: "TAG", pb.TAG: "TAG", pb.SQL: "SQL92"}


class Session:
    """One client id. ``boot_id`` stands for its time here: with the number of a call it names the call in journals."""

    def __init__(self, call: Call) -> None:
        self.client_id, self.boot_id, self.address = call.client_id, new_boot_id(), peer_text(call.peer)
        self.language, self.version, self.user = call.language, call.version, call.user
        self.seen_ms = 0.0
        self.publishes: frozenset[str] = frozenset()
        self.subscriptions: dict[str, GroupSubscription] = {}
        self.poll_ms: int | None = None
        self.dialled = ""
        """The address by which it knows this broker, if that is the first one that it dials."""
        self.request_timeout_ms = 0
        self.channel: Channel | None = None
        self.outbox: Outbox[object] | None = None
        self.hearer = EVERYBODY
        self._calls = 0

    def asker(self, call: Call | None = None) -> Asker:
        """For one call. Start and number are those that the client gave it, if it did."""
        self._calls += 1
        if call is not None and call.boot_id:
            return Asker(self.client_id, call.boot_id, call.seq)
        return Asker(self.client_id, self.boot_id, self._calls)

    def subscribed(self, topic: str, expression: pb.FilterExpression, now_ms: int) -> None:
        """The client asks for this topic with this filter."""
        text, kind = expression.expression or "*", TYPES.get(expression.type, "TAG")
        known = self.subscriptions.get(topic)
        new = known is None or (known.expression, known.expression_type) != (text, kind)
        if new and (known or len(self.subscriptions) < MOST_TOPICS):
            self.subscriptions[topic] = GroupSubscription(topic, text, kind, now_ms)


class Sessions:
    """Owned by the event loop."""

    def __init__(
        self, clients: Clients, clock_ms: Callable[[], int], silent_ms: float, gone: Callable[[str], None],
        command_of: Callable[[object], pb.TelemetryCommand | None],
    ) -> None:  # fmt: skip
        """``silent_ms``: a client without a stream that says nothing for so long has ended; ``gone`` is told.

        ``command_of``: a command of the broker in the words of the protocol, None for one that it does not know.
        """
        self._clients, self._clock_ms, self._silent_ms, self._gone = clients, clock_ms, silent_ms, gone
        self._command_of = command_of
        self._by_id: dict[str, Session] = {}

    def of(self, call: Call) -> Session:
        """The caller's, made with its first call. Raises TOO_MANY_REQUESTS where too many are there, FORBIDDEN for the
        id of another user's client.
        """
        session = self._by_id.get(call.client_id)
        if session is None:
            if len(self._by_id) >= MOST_CLIENTS:
                raise StatusError(pb.TOO_MANY_REQUESTS, f"{MOST_CLIENTS} clients are here already")
            session = self._by_id[call.client_id] = Session(call)
        if session.user != call.user:
            log_foreign_id(call.user, peer_text(call.peer), "v2")
            raise StatusError(pb.FORBIDDEN, f"client id {call.client_id!r} is that of another user")
        session.seen_ms = self._clock_ms()
        return session

    def alive(self, client_id: str) -> bool:
        """Whether this client has a stream, or called not long ago."""
        session = self._by_id.get(client_id)
        return session is not None and not self._silent(session)

    def attach(self, session: Session, outbox: Outbox[object], hearer: Hearer) -> None:
        """Commands go by this stream, the newest of the client."""
        session.outbox, session.hearer = outbox, hearer

    def detach(self, session: Session, outbox: Outbox[object]) -> None:
        """The stream ended. The client leaves its groups until it speaks again, unless it has a newer stream."""
        if session.outbox is outbox:
            session.outbox = None
            session.seen_ms = self._clock_ms()
            self._leave(session)

    def join(self, session: Session, group: str = "") -> None:
        """The client is there: as a producer of the topics that it named, and in its group, if it has one.

        RocketMQ's proxy takes the topics for the groups of producers, which half messages name too. A group that cannot
        be used is told by the calls that need it.
        """
        if session.channel is None:
            session.channel = self._clients.open(
                lambda _: None, lambda record, _: False, command=lambda command: self._send(session, command),
                address=session.address,
            )  # fmt: skip
            peer = self._clients.peer(session.channel)
            peer.version, peer.language, peer.user = session.version, session.language, session.user
        consumers = [Consumer(group, "CLUSTERING", tuple(session.subscriptions.values()), kind=POPS)]
        try:
            self._clients.heartbeat(
                session.channel, session.asker(), consumers if group else (), tuple(session.publishes)
            )
        except DejamqError as error:
            log.warning("heartbeat_refused client=%s reason=%s", session.client_id, error)

    def terminated(self, call: Call) -> None:
        """The client says that it ends. Raises FORBIDDEN as ``of``."""
        if call.client_id in self._by_id:
            self.of(call)
        self.end(call.client_id)

    def end(self, client_id: str) -> None:
        """The client has ended, by its own word or by its silence."""
        session = self._by_id.pop(client_id, None)
        if session is not None:
            self._leave(session)
            self._gone(client_id)

    def expire(self) -> None:
        """End those that were silent for too long, and streams of users who are there no more."""
        for session in tuple(self._by_id.values()):
            if session.outbox is not None and not session.hearer.is_there():
                session.outbox.end()
            if self._silent(session):
                log.info("client_silent client=%s", session.client_id)
                self.end(session.client_id)

    def _silent(self, session: Session) -> bool:
        return session.outbox is None and self._clock_ms() - session.seen_ms > self._silent_ms

    def _leave(self, session: Session) -> None:
        if session.channel is not None:
            self._clients.close(session.channel)
            session.channel = None

    def _send(self, session: Session, command: object) -> bool:
        """False for a client without a stream, and for what the protocol has no word for."""
        told = self._command_of(command) if may_hear(session.hearer, command) else None
        if told is None or session.outbox is None:
            return False
        return session.outbox.offer(told, told.ByteSize(), MOST_WAITING)


def topics_of(resources: Iterable[pb.Resource]) -> frozenset[str]:
    """The names, without empty ones; no more than are remembered."""
    return frozenset([each.name for each in resources if each.name][:MOST_TOPICS])
