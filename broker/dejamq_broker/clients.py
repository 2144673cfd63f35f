"""Connected clients: their heartbeats keep groups alive, and what changes is told to the journal and to the members."""

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.events import ClientClash, Member, MemberList
from dejamq_proto.journal import Journal
from dejamq_proto.names import retry_topic

from dejamq_broker.clashes import Clash, ClashBook, User
from dejamq_broker.config import BrokerConfig
from dejamq_broker.connections import Peer
from dejamq_broker.group_differences import differences
from dejamq_broker.groups import Change, Channel, Consumer, GroupTable
from dejamq_broker.offsets import Asker
from dejamq_broker.producers import ProducerTable
from dejamq_broker.subscription_groups import SubscriptionGroupTable
from dejamq_broker.topics import TopicTable

log = logging.getLogger(__name__)
Tell = Callable[[str], None]
Push = Callable[[bytes], bool]
Command = Callable[[object], bool]


class Clients:
    """Owned by the event loop. A channel is one open stream; ``tell`` and ``push`` queue a command for it (members
    changed; a reply) and never wait.

    What is written to the journal here is the audit's only knowledge of who was in a group at which moment:
    MEMBER for each coming and going, MEMBER_LIST for each list that a member was given to allocate by.

    RocketMQ: ConsumerManager with its DefaultConsumerIdsChangeListener.
    """

    def __init__(
        self, config: BrokerConfig, topics: TopicTable, subscription_groups: SubscriptionGroupTable,
        journal: Journal, clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._config, self._topics, self._subscription_groups = config, topics, subscription_groups
        self._journal, self._clock_ms = journal, clock_ms
        self.groups = GroupTable()
        self.producers = ProducerTable()
        self._clashes = ClashBook()
        self.check_filter: Callable[[str, str], object] = lambda expression, kind: None
        """Raises for a filter that pulls would be refused with."""
        self._tells: dict[Channel, Tell] = {}
        self._pushes: dict[Channel, Push] = {}
        self._commands: dict[Channel, Command] = {}
        self.on_closed: Callable[[Channel], None] = lambda channel: None
        """Called with each channel that ended."""
        self._told: dict[Channel, str] = {}
        self._peers: dict[Channel, Peer] = {}
        self._numbers = itertools.count(1)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Other settings are in force."""
        self._config = config

    def open(
        self, tell: Tell, push: Push = lambda record: True, *, command: Command = lambda command: True,
        address: str = "",
    ) -> Channel:  # fmt: skip
        """A stream began; its number is the member's identity."""
        channel = next(self._numbers)
        self._commands[channel] = command
        self._peers[channel] = Peer(address)
        self._tells[channel], self._pushes[channel] = tell, push
        return channel

    def heartbeat(
        self, channel: Channel, asker: Asker, consumers: Iterable[Consumer], producer_groups: Sequence[str] = ()
    ) -> str:
        """Make each group and its retry topic if need be, and renew or add the member. Raises for an unusable group.

        Gives what this client does differently from another member of its group, and filters that its pulls will be
        refused with (RocketMQ registers those without a word); '' when nothing.

        The retry topic has as many queues as the group wants (1 by default) and is made by the first heartbeat,
        so that a consumer can subscribe to it before anything failed (RocketMQ:
        ClientManageProcessor.heartBeat).
        """
        who = asker.client_id, producer_groups, self._clock_ms(), asker.boot_id
        if self.producers.heartbeat(channel, *who):
            for producer_group in producer_groups:
                self._look_for_clash("producer", producer_group, asker.client_id)
        told: list[str] = []
        for consumer in consumers:
            group = self._subscription_groups.require(consumer.group)
            if group.retry_queue_nums > 0:
                self._topics.ensure(retry_topic(consumer.group), group.retry_queue_nums)
            now_ms = self._clock_ms()
            self._supersede(channel, asker, consumer.group)
            change = self.groups.heartbeat(channel, asker.client_id, asker.boot_id, consumer, now_ms)
            if change is not None:
                self._apply([change])
            told += [self._difference(consumer.group, channel), self._unusable(consumer)]
        return "; ".join(filter(None, told))

    def close(self, channel: Channel) -> None:
        """The stream ended: the member leaves at once, as on RocketMQ's channel close."""
        self._tells.pop(channel, None)
        self._pushes.pop(channel, None)
        self._commands.pop(channel, None)
        self._told.pop(channel, None)
        self._peers.pop(channel, None)
        self.producers.leave(channel)
        self._apply(self.groups.leave(channel, reason="close"))
        self.on_closed(channel)

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

    def peer(self, channel: Channel) -> Peer:
        """The other end of a channel; without address and version for one that has ended."""
        return self._peers.get(channel) or Peer("")

    def unregister(self, asker: Asker, group: str) -> None:
        """The client leaves this group although its stream is still open; the others are told."""
        for channel in self.groups.channels_of(asker.client_id, asker.boot_id, group):
            self._apply(self.groups.leave(channel, [group], reason="unregister"))

    def unregister_producer(self, asker: Asker, group: str) -> None:
        """The client has no producer of this group any more."""
        self.producers.unregister(asker.client_id, group)

    def push_reply(self, client_id: str, record: bytes) -> bool:
        """Queue a reply for this client; False when it is not connected here, or does not read those that wait."""
        channel = self.producers.channel_of(client_id)
        push = None if channel is None else self._pushes.get(channel)
        return push is not None and push(record)

    async def expire(self) -> None:
        """One housekeeping round.

        Members that a stopped process or a cut network left behind are found by their silence. The others are
        not told (RocketMQ: ClientHousekeepingService); they learn of it from the member list of their next
        round, up to 20 s later.
        """
        now_ms, timeout_ms = self._clock_ms(), self._config.channel_expired_timeout_ms
        self._apply(self.groups.expire(now_ms, timeout_ms))
        for client_id in self.producers.expire(now_ms, timeout_ms):
            log.info("producer_expired client=%s", client_id)

    def members(self, group: str, asker: Asker) -> list[str]:
        """The client ids of a group. Raises SYSTEM_ERROR for one without members, as RocketMQ does.

        The list holds one client id for each channel, so an id that two processes share stands in it twice. Its
        order is the order of joining; members sort it themselves (RocketMQ:
        ConsumerManageProcessor.getConsumerListByGroup).
        """
        members = self.groups.members(group)
        if not members:
            text = f"group {group!r} has no members on this broker"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
        if self._journal.on:
            self._journal.write(MemberList(
                broker_name=self._config.broker_name, group=group, client_id=asker.client_id,
                client_boot_id=asker.boot_id, members=members, request_seq=asker.seq,
            ))  # fmt: skip
        return members

    def _supersede(self, channel: Channel, asker: Asker, group: str) -> None:
        """One start of a client has one channel: an older one is half open, and its member would hold queues that
        nobody reads until it expires. RocketMQ cannot tell it from a second process with the same client id.
        """
        older = self.groups.channels_of(asker.client_id, asker.boot_id, group) if asker.boot_id else []
        for each in older:
            if each != channel:
                self._apply(self.groups.leave(each, [group], reason="reconnect"))

    def _apply(self, changes: Iterable[Change]) -> None:
        """Tell the journal, then the members. The journal stands first because what members do next is judged by it."""
        for change in changes:
            if change.sign:
                self._tell_journal(change)
                self._look_for_clash("consumer", change.group, change.client_id)
            if self._notifies(change.group):
                for channel in change.notify:
                    tell = self._tells.get(channel)
                    if tell is not None:
                        tell(change.group)

    def clashes(self) -> list[Clash]:
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
        seen = [User(channel, boot_id, self.peer(channel).address) for channel, boot_id in users]
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
                self.check_filter(one.expression, one.expression_type)
            except DejamqError as error:
                return f"topic {one.topic!r} of group {consumer.group!r}: {error}"
        return ""

    def _notifies(self, group: str) -> bool:
        """Both switches have to be on; a group that the table does not know has RocketMQ's default, on."""
        found = self._subscription_groups.get(group)
        enabled = found is None or found.notify_consumer_ids_changed_enable
        return enabled and self._config.notify_consumer_ids_changed_enable

    def _tell_journal(self, change: Change) -> None:
        self._journal.write(Member(
            broker_name=self._config.broker_name, group=change.group, client_id=change.client_id,
            client_boot_id=change.boot_id, change=change.sign, reason=change.reason,
        ))  # fmt: skip
