"""The members of each group: pure tables, keyed by channel as RocketMQ's ConsumerManager.

Two processes with one client id are two members with the same name: allocation by index then gives both the same
queues. That is RocketMQ's behaviour, so nothing is refused here; ``clashes`` makes it visible.
"""

from collections.abc import Iterable, Iterator

import msgspec
from dejamq_proto.names import retry_topic

Channel = int
GRACEFUL = "graceful"
POPS = "CONSUME_POP"


class GroupSubscription(msgspec.Struct, frozen=True):
    """A group's subscription to one topic; the one with the larger ``version`` (ms) wins."""

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"
    version: int = 0


class Consumer(msgspec.Struct, frozen=True):
    """One consumer of a heartbeat.

    ``handlers`` are ``in order`` or ``concurrent``; '' for a client that did not tell, as for the three after it.
    ``handover`` is ``graceful`` or ``immediate``. ``kind`` is RocketMQ's name of how it gets messages.
    """

    group: str
    model: str = "CLUSTERING"
    subscriptions: tuple[GroupSubscription, ...] = ()
    handlers: str = ""
    consume_from: str = ""
    allocation: str = ""
    handover: str = ""
    kind: str = ""

    @property
    def shares(self) -> bool:
        """Whether it takes a share of the queues. One that pops takes from any queue, so others leave it none.

        A proxy of RocketMQ keeps such clients to itself; the broker's members do not see them either.
        """
        return self.kind != POPS


class GroupMember(msgspec.Struct):
    """One client in one group, by its channel. ``seen_ms``: its last heartbeat, ``consumer``: the content of that.

    ``ways``: what has to be alike in one group; one object for all members that do it alike.
    """

    client_id: str
    boot_id: str
    seen_ms: int
    consumer: Consumer
    ways: tuple[str, ...] = ()


class MemberChange(msgspec.Struct, frozen=True):
    """One member came or went, or only the subscription changed (``sign`` ''); ``notify`` are the channels to tell."""

    group: str
    client_id: str
    boot_id: str
    sign: str
    reason: str
    notify: tuple[Channel, ...]


class _Group(msgspec.Struct):
    members: dict[Channel, GroupMember] = {}
    subscriptions: dict[str, GroupSubscription] = {}
    broadcasting: bool = False


class GroupTable:
    """All groups with members. Owned by the event loop; nothing here waits."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._joined: dict[Channel, dict[str, None]] = {}
        """The groups of each channel, in the order in which it joined them."""

    def members(self, group: str) -> list[str]:
        """Client ids in the order they joined; one id twice when two processes share it."""
        found = self._groups.get(group)
        return [member.client_id for member in found.members.values()] if found else []

    def sharing(self, group: str) -> list[str]:
        """As ``members``, without those that pop."""
        found = self._groups.get(group)
        return [each.client_id for each in found.members.values() if each.consumer.shares] if found else []

    def channels(self, group: str) -> dict[Channel, GroupMember]:
        """The group's members by channel, in the order they joined."""
        found = self._groups.get(group)
        return dict(found.members) if found else {}

    def clashes(self, group: str) -> list[str]:
        """Client ids that several members share, sorted."""
        ids = self.members(group)
        return sorted({client_id for client_id in ids if ids.count(client_id) > 1})

    def member(self, group: str, channel: Channel) -> tuple[GroupMember, list[GroupMember]] | None:
        """The member of this channel, and the others; None when it is not in the group."""
        found = self._groups.get(group)
        if found is None or channel not in found.members:
            return None
        return found.members[channel], [each for number, each in found.members.items() if number != channel]

    def handover_off(self, group: str) -> str:
        """The first member that claims no queues, in a group with others that do; '' without one.

        It waits for nobody and nobody can wait for it, so hand-over is graceful for nobody in the group. Members that
        pop hold no queue and need none handed over.
        """
        found = self._groups.get(group)
        sharing = [member for member in found.members.values() if member.consumer.shares] if found else []
        ways = {member.client_id: member.consumer.handover for member in sharing}
        if GRACEFUL not in ways.values():
            return ""
        return next((client_id for client_id, way in ways.items() if way != GRACEFUL), "")

    def subscriptions(self, group: str) -> dict[str, GroupSubscription]:
        """The subscriptions of the group's newest heartbeats, by topic."""
        found = self._groups.get(group)
        return dict(found.subscriptions) if found else {}

    def subscription(self, group: str, topic: str) -> GroupSubscription | None:
        """The group's subscription to one topic; None without members, or when they do not subscribe to it."""
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
    ) -> MemberChange | None:
        """Take one consumer's heartbeat; the change it makes, if any.

        Members are notified of a change of subscription too, since a topic that came has queues to share (RocketMQ:
        ConsumerManager.registerConsumer). A member that pops changes nothing for those that share the queues.
        """
        group = self._groups.setdefault(consumer.group, _Group())
        member = group.members.get(channel)
        if member is None:
            consumer, ways = _shared(consumer, group)
            group.members[channel] = GroupMember(client_id, boot_id, now_ms, consumer, ways)
            self._joined.setdefault(channel, {})[consumer.group] = None
        else:
            member.seen_ms = now_ms
            if member.consumer != consumer:
                member.consumer, member.ways = _shared(consumer, group)
        resubscribed = False
        if consumer.shares or not any(each.consumer.shares for each in group.members.values()):
            group.broadcasting = consumer.model == "BROADCASTING"
            resubscribed = _subscribe(group, consumer.subscriptions)
        if member is not None and not resubscribed:
            return None
        sign = "+" if member is None else ""
        return MemberChange(consumer.group, client_id, boot_id, sign, "heartbeat", _to_notify(group, consumer))

    def leave(self, channel: Channel, groups: Iterable[str] | None = None, *, reason: str) -> list[MemberChange]:
        """Remove the channel from these groups (all by default): it closed or unregistered. The others are notified.

        A group without members is forgotten with its subscriptions: the next member's heartbeat brings them
        again.
        """
        wanted = self._joined.get(channel, ()) if groups is None else groups
        changes = (self._remove(name, channel, reason) for name in list(wanted))
        return [change for change in changes if change is not None]

    def expire(self, now_ms: int, timeout_ms: float) -> list[MemberChange]:
        """Remove members silent for longer. Nobody is notified, as in RocketMQ's scan (ClientHousekeeping)."""
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

    def _remove(self, name: str, channel: Channel, reason: str) -> MemberChange | None:
        group = self._groups.get(name)
        member = group.members.pop(channel, None) if group else None
        if group is None or member is None:
            return None
        if not group.members:
            del self._groups[name]
        joined = self._joined[channel]
        del joined[name]
        if not joined:
            del self._joined[channel]
        return MemberChange(name, member.client_id, member.boot_id, "-", reason, _to_notify(group, member.consumer))


def _shared(consumer: Consumer, group: _Group) -> tuple[Consumer, tuple[str, ...]]:
    """The consumer and its ways: the objects of the group's first member, where that has told the same.

    So a thousand members need little memory, and are compared at a glance.
    """
    ways, first = _ways(consumer), next(iter(group.members.values()), None)
    if first is None:
        return consumer, ways
    return first.consumer if first.consumer == consumer else consumer, first.ways if first.ways == ways else ways


def _to_notify(group: _Group, changed: Consumer) -> tuple[Channel, ...]:
    """Members of a broadcasting group, and those that pop, share nothing, so a change is no news to the others."""
    return tuple(group.members) if changed.shares and not group.broadcasting else ()


def _subscribe(group: _Group, subscriptions: tuple[GroupSubscription, ...]) -> bool:
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


# The settings that must be alike in one group and are not. Pure. RocketMQ checks none of it: messages are then lost,
# repeated or handled out of order without a word (cause R3). Nothing is refused here either, because an upgrade changes
# members one after the other; it is said, with both sides.


def differences(one: GroupMember, other: GroupMember) -> Iterator[str]:
    """One sentence for each thing that these two do differently; a value that a client did not send is no
    difference.
    """
    if one.ways is other.ways:
        return
    for what, mine, theirs in zip(WAYS, one.ways, other.ways, strict=True):
        if mine and theirs and mine != theirs:
            yield f"{one.client_id} has {what} {mine}, {other.client_id} has {theirs}"


WAYS = ("the model", "the subscriptions", "the handlers", "the start", "the allocation", "the hand-over")


def _ways(consumer: Consumer) -> tuple[str, ...]:
    """The retry topic is left out: some kinds of clients subscribe to it, and brokers give it to others."""
    subscriptions = sorted(
        (each for each in consumer.subscriptions if each.topic != retry_topic(consumer.group)),
        key=lambda each: each.topic,
    )  # fmt: skip
    wanted = ", ".join(f"{each.topic} ({each.expression_type} {each.expression})" for each in subscriptions)
    return (
        consumer.model, wanted, consumer.handlers, consumer.consume_from, consumer.allocation, consumer.handover,
    )  # fmt: skip
