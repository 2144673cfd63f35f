"""Connected clients: their heartbeats keep groups alive, and changes are reported to the journal and to the members."""

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence

from dejamq_proto.access.admission import Hearer
from dejamq_proto.access.refusals import log_refusal
from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.journal.events import ClientClash, MemberEvent, MemberList
from dejamq_proto.journal.writer import Journal
from dejamq_proto.names import retry_topic
from dejamq_proto.signals import Signal

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.members.clashes import ClashBook, ClientIdUser, SharedClientId
from dejamq_broker.members.connections import ChannelPeer, MemberConnection, connections_of
from dejamq_broker.members.groups import Channel, Consumer, GroupTable, MemberChange, differences
from dejamq_broker.members.producers import ProducerTable
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable

log = logging.getLogger(__name__)
MOST_NEW_GROUPS = 256
"""That one heartbeat makes: a file is written for them, and the event loop waits for the disk."""
Tell = Callable[[str], None]
Push = Callable[[bytes, str], bool]
Command = Callable[[object], bool]


class Clients:
    """Owned by the event loop. A channel is one open stream; ``tell`` and ``push`` queue a command for it (members
    changed; a reply) and never wait.

    The lines that are written to the journal here are the audit's only knowledge of who was in a group at which moment.
    MEMBER is for each coming and going, MEMBER_LIST for each list that a member was given to allocate by.

    RocketMQ: ConsumerManager with its DefaultConsumerIdsChangeListener.
    """

    def __init__(
        self, config: BrokerConfig, topics: TopicTable, subscription_groups: SubscriptionGroupTable,
        journal: Journal, clock_ms: Callable[[], int], check_filter: Callable[[str, str], object],
    ) -> None:  # fmt: skip
        """``check_filter`` raises for a filter that pulls would be refused with."""
        self._check_filter = check_filter
        self._config, self._topics, self._subscription_groups = config, topics, subscription_groups
        self._journal, self._clock_ms = journal, clock_ms
        self.groups = GroupTable()
        self.producers = ProducerTable()
        self._clashes = ClashBook()
        self._tells: dict[Channel, Tell] = {}
        self._pushes: dict[Channel, Push] = {}
        self._commands: dict[Channel, Command] = {}
        self.on_closed = Signal[[Channel]]()
        """Told each channel that ended."""
        self._told: dict[Channel, str] = {}
        self._handover_off: dict[str, str] = {}
        """The groups whose hand-over is not graceful although some want it, and for the sake of which member."""
        self._peers: dict[Channel, ChannelPeer] = {}
        self._owners: dict[str, tuple[str, set[Channel]]] = {}
        """Whose client has this id, and its open channels. Only with access control."""
        self._claims: dict[Channel, set[str]] = {}
        self._numbers = itertools.count(1)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Other settings are in force."""
        self._config = config

    def open(
        self, tell: Tell, push: Push = lambda record, group: True, *, command: Command = lambda command: True,
        address: str = "",
    ) -> Channel:  # fmt: skip
        """A stream began; its number is the member's identity."""
        channel = next(self._numbers)
        self._commands[channel] = command
        self._peers[channel] = ChannelPeer(address)
        self._tells[channel], self._pushes[channel] = tell, push
        return channel

    def heartbeat(
        self, channel: Channel, asker: Asker, consumers: Iterable[Consumer], producer_groups: Sequence[str] = ()
    ) -> str:
        """Make each group and its retry topic if need be, and renew or add the member.

        An unusable group ends nothing for the others: when they are done, the first error is raised. Gives two things:
        differences between this client and another member of its group, and filters with which its pulls will be
        refused. RocketMQ registers such filters without a word. '' without either.

        Raises NO_PERMISSION for the id of another user's client: replies and questions would go to the wrong one.

        The retry topic has as many queues as the group wants (1 by default). The first heartbeat makes it, so that a
        consumer can subscribe to it before anything failed (RocketMQ: ClientManageProcessor.heartBeat).
        """
        self._claim(channel, asker.client_id)
        who = asker.client_id, producer_groups, self._clock_ms(), asker.boot_id
        if self.producers.heartbeat(channel, *who):
            for producer_group in producer_groups:
                self._look_for_clash("producer", producer_group, asker.client_id)
        told: list[str] = []
        usable, errors = self._usable(list(consumers))
        for consumer in usable:
            now_ms = self._clock_ms()
            self._supersede(channel, asker, consumer.group)
            change = self.groups.heartbeat(channel, asker.client_id, asker.boot_id, consumer, now_ms)
            if change is not None:
                self._apply([change])
            told += [self._difference(consumer.group, channel), self._unusable(consumer)]
        if errors:
            raise errors[0]
        return "; ".join(filter(None, told))

    def _claim(self, channel: Channel, client_id: str) -> None:
        user = self._peers[channel].user if channel in self._peers else ""
        if not user:
            return
        owner, channels = self._owners.setdefault(client_id, (user, set()))
        if owner != user:
            raise _of_another(user, self._peers[channel].address, "heartbeat", client_id)
        channels.add(channel)
        self._claims.setdefault(channel, set()).add(client_id)

    def close(self, channel: Channel) -> None:
        """The stream ended: the member leaves at once, as on RocketMQ's channel close."""
        self._tells.pop(channel, None)
        self._pushes.pop(channel, None)
        self._commands.pop(channel, None)
        self._told.pop(channel, None)
        self._peers.pop(channel, None)
        for client_id in self._claims.pop(channel, ()):
            channels = self._owners[client_id][1]
            channels.discard(channel)
            if not channels:
                del self._owners[client_id]
        self.producers.leave(channel)
        self._apply(self.groups.leave(channel, reason="close"))
        self.on_closed.tell(channel)

    def channel_of(self, group: str, client_id: str) -> Channel | None:
        """The newest channel of this client in this group, as a consumer or else as a producer; None without one."""
        members = self.groups.channels(group).items()
        consumers = [channel for channel, member in members if member.client_id == client_id]
        producers = [one for one, it in self.producers if it.client_id == client_id and group in it.groups]
        return max(consumers or producers, default=None)

    def command(self, channel: Channel, command: object) -> bool:
        """Queue a command for the client behind this channel; False for one that has ended, or that reads nothing."""
        send = self._commands.get(channel)
        return send is not None and send(command)

    def peer(self, channel: Channel) -> ChannelPeer:
        """The other end of a channel; without address and version for one that has ended."""
        return self._peers.get(channel) or ChannelPeer("")

    def connections(self, group: str = "") -> list[MemberConnection]:
        """The connected clients, of this group or of all for '', as operators see them."""
        return connections_of(self.producers, self.groups, self.peer, group)

    def unregister(self, asker: Asker, group: str) -> None:
        """The client leaves this group although its stream is still open; the others are notified."""
        for channel in self.groups.channels_of(asker.client_id, asker.boot_id, group):
            self._apply(self.groups.leave(channel, [group], reason="unregister"))

    def unregister_producer(self, asker: Asker, group: str, who: Hearer) -> None:
        """This start of the client has no producer of the group any more. Those of its other starts stay.

        Raises NO_PERMISSION for another user's client: nobody has a right to a group of producers.
        """
        owner, _ = self._owners.get(asker.client_id, ("", set()))
        if owner not in ("", who.name) and not who.trusted:
            raise _of_another(who.name, "" if who.who is None else who.who.address, "unregister", asker.client_id)
        self.producers.unregister(asker.client_id, asker.boot_id, group)

    def push_reply(self, client_id: str, record: bytes, group: str) -> bool:
        """Queue a reply of this producer group for this client.

        False when it is not connected here, or does not read those that wait.
        """
        channel = self.producers.channel_of(client_id)
        push = None if channel is None else self._pushes.get(channel)
        return push is not None and push(record, group)

    async def expire(self) -> None:
        """One housekeeping round.

        Members that a stopped process or a cut network left behind are found by their silence. The others are not
        notified (RocketMQ: ClientHousekeepingService). They learn of it from the member list of their next round, up to
        20 s later.
        """
        now_ms, timeout_ms = self._clock_ms(), self._config.channel_expired_timeout_ms
        self._apply(self.groups.expire(now_ms, timeout_ms))
        for client_id in self.producers.expire(now_ms, timeout_ms):
            log.info("producer_expired client=%s", client_id)

    def members(self, group: str, asker: Asker) -> list[str]:
        """The client ids of a group. Raises SYSTEM_ERROR for one without members, as RocketMQ does.

        The list holds one client id for each channel, so an id that two processes share stands in it twice. Its
        order is the order of joining; members sort it themselves (RocketMQ:
        ConsumerManageProcessor.getConsumerListByGroup). Those that pop are left out, as nobody would read their queues.
        """
        members = self.groups.sharing(group)
        if not members:
            text = f"group {group!r} has no members on this broker"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
        if self._journal.on:
            self._journal.write(MemberList(
                broker_name=self._config.broker_name, group=group, client_id=asker.client_id,
                client_boot_id=asker.boot_id, members=members, request_seq=asker.seq,
            ))  # fmt: skip
        return members

    def _usable(self, consumers: list[Consumer]) -> tuple[list[Consumer], list[DejamqError]]:
        """Those whose group and retry topic are there, made in one write each, and the errors of the others."""
        found, errors = self._subscription_groups.require_each((each.group for each in consumers), MOST_NEW_GROUPS)
        queues = {retry_topic(name): one.retry_queue_nums for name, one in found.items() if one.retry_queue_nums > 0}
        try:
            self._topics.ensure_each(queues)
        except DejamqError as error:
            errors.append(error)
        ready = {name for name in found if (topic := retry_topic(name)) not in queues or self._topics.get(topic)}
        return [each for each in consumers if each.group in ready], errors

    def _supersede(self, channel: Channel, asker: Asker, group: str) -> None:
        """One start of a client has one channel: an older one is half open, and its member would hold queues that
        nobody reads until it expires. RocketMQ cannot tell it from a second process with the same client id.
        """
        older = self.groups.channels_of(asker.client_id, asker.boot_id, group) if asker.boot_id else []
        for each in older:
            if each != channel:
                self._apply(self.groups.leave(each, [group], reason="reconnect"))

    def _apply(self, changes: Iterable[MemberChange]) -> None:
        """Tell the journal, then the members.

        The journal stands first because members' next actions are judged by it.
        """
        for change in changes:
            if change.sign:
                self._tell_journal(change)
                self._look_for_clash("consumer", change.group, change.client_id)
            self._look_at_handover(change.group)
            if self._notifies(change.group):
                for channel in change.notify:
                    tell = self._tells.get(channel)
                    if tell is not None:
                        tell(change.group)

    def _look_at_handover(self, group: str) -> None:
        """Said when it begins and when it ends."""
        member = self.groups.handover_off(group)
        before = self._handover_off.pop(group, "")
        if member:
            self._handover_off[group] = member
        if member and not before:
            text = "handover_off group=%s member=%s: it claims no queues, so hand-over is graceful for nobody"
            log.warning(text, group, member)
        elif before and not member:
            log.info("handover_on group=%s: %s has left, or claims queues now", group, before)

    def clashes(self) -> list[SharedClientId]:
        """Client ids that several processes used at a time since this broker started, and whether they still do."""
        for one in self._clashes:
            self._look_for_clash(one.role, one.group, one.client_id)
        return list(self._clashes)

    def _look_for_clash(self, role: str, group: str, client_id: str) -> None:
        """Whether others use this client id too; said once, when it begins."""
        if role == "consumer":
            members = self.groups.channels(group).items()
            users = [(channel, one.boot_id) for channel, one in members if one.client_id == client_id]
        else:
            users = self.producers.users(group, client_id)
        seen = [ClientIdUser(channel, boot_id, self.peer(channel).address) for channel, boot_id in users]
        clash = self._clashes.seen(role, group, client_id, seen, self._clock_ms())
        if clash is not None:
            text = "client_id_clash group=%s client=%s role=%s addresses=%s: give each its own client_id"
            log.warning(text, group, client_id, role, ",".join(clash.addresses))
            if self._journal.on:
                self._journal.write(ClientClash(
                    broker_name=self._config.broker_name, group=group, client_id=client_id, member_role=role,
                    boot_ids=clash.boot_ids, addresses=clash.addresses,
                ))  # fmt: skip

    def _difference(self, group: str, channel: Channel) -> str:
        """The first member that does things differently is enough; logged when it is news."""
        found = self.groups.member(group, channel)
        member, others = found if found is not None else (None, [])
        text = next((text for other in others if member for text in differences(member, other)), "")
        if text:
            text = f"members of group {group!r} differ: {text}"
            if self._told.get(channel) != text:
                log.warning("group_differs %s", text)
        self._told[channel] = text
        return text

    def _unusable(self, consumer: Consumer) -> str:
        for one in consumer.subscriptions:
            try:
                self._check_filter(one.expression, one.expression_type)
            except DejamqError as error:
                return f"topic {one.topic!r} of group {consumer.group!r}: {error}"
        return ""

    def _notifies(self, group: str) -> bool:
        """Both switches have to be on; a group that the table does not know has RocketMQ's default, on."""
        found = self._subscription_groups.get(group)
        enabled = found is None or found.notify_consumer_ids_changed_enable
        return enabled and self._config.notify_consumer_ids_changed_enable

    def _tell_journal(self, change: MemberChange) -> None:
        self._journal.write(MemberEvent(
            broker_name=self._config.broker_name, group=change.group, client_id=change.client_id,
            client_boot_id=change.boot_id, change=change.sign, reason=change.reason,
        ))  # fmt: skip


def log_foreign_id(user: str, address: str, request: str) -> None:
    """The line about somebody who came with the client id of another user's client."""
    log_refusal(log, user, address, request, "the client id is that of another user's client")


def _of_another(user: str, address: str, request: str, client_id: str) -> PermissionDenied:
    log_foreign_id(user, address, request)
    return PermissionDenied(f"client id {client_id!r:.80} is that of another user's client", definite=True)
