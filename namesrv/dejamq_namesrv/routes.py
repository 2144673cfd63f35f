"""The route table: a few maps and no timers. The living brokers are decided when somebody asks, with the caller's
``now``.

Source of behaviour: RocketMQ 5.3 ``RouteInfoManager``. Nothing here is kept on disk: after a restart the brokers
register again. All methods are plain and called from one event loop. ``now_ms`` is any monotonic millisecond clock.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import MASTER_ID, PERM_WRITE

from dejamq_namesrv.topology import (
    BrokerChange,
    BrokerIdentity,
    BrokerReplicas,
    QueuesAtBroker,
    Registered,
    RegisteredTopic,
    RouteAnswer,
    TopicTableVersion,
)

BROKER_TIMEOUT_MS = 120_000


@dataclass
class Live:
    """A registered broker process. It expires when it was not heard of for ``timeout_ms``."""

    identity: BrokerIdentity
    data_version: TopicTableVersion
    heard_ms: int
    timeout_ms: int

    def alive(self, now_ms: int) -> bool:
        """Exactly at the end of its time it still counts as alive, as in RocketMQ."""
        return self.heard_ms + self.timeout_ms >= now_ms


class RouteTable:
    """Topics -> broker names -> addresses, as the brokers report them."""

    def __init__(self, *, broker_timeout_ms: int = BROKER_TIMEOUT_MS, forget_topics: bool = False) -> None:
        """``forget_topics``: topics that a broker's changed table lacks are forgotten, and not kept until somebody
        deletes them (RocketMQ: ``deleteTopicWithBrokerRegistration``).
        """
        self.broker_timeout_ms, self.forget_topics = broker_timeout_ms, forget_topics
        self._topics: dict[str, dict[str, QueuesAtBroker]] = {}
        self._brokers: dict[str, dict[int, Live]] = {}
        self._channels: dict[Hashable, BrokerIdentity] = {}

    # --- what brokers say

    def register(
        self, identity: BrokerIdentity, topics: Sequence[RegisteredTopic], version: TopicTableVersion, now_ms: int, *,
        timeout_ms: int = 0,
    ) -> Registered:  # fmt: skip
        """Note that the broker lives, and its topics.

        Topics are taken from the master only, or from the smallest live id when there is no master. Raises
        DejamqError when an unknown broker reports a single topic: that is the increment of a table never seen.

        The answer's ``changes`` are empty for the periodic repetition: only a new broker, another address and a
        role switch are news. A registration is ignored, not refused, when an id is held by an address with a
        newer state version.
        """
        replicas = self._brokers.setdefault(identity.broker_name, {})
        changes = list(self._leave_other_ids(replicas, identity))
        before = replicas.get(identity.broker_id)
        if before is not None and _outranks(before, identity, version):
            return Registered(tuple(changes), self._master_address(replicas, identity))
        if before is None and len(topics) == 1:
            self._forget_name_if_empty(identity.broker_name)
            raise DejamqError(
                f"register broker failed: {identity.broker_name} is unknown here and sent one topic only; "
                "it must register its whole topic table first",
                code=Code.SYSTEM_ERROR,
            )
        live = Live(identity, version, now_ms, timeout_ms or self.broker_timeout_ms)
        replicas[identity.broker_id] = live
        if before is None or before.identity.address != identity.address:
            changes.append(BrokerChange(identity, "+", "register"))
        if identity.broker_id == min(replicas):
            self._take_topics(live, topics, before)
        return Registered(tuple(changes), self._master_address(replicas, identity))

    def unregister(self, identity: BrokerIdentity, reason: str = "unregister") -> list[BrokerChange]:
        """Remove the broker, unless another process has taken its place meanwhile."""
        live = self._brokers.get(identity.broker_name, {}).get(identity.broker_id)
        if live is None or not _same_process(live.identity, identity):
            return []
        return [self._remove(live.identity, reason)]

    def attach(self, channel: Hashable, identity: BrokerIdentity) -> None:
        """The broker holds ``channel`` open; its newest channel is the one that counts."""
        for other in [c for c, known in self._channels.items() if _same_process(known, identity)]:
            del self._channels[other]
        self._channels[channel] = identity

    def seen(self, identity: BrokerIdentity, now_ms: int) -> TopicTableVersion | None:
        """The broker asks for the version of its topics here, which shows that it lives; None: it is not known.

        Source: RocketMQ ``DefaultRequestProcessor.queryBrokerTopicConfig``.
        """
        live = self._brokers.get(identity.broker_name, {}).get(identity.broker_id)
        if live is None or not _same_process(live.identity, identity):
            return None
        live.heard_ms = now_ms
        return live.data_version

    def beat(self, cluster: str, address: str, now_ms: int) -> None:
        """The broker at this address lives; one that is not known has to register first.

        Source: RocketMQ ``RouteInfoManager.updateBrokerInfoUpdateTimestamp``.
        """
        for live in self._all():
            if (live.identity.cluster, live.identity.address) == (cluster, address):
                live.heard_ms = now_ms

    def channel_closed(self, channel: Hashable) -> list[BrokerChange]:
        """The broker behind the channel leaves at once, as with a closed connection in RocketMQ."""
        identity = self._channels.pop(channel, None)
        return [] if identity is None else self.unregister(identity, "channel_closed")

    def expire(self, now_ms: int) -> list[BrokerChange]:
        """Remove the brokers that have been silent for longer than their time-out."""
        silent = [live.identity for live in self._all() if not live.alive(now_ms)]
        return [self._remove(identity, "expired") for identity in silent]

    def set_writable(self, broker_name: str, writable: bool) -> int:
        """Give or take the write permission in every route through the broker; how many there are.

        It holds until the broker registers a change of its topics, or comes back. Giving it opens topics that were
        for reading only as well (RocketMQ: RouteInfoManager.operateWritePermOfBroker).
        """
        by_brokers = [by_broker for by_broker in self._topics.values() if broker_name in by_broker]
        for by_broker in by_brokers:
            queues = by_broker[broker_name]
            perm = queues.perm | PERM_WRITE if writable else queues.perm & ~PERM_WRITE
            by_broker[broker_name] = replace(queues, perm=perm)
        return len(by_brokers)

    def delete_topic(self, topic: str, broker_names: Sequence[str] = ()) -> int:
        """Forget the topic's routes through these brokers, through all by default; how many there were.

        A broker that still has the topic brings it back with its next registration (RocketMQ:
        RouteInfoManager.deleteTopic).
        """
        by_broker = self._topics.get(topic, {})
        gone = [name for name in by_broker if not broker_names or name in broker_names]
        for name in gone:
            self._forget_route(topic, name)
        return len(gone)

    # --- what clients ask

    def route(
        self, topic: str, now_ms: int, listener: str = "", *, direct: bool = False, own: bool = False
    ) -> RouteAnswer | None:
        """Queues and addresses of a topic, or None when no live broker has it.

        A broker name stays in the route without its master as long as a slave lives: consumers may read there.

        ``listener`` is the host that the client dialled this name server by; brokers may advertise an address
        for it. ``direct``: as of ``BrokerIdentity.address_for``; who speaks gRPC gets no foreign brokers. ``own``:
        neither does who asks for public addresses only.
        """
        queues, brokers = [], []
        for broker_name, queue_data in sorted(self._topics.get(topic, {}).items()):
            broker = self._broker_data(broker_name, now_ms, listener, direct=direct, own=own)
            if broker is not None:
                queues.append(queue_data)
                brokers.append(broker)
        return RouteAnswer(tuple(queues), tuple(brokers)) if queues else None

    def cluster_info(self, now_ms: int, listener: str = "") -> list[BrokerReplicas]:
        """All live brokers, in order of name."""
        found = (self._broker_data(name, now_ms, listener) for name in sorted(self._brokers))
        return [broker for broker in found if broker is not None]

    def topics(self, now_ms: int, cluster: str = "") -> list[str]:
        """The topics that have a live broker, in this cluster or, for '', in any."""
        alive = {
            live.identity.broker_name
            for live in self._all()
            if live.alive(now_ms) and cluster in ("", live.identity.cluster)
        }
        return sorted(topic for topic, by_broker in self._topics.items() if alive & by_broker.keys())

    # --- how it is kept

    def _leave_other_ids(self, replicas: dict[int, Live], identity: BrokerIdentity) -> Iterator[BrokerChange]:
        """An address has one id: a slave that became master leaves its old one."""
        for broker_id, live in list(replicas.items()):
            if live.identity.address == identity.address and broker_id != identity.broker_id:
                del replicas[broker_id]
                yield BrokerChange(live.identity, "-", "register")

    def _take_topics(self, live: Live, topics: Sequence[RegisteredTopic], before: Live | None) -> None:
        """Replace queue data when the version is new; otherwise only add topics that miss this broker.

        Topics that the broker no longer has stay until they are deleted here too, as in RocketMQ, unless a setting says
        otherwise.
        """
        name = live.identity.broker_name
        changed = before is None or _version_differs(before, live)
        if changed and self.forget_topics:
            told = {config.topic for config in topics}
            for topic in [one for one, by_broker in self._topics.items() if name in by_broker and one not in told]:
                self._forget_route(topic, name)
        for config in topics:
            by_broker = self._topics.setdefault(config.topic, {})
            if changed or name not in by_broker:
                by_broker[name] = QueuesAtBroker(
                    name, config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag
                )

    def _remove(self, identity: BrokerIdentity, reason: str) -> BrokerChange:
        del self._brokers[identity.broker_name][identity.broker_id]
        self._forget_name_if_empty(identity.broker_name)
        return BrokerChange(identity, "-", reason)

    def _forget_name_if_empty(self, broker_name: str) -> None:
        """The topics of a broker name go with its last replica; while a slave lives they stay (RocketMQ:
        RouteInfoManager).
        """
        if self._brokers.get(broker_name):
            return
        self._brokers.pop(broker_name, None)
        for topic in [topic for topic, by_broker in self._topics.items() if broker_name in by_broker]:
            self._forget_route(topic, broker_name)

    def _forget_route(self, topic: str, broker_name: str) -> None:
        del self._topics[topic][broker_name]
        if not self._topics[topic]:
            del self._topics[topic]

    def _master_address(self, replicas: dict[int, Live], identity: BrokerIdentity) -> str:
        master = replicas.get(MASTER_ID)
        return master.identity.address_for("", direct=True) if master and identity.broker_id != MASTER_ID else ""

    def _broker_data(
        self, broker_name: str, now_ms: int, listener: str, *, direct: bool = False, own: bool = False
    ) -> BrokerReplicas | None:
        alive = [
            live.identity for live in self._brokers[broker_name].values()
            if live.alive(now_ms) and not ((direct or own) and live.identity.foreign)
        ]  # fmt: skip
        if not alive:
            return None
        addresses = {identity.broker_id: identity.address_for(listener, direct=direct) for identity in alive}
        return BrokerReplicas(alive[0].cluster, broker_name, dict(sorted(addresses.items())))

    def _all(self) -> Iterable[Live]:
        return [live for replicas in self._brokers.values() for live in replicas.values()]


def _same_process(known: BrokerIdentity, other: BrokerIdentity) -> bool:
    """The end of an old process's channel must not remove the one that was started in its place."""
    return (known.broker_name, known.broker_id, known.address, known.boot_id) == (
        other.broker_name, other.broker_id, other.address, other.boot_id,
    )  # fmt: skip


def _outranks(before: Live, identity: BrokerIdentity, version: TopicTableVersion) -> bool:
    """Another address holds this id with a newer state version, as an elected master does."""
    return before.identity.address != identity.address and before.data_version.state_version > version.state_version


def _version_differs(before: Live, live: Live) -> bool:
    return before.data_version != live.data_version or before.identity.address != live.identity.address
