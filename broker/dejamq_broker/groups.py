"""Who consumes in which group: pure tables, keyed by channel as RocketMQ's ConsumerManager.

Two processes with one client id are two members with the same name: allocation by index then gives both the same
queues. That is RocketMQ's behaviour, so nothing is refused here; ``clashes`` makes it visible.
"""

from collections.abc import Iterable

import msgspec

Channel = int


class Subscription(msgspec.Struct, frozen=True):
    """What a group wants of one topic; the one with the larger ``version`` (ms) wins."""

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"
    version: int = 0


class Consumer(msgspec.Struct, frozen=True):
    """One consumer of a heartbeat.

    ``handlers`` are ``in order`` or ``concurrent``; '' for a client that did not tell, as for the three after it.
    ``handover`` is ``graceful`` or ``immediate``.
    """

    group: str
    model: str = "CLUSTERING"
    subscriptions: tuple[Subscription, ...] = ()
    handlers: str = ""
    consume_from: str = ""
    allocation: str = ""
    handover: str = ""


class Member(msgspec.Struct):
    """One client in one group, by its channel. ``seen_ms``: its last heartbeat, ``consumer``: what that said."""

    client_id: str
    boot_id: str
    seen_ms: int
    consumer: Consumer


class Change(msgspec.Struct, frozen=True):
    """One member came or went, or only the subscription changed (``sign`` ''); ``notify`` are the channels to tell."""

    group: str
    client_id: str
    boot_id: str
    sign: str
    reason: str
    notify: tuple[Channel, ...]


class _Group(msgspec.Struct):
    members: dict[Channel, Member] = {}
    subscriptions: dict[str, Subscription] = {}
    broadcasting: bool = False


class GroupTable:
    """All groups with members. Owned by the event loop; nothing here waits."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def members(self, group: str) -> list[str]:
        """Client ids in the order they joined; one id twice when two processes share it."""
        found = self._groups.get(group)
        return [member.client_id for member in found.members.values()] if found else []

    def channels(self, group: str) -> dict[Channel, Member]:
        """The group's members by channel, in the order they joined."""
        found = self._groups.get(group)
        return dict(found.members) if found else {}

    def clashes(self, group: str) -> list[str]:
        """Client ids that several members share, sorted."""
        ids = self.members(group)
        return sorted({client_id for client_id in ids if ids.count(client_id) > 1})

    def member(self, group: str, channel: Channel) -> tuple[Member, list[Member]] | None:
        """The member of this channel, and the others; None when it is not in the group."""
        found = self._groups.get(group)
        if found is None or channel not in found.members:
            return None
        return found.members[channel], [each for number, each in found.members.items() if number != channel]

    def subscriptions(self, group: str) -> dict[str, Subscription]:
        """What the group's newest heartbeats want, by topic."""
        found = self._groups.get(group)
        return dict(found.subscriptions) if found else {}

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What the group wants of one topic; None without members, or when they do not subscribe to it."""
        found = self._groups.get(group)
        return found.subscriptions.get(topic) if found else None

    def broadcasting(self, group: str) -> bool:
        """Whether the newest heartbeat of the group said so."""
        found = self._groups.get(group)
        return found is not None and found.broadcasting

    def names(self) -> list[str]:
        """Groups that have members."""
        return list(self._groups)

    def heartbeat(
        self, channel: Channel, client_id: str, boot_id: str, consumer: Consumer, now_ms: int
    ) -> Change | None:
        """Take one consumer's heartbeat; the change it makes, if any.

        A change of subscription is told to the members too, since a topic that came has queues to share
        (RocketMQ: ConsumerManager.registerConsumer).
        """
        group = self._groups.setdefault(consumer.group, _Group())
        member = group.members.get(channel)
        if member is None:
            group.members[channel] = Member(client_id, boot_id, now_ms, consumer)
        else:
            member.seen_ms, member.consumer = now_ms, consumer
        group.broadcasting = consumer.model == "BROADCASTING"
        resubscribed = _subscribe(group, consumer.subscriptions)
        if member is not None and not resubscribed:
            return None
        sign = "+" if member is None else ""
        return Change(consumer.group, client_id, boot_id, sign, "heartbeat", _to_notify(group))

    def leave(self, channel: Channel, groups: Iterable[str] | None = None, *, reason: str) -> list[Change]:
        """Remove the channel from these groups (all by default): it closed or unregistered. The others are told.

        A group without members is forgotten with its subscriptions: the next member's heartbeat brings them
        again.
        """
        wanted = self.names() if groups is None else groups
        changes = (self._remove(name, channel, reason) for name in list(wanted))
        return [change for change in changes if change is not None]

    def expire(self, now_ms: int, timeout_ms: float) -> list[Change]:
        """Remove members silent for longer. Nobody is told: RocketMQ's scan does not either (ClientHousekeeping)."""
        silent = [
            (name, channel)
            for name, group in self._groups.items()
            for channel, member in group.members.items()
            if now_ms - member.seen_ms > timeout_ms
        ]
        changes = (self._remove(name, channel, "expire") for name, channel in silent)
        return [msgspec.structs.replace(change, notify=()) for change in changes if change is not None]

    def channels_of(self, client_id: str, boot_id: str, group: str) -> list[Channel]:
        """The channels by which this start of a client is in the group.

        An unregister names the client and not its stream; ``boot_id`` keeps it from removing another process
        that was started with the same client id.
        """
        found = self._groups.get(group)
        members = found.members.items() if found else ()
        return [channel for channel, member in members if (member.client_id, member.boot_id) == (client_id, boot_id)]

    def _remove(self, name: str, channel: Channel, reason: str) -> Change | None:
        group = self._groups.get(name)
        member = group.members.pop(channel, None) if group else None
        if group is None or member is None:
            return None
        if not group.members:
            del self._groups[name]
        return Change(name, member.client_id, member.boot_id, "-", reason, _to_notify(group))


def _to_notify(group: _Group) -> tuple[Channel, ...]:
    """Members of a broadcasting group share nothing, so a change is no news to them."""
    return () if group.broadcasting else tuple(group.members)


def _subscribe(group: _Group, subscriptions: tuple[Subscription, ...]) -> bool:
    """The newest heartbeat decides the group's topics. True when a topic came or went.

    A topic's expression is replaced only by a newer ``version``. Members of one group that subscribe to
    different topics therefore take each other's away with every heartbeat: RocketMQ's behaviour
    (ConsumerGroupInfo.updateSubscription).
    """
    before = set(group.subscriptions)
    for new in subscriptions:
        old = group.subscriptions.get(new.topic)
        if old is None or new.version > old.version:
            group.subscriptions[new.topic] = new
    topics = {subscription.topic for subscription in subscriptions}
    for topic in before - topics:
        del group.subscriptions[topic]
    return before != topics
