"""The clients that are connected to this broker, as operators see them: one line for each client in each group."""

from collections.abc import Callable

import msgspec

from dejamq_broker.members.groups import Channel, GroupTable
from dejamq_broker.members.producers import ProducerTable


class ChannelPeer(msgspec.Struct):
    """The other end of a channel: its address, and the version and language of its library by its heartbeat."""

    address: str
    version: str = ""
    language: str = ""


class MemberConnection(msgspec.Struct, frozen=True):
    """``role`` is ``producer`` or ``consumer``; the time of the last heartbeat is the broker's wall clock.

    ``boot_id`` names one start of the client; ``subscriptions`` are a consumer's, each a topic and its expression.
    """

    role: str
    group: str
    client_id: str
    address: str
    version: str
    last_heartbeat_ms: int
    language: str = ""
    boot_id: str = ""
    subscriptions: list[str] = []
    message_model: str = ""


def connections_of(
    producers: ProducerTable, groups: GroupTable, peer_of: Callable[[Channel], ChannelPeer], group: str
) -> list[MemberConnection]:
    """Of this group, or of all for '', by group; producers first.

    RocketMQ: AdminBrokerProcessor, GET_CONSUMER_CONNECTION_LIST and GET_PRODUCER_CONNECTION_LIST.
    """
    found = []
    for channel, producer in producers:
        peer = peer_of(channel)
        for name in producer.groups:
            line = MemberConnection(
                "producer", name, producer.client_id, peer.address, peer.version, producer.seen_ms, peer.language,
                producer.boot_id,
            )  # fmt: skip
            found.append(line)
    for name in groups.names():
        for channel, member in groups.channels(name).items():
            peer = peer_of(channel)
            line = MemberConnection(
                "consumer", name, member.client_id, peer.address, peer.version, member.seen_ms, peer.language,
                member.boot_id, [f"{one.topic} {one.expression}" for one in member.consumer.subscriptions],
                member.consumer.model,
            )  # fmt: skip
            found.append(line)
    wanted = [one for one in found if group in ("", one.group)]
    return sorted(wanted, key=lambda one: (one.group, one.role != "producer", one.client_id))


def peer_text(peer: str) -> str:
    """gRPC's name of the other end, ``ipv4:127.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``, as ``host:port``."""
    kind, _, rest = peer.partition(":")
    return rest.replace("%5B", "[").replace("%5D", "]") if kind in ("ipv4", "ipv6") else peer
