"""The name server's state behind its door: route table, key-value settings, and the journal of both."""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.config.live_settings import Apply, LiveSettings
from dejamq_proto.journal.events import BrokerEvent, Route
from dejamq_proto.journal.writer import Journal

from dejamq_namesrv.config import NamesrvConfig
from dejamq_namesrv.kv_config import ORDER_TOPICS, KvConfig
from dejamq_namesrv.masterships import Masterships
from dejamq_namesrv.routes import RouteTable
from dejamq_namesrv.topology import (
    BrokerChange,
    BrokerIdentity,
    BrokerReplicas,
    Registered,
    RegisteredTopic,
    RouteAnswer,
    TopicTableVersion,
)


class Registry:
    """Decides with the clock it was given, and journals every broker that comes or goes and every route given.

    Owned by the event loop. One instance is all that a name server knows; two name servers share nothing.
    """

    def __init__(self, config: NamesrvConfig, kv: KvConfig, journal: Journal, now_ms: Callable[[], int]) -> None:
        self._journal, self._now_ms = journal, now_ms
        self._table = RouteTable(
            broker_timeout_ms=config.broker_timeout_ms, forget_topics=config.delete_topic_with_broker_registration
        )
        self.kv, self.masterships = kv, Masterships(config.directory, now_ms)
        self.settings = LiveSettings(config)
        self.settings.changeable |= self._changeable()

    def register(
        self, identity: BrokerIdentity, topics: Sequence[RegisteredTopic], version: TopicTableVersion, timeout_ms: int
    ) -> Registered:
        """Raises INVALID_PARAMETER for an identity that names no broker, and the errors of ``RouteTable.register``."""
        _check(identity)
        done = self._table.register(identity, topics, version, self._now_ms(), timeout_ms=timeout_ms)
        self._note(done.changes)
        return done

    def order_topics(self) -> Mapping[str, str]:
        """The answer to a broker that registers."""
        return self.kv.namespace(ORDER_TOPICS) if self.settings.config.return_order_topic_config_to_broker else {}

    def unregister(self, identity: BrokerIdentity) -> None:
        """A broker that is not there, or whose place another process has taken, leaves everything as it is."""
        self._note(self._table.unregister(identity))

    def attach(self, channel: Hashable, identity: BrokerIdentity) -> None:
        """Remember which broker holds this channel open; its end removes the broker."""
        self._table.attach(channel, identity)

    def seen(self, identity: BrokerIdentity) -> TopicTableVersion | None:
        """As ``RouteTable.seen``, by the clock this was given."""
        return self._table.seen(identity, self._now_ms())

    def beat(self, cluster: str, address: str) -> None:
        """As ``RouteTable.beat``, by the clock this was given."""
        self._table.beat(cluster, address, self._now_ms())

    def channel_closed(self, channel: Hashable) -> None:
        """The channel ended, for whatever reason: its broker leaves every route at once."""
        self._note(self._table.channel_closed(channel))

    def expire(self) -> None:
        """Remove brokers that have been silent for longer than their time-out, by the clock this was given."""
        self._note(self._table.expire(self._now_ms()))

    def set_writable(self, broker_name: str, writable: bool) -> int:
        """As ``RouteTable.set_writable``; 0 for a broker that is not known here."""
        return self._table.set_writable(broker_name, writable)

    def delete_topic(self, topic: str, broker_names: Sequence[str]) -> int:
        """As ``RouteTable.delete_topic``; 0 for a topic that is not known here."""
        return self._table.delete_topic(topic, broker_names)

    def route(
        self, topic: str, listener: str, client_boot_id: str, *, direct: bool = False, own: bool = False
    ) -> RouteAnswer:
        """Raises DejamqError with TOPIC_NOT_EXIST when no live broker has the topic. ``direct`` and ``own``: as of
        ``RouteTable.route``.
        """
        route = self._table.route(topic, self._now_ms(), listener, direct=direct, own=own)
        if self._journal.on:
            self._journal.write(_route_event(topic, client_boot_id, route))
        if route is None:
            text = f"no route for topic {topic!r}: no live broker has registered it at this name server"
            raise DejamqError(text, code=Code.TOPIC_NOT_EXIST)
        return route

    def order_conf(self, topic: str) -> str:
        """The topic's order configuration for clients (``brokerA:4;brokerB:4``); "" unless order messages are
        enabled, as RocketMQ's orderMessageEnable.
        """
        return self.kv.namespace(ORDER_TOPICS).get(topic, "") if self.settings.config.order_message_enable else ""

    def cluster_info(self, listener: str) -> list[BrokerReplicas]:
        """All live brokers, with the addresses for a client that dialled ``listener``."""
        return self._table.cluster_info(self._now_ms(), listener)

    def topics(self, cluster: str = "") -> list[str]:
        """The topics of live brokers, of this cluster or of all for '', sorted. Those that a broker deleted stay until
        they are deleted here too.
        """
        return self._table.topics(self._now_ms(), cluster)

    def _changeable(self) -> dict[str, Apply]:
        """By our name. A new time-out holds from a broker's next registration on."""

        def looked_at_each_time(value: object) -> None:
            pass

        def time_out(value: int) -> None:
            self._table.broker_timeout_ms = value

        def forget(value: bool) -> None:
            self._table.forget_topics = value

        looked_at = (
            "order_message_enable", "return_order_topic_config_to_broker", "scan_not_active_broker_interval_ms",
        )  # fmt: skip
        parts: dict[str, Apply] = {"broker_timeout_ms": time_out, "delete_topic_with_broker_registration": forget}
        return parts | dict.fromkeys(looked_at, looked_at_each_time)

    def _note(self, changes: Iterable[BrokerChange]) -> None:
        for change in changes:
            self._journal.write(_broker_event(change))


def _check(identity: BrokerIdentity) -> None:
    if not identity.broker_name or ":" not in identity.address or identity.broker_id < 0:
        text = f"a broker registers with a name, an id from 0 and host:port, not {identity.broker_name!r} "
        raise DejamqError(f"{text}{identity.broker_id} {identity.address!r}", code=Code.INVALID_PARAMETER)


def _broker_event(change: BrokerChange) -> BrokerEvent:
    broker = change.identity
    return BrokerEvent(
        broker_name=broker.broker_name,
        broker_id=broker.broker_id,
        address=broker.address,
        change=change.sign,
        reason=change.reason,
    )


def _route_event(topic: str, client_boot_id: str, route: RouteAnswer | None) -> Route:
    brokers = [f"{b.broker_name}:{i}={a}" for b in route.brokers for i, a in b.addresses.items()] if route else []
    text = route.digest_text() if route else ""
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return Route(topic=topic, client_boot_id=client_boot_id, brokers=brokers, digest=digest)
