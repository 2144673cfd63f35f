"""What operators and their tools ask of a broker, and change: topics, groups, offsets, clients, numbers.

Source: RocketMQ ``AdminBrokerProcessor``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.config import java_properties
from dejamq_proto.config.live_settings import LiveSettings
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting.frames import VERSION, answer
from dejamq_proto.remoting.header import LANGUAGES, OTHER, Command
from dejamq_proto.texts import MOST_32, number_of

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.doors.remoting.session import ClientSession, Handler
from dejamq_broker.doors.remoting.told import runtime_told, subscription_told
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.connections import MemberConnection
from dejamq_broker.operators.deletion import Lives
from dejamq_broker.operators.offset_moves import MoveTarget, OffsetMoves, To
from dejamq_broker.operators.queries import GroupProgress, Inspector
from dejamq_broker.operators.stats import CallRates, Stats
from dejamq_broker.tables.offsets import OffsetTable
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicConfig, TopicTable

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

PUSH = "CONSUME_PASSIVELY"
CPP = "CPP"
MOST_CHANGES = 1_000
"""Of one request that brings a list."""


class Changes:
    """Requests that change something. Owned by the event loop."""

    def __init__(
        self, site: Site, topics: TopicTable, groups: SubscriptionGroupTable, lives: Lives, moves: OffsetMoves,
        settings: LiveSettings[BrokerConfig], told: Callable[[], Awaitable[None]], kept: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        """``told`` waits until changes are on disk and name servers know the topics as they are now, ``kept`` for the
        first of these.
        """
        self._site, self._topics, self._groups = site, topics, groups
        self._lives, self._moves, self._settings, self._told, self._kept = lives, moves, settings, told, kept

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        table: tuple[tuple[requests.RequestKind[Any], Handler], ...] = (
            (requests.UPDATE_TOPICS, self._update_topics), (requests.UPDATE_GROUPS, self._update_groups),
            (requests.FORBID, self._forbid),
            (requests.UPDATE_TOPIC, self._update_topic), (requests.DELETE_TOPIC, self._delete_topic),
            (requests.UPDATE_GROUP, self._update_group), (requests.DELETE_GROUP, self._delete_group),
            (requests.RESET_OFFSETS, self._reset), (requests.CLONE_OFFSETS, self._clone),
            (requests.UPDATE_BROKER_CONFIG, self._update_settings),
        )  # fmt: skip
        return {request.code: handler for request, handler in table}

    def _check_own(self) -> None:
        """Raises SYSTEM_ERROR at a slave, as RocketMQ: it may not change its copies."""
        if not self._site.master:
            raise DejamqError("Can't modify topic or subscription group from slave broker, please execute it from "
                              "master broker.", code=Code.SYSTEM_ERROR, definite=True)  # fmt: skip

    async def _update_topic(self, _: ClientSession, command: Command) -> Command:
        """Name servers that live know it when this answers."""
        wanted = requests.UPDATE_TOPIC.read(command)
        self._check_own()
        self._update_one_topic(TopicConfig(
            wanted.topic, wanted.read_queue_nums, wanted.write_queue_nums, wanted.perm,
            topic_filter_type=wanted.topic_filter_type or "SINGLE_TAG", topic_sys_flag=wanted.topic_sys_flag or 0,
            order=wanted.order,
        ), wanted.attributes or "")  # fmt: skip
        await self._told()
        return answer(command)

    async def _update_topics(self, _: ClientSession, command: Command) -> Command:
        """As ``_update_groups``."""
        wanted = bodies.read(command.body, bodies.TopicConfigList)
        self._check_own()
        _check_count(len(wanted.topic_config_list))
        try:
            for one in wanted.topic_config_list:
                await asyncio.sleep(0)
                changes = ",".join(
                    name if name.startswith("-") else f"{name}={value}"
                    for name, value in (one.attributes or {}).items()
                )
                self._update_one_topic(TopicConfig(
                    one.topic_name, one.read_queue_nums, one.write_queue_nums, one.perm,
                    topic_filter_type=one.topic_filter_type, topic_sys_flag=one.topic_sys_flag, order=one.order,
                ), changes)  # fmt: skip
        finally:
            await self._told()
        return answer(command)

    def _update_one_topic(self, topic: TopicConfig, changes: str) -> None:
        """``changes`` are those of its attributes. Raises as ``_changed``."""
        known = self._topics.get(topic.topic_name)
        attributes = _changed(known.attributes if known else {}, changes)
        self._topics.update(msgspec.structs.replace(topic, attributes=attributes))

    async def _delete_topic(self, _: ClientSession, command: Command) -> Command:
        """Answered when no registration with the topic is under way."""
        topic = requests.DELETE_TOPIC.read(command).topic
        self._check_own()
        if await self._lives.delete_topic(topic):
            await self._told()
        return answer(command)

    async def _update_group(self, _: ClientSession, command: Command) -> Command:
        wanted = bodies.read(command.body, bodies.Group)
        self._check_own()
        self._update_one(wanted)
        await self._kept()
        return answer(command)

    async def _update_groups(self, _: ClientSession, command: Command) -> Command:
        """One after the other; those before one that is refused are changed. Others go between."""
        wanted = bodies.read(command.body, bodies.GroupConfigs)
        self._check_own()
        _check_count(len(wanted.group_config_list))
        for one in wanted.group_config_list:
            self._update_one(one)
            await asyncio.sleep(0)
        await self._kept()
        return answer(command)

    def _update_one(self, group: bodies.Group) -> None:
        changes = {name: value for name, value in msgspec.structs.asdict(group).items() if value is not None}
        self._groups.update(changes.pop("group_name"), **changes)

    async def _forbid(self, _: ClientSession, command: Command) -> Command:
        wanted = requests.FORBID.read(command)
        if wanted.readable is not None:
            self._check_own()
            self._groups.forbid(wanted.group, wanted.topic, not wanted.readable)
            await self._kept()
        readable = not self._groups.reading_forbidden(wanted.group, wanted.topic)
        told = bodies.GroupForbidden(group=wanted.group, topic=wanted.topic, readable=readable)
        return answer(command, body=bodies.write(told))

    async def _delete_group(self, _: ClientSession, command: Command) -> Command:
        wanted = requests.DELETE_GROUP.read(command)
        self._check_own()
        self._lives.delete_group(wanted.group_name, remove_offsets=wanted.clean_offset)
        await self._kept()
        return answer(command)

    def _reset(self, client: ClientSession, command: Command) -> Command:
        """A reset reaches members by their next pulls, so nothing is pushed. C++ reads the answer as a list."""
        wanted = requests.RESET_OFFSETS.read(command)
        self._check_own()
        by_offset = wanted.offset is not None and wanted.offset >= 0
        target = MoveTarget(
            To.OFFSET if by_offset else To.TIME, wanted.offset or 0 if by_offset else wanted.timestamp, wanted.is_force
        )
        queues = [wanted.queue_id] if wanted.queue_id >= 0 else []
        moves = self._moves.reset(wanted.group, wanted.topic, target, queue_ids=queues, asker=client.asker(command))
        found = [(_queue(self._site, one.at.topic, one.at.queue_id), one.after) for one in moves]
        if command.language == CPP:
            listed = [
                bodies.QueueOffset(broker_name=at.broker_name, queue_id=at.queue_id, topic=at.topic, offset=offset)
                for at, offset in found
            ]
            return answer(command, body=bodies.write(bodies.ResetOffsets(offset_table=bodies.as_list(listed))))
        table = bodies.with_object_keys(found)
        return answer(command, body=bodies.write(bodies.ResetOffsets(offset_table=table)))

    def _clone(self, client: ClientSession, command: Command) -> Command:
        """Without a topic, of each topic that the source has an offset of."""
        wanted = requests.CLONE_OFFSETS.read(command)
        self._check_own()
        for topic in [wanted.topic] if wanted.topic else self._moves.topics_of(wanted.src_group):
            self._moves.clone(wanted.src_group, wanted.dest_group, topic, client.asker(command))
        return answer(command)

    def _update_settings(self, _: ClientSession, command: Command) -> Command:
        self._settings.update(java_properties.read(command.body))
        return answer(command)


class Views:
    """Requests that only look. Owned by the event loop."""

    def __init__(
        self, site: Site, store: "MessageStore", topics: TopicTable, groups: SubscriptionGroupTable,
        offsets: OffsetTable, progress: DelayProgress, clients: Clients, moves: OffsetMoves,
        settings: LiveSettings[BrokerConfig], inspector: Inspector, stats: Stats, clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._clock_ms = clock_ms
        self._moves, self._progress = moves, progress
        self._site, self._store, self._topics, self._groups = site, store, topics, groups
        self._offsets, self._clients, self._settings = offsets, clients, settings
        self._inspector, self._stats = inspector, stats

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        table: tuple[tuple[requests.RequestKind[Any], Handler], ...] = (
            (requests.GET_TOPIC_CONFIG, self._topic), (requests.GET_ALL_TOPIC_CONFIG, self._all_topics),
            (requests.GET_ALL_CONSUMER_OFFSET, self._all_offsets),
            (requests.GET_ALL_DELAY_OFFSET, self._all_delay_offsets),
            (requests.GET_TOPIC_STATS, self._topic_stats), (requests.GET_CONSUME_STATS, self._consume_stats),
            (requests.GET_CONSUMER_CONNECTIONS, self._consumers),
            (requests.GET_PRODUCER_CONNECTIONS, self._producers),
            (requests.GET_ALL_PRODUCERS, self._all_producers), (requests.GET_RUNTIME_INFO, self._runtime),
            (requests.GET_BROKER_CONFIG, self._config), (requests.GET_ALL_GROUPS, self._all_groups),
            (requests.GET_GROUP, self._group), (requests.WHO_CONSUMES, self._who_consumes),
            (requests.TOPICS_OF_GROUP, self._topics_of), (requests.VIEW_STATS, self._statistics),
            (requests.GET_TIME_SPAN, self._time_span), (requests.GET_SYSTEM_TOPICS, self._system_topics),
            (requests.GET_CONSUMPTION, self._consumption), (requests.SUBSCRIPTION_OF_GROUP, self._subscription_of),
        )  # fmt: skip
        return {request.code: handler for request, handler in table}

    def _topic(self, _: ClientSession, command: Command) -> Command:
        topic = requests.GET_TOPIC_CONFIG.read(command).topic
        config = self._topics.get(topic)
        if config is None:
            raise DejamqError(f"No topic in this broker. topic: {topic}", code=Code.TOPIC_NOT_EXIST)
        return answer(command, body=msgspec.json.encode(config))

    def _all_topics(self, _: ClientSession, command: Command) -> Command:
        return answer(command, body=msgspec.json.encode(self._topics.content()))

    def _all_offsets(self, _: ClientSession, command: Command) -> Command:
        return answer(command, body=msgspec.json.encode(self._offsets.content()))

    def _all_delay_offsets(self, _: ClientSession, command: Command) -> Command:
        return answer(command, body=msgspec.json.encode(self._progress.content()))

    def _topic_stats(self, _: ClientSession, command: Command) -> Command:
        """With the store time of each queue's newest message, 0 for a queue without one."""
        config = self._topics.require(requests.GET_TOPIC_STATS.read(command).topic)
        found = []
        for number in range(config.write_queue_nums):
            low, high = self._ends(config.topic_name, number)
            told = bodies.TopicOffset(
                min_offset=low, max_offset=high, last_update_timestamp=self._stored_ms(config.topic_name, number, high)
            )
            found.append((_queue(self._site, config.topic_name, number), told))
        return answer(command, body=bodies.write(bodies.TopicStats(offset_table=bodies.with_object_keys(found))))

    def _consume_stats(self, _: ClientSession, command: Command) -> Command:
        """An unknown group has an empty table; a queue without a committed offset stands at its beginning."""
        asked = requests.GET_CONSUME_STATS.read(command)
        progress = self._inspector.progress(asked.consumer_group)
        wanted = [each for each in progress if asked.topic in (None, each.topic)]
        return answer(command, body=bodies.write(self._consume_stats_of(wanted)))

    def _consume_stats_of(self, progress: Iterable[GroupProgress]) -> bodies.ConsumeStats:
        found = []
        for each in progress:
            told = bodies.GroupOffset(
                broker_offset=each.max_offset, consumer_offset=each.committed,
                pull_offset=each.committed if each.pulled is None else each.pulled,
                last_timestamp=self._stored_ms(each.topic, each.queue_id, each.committed),
            )  # fmt: skip
            found.append((_queue(self._site, each.topic, each.queue_id), told))
        return bodies.ConsumeStats(offset_table=bodies.with_object_keys(found))

    async def _consumption(self, _: ClientSession, command: Command) -> Command:
        """Of each group and each of its topics. ``total_diff`` is what all have before them."""
        ordered = requests.GET_CONSUMPTION.read(command).is_order
        listed, behind, in_flight = [], 0, 0
        for group in sorted(each.group_name for each in self._groups):
            by_topic: dict[str, list[GroupProgress]] = {}
            for each in self._inspector.progress(group):
                config = self._topics.get(each.topic)
                if config is not None and (config.order or not ordered):
                    by_topic.setdefault(each.topic, []).append(each)
                    behind += max(each.max_offset - each.committed, 0)
                    in_flight += max((each.pulled or 0) - each.committed, 0)
            if by_topic:
                listed.append({group: [self._consume_stats_of(each) for each in by_topic.values()]})
            await asyncio.sleep(0)
        body = bodies.Consumption(
            broker_addr=self._site.address, consume_stats_list=listed, total_diff=behind, total_inflight_diff=in_flight
        )
        return answer(command, body=bodies.write(body))

    def _time_span(self, _: ClientSession, command: Command) -> Command:
        """A group without a committed offset stands at the beginning. Times are 0 where there is no message."""
        asked = requests.GET_TIME_SPAN.read(command)
        config = self._topics.require(asked.topic)
        committed = {each.queue_id: each.committed for each in self._inspector.progress(asked.group)
                     if each.topic == asked.topic}  # fmt: skip
        spans = []
        for number in range(config.write_queue_nums):
            low, high = self._ends(asked.topic, number)
            first_ms = self._stored_ms(asked.topic, number, low + 1) if high > low else 0
            at = max(committed.get(number, low), low)
            next_ms = self._store.stored_ms(asked.topic, number, at) if at < high else 0
            spans.append(bodies.QueueTimeSpan(
                message_queue=_queue(self._site, asked.topic, number), min_time_stamp=first_ms,
                max_time_stamp=self._stored_ms(asked.topic, number, high),
                consume_time_stamp=self._stored_ms(asked.topic, number, at) or first_ms,
                delay_time=max(self._clock_ms() - next_ms, 0) if next_ms else 0,
            ))  # fmt: skip
        return answer(command, body=bodies.write(bodies.TimeSpans(consume_time_span_set=spans)))

    def _system_topics(self, _: ClientSession, command: Command) -> Command:
        own = sorted(each.topic_name for each in self._topics if self._topics.is_own(each.topic_name))
        return answer(command, body=bodies.write(bodies.TopicList(topic_list=own)))

    def _subscription_of(self, _: ClientSession, command: Command) -> Command:
        """Without one when the group does not subscribe to the topic."""
        asked = requests.SUBSCRIPTION_OF_GROUP.read(command)
        found = self._clients.groups.subscription(asked.group, asked.topic)
        told = None if found is None else subscription_told(found)
        body = bodies.GroupSubscribed(group=asked.group, topic=asked.topic, subscription_data=told)
        return answer(command, body=bodies.write(body))

    def _consumers(self, _: ClientSession, command: Command) -> Command:
        group = requests.GET_CONSUMER_CONNECTIONS.read(command).consumer_group
        members = list(self._clients.groups.channels(group).values())
        if not members:
            raise DejamqError(f"the consumer group[{group}] not online", code=Code.CONSUMER_NOT_ONLINE)
        newest = members[-1].consumer
        subscriptions = {
            topic: subscription_told(one) for topic, one in self._clients.groups.subscriptions(group).items()
        }
        body = bodies.ConsumerConnection(
            connection_set=_connections(self._clients.connections(group), "consumer"),
            consume_from_where=f"CONSUME_FROM_{newest.consume_from or 'LAST_OFFSET'}",
            consume_type=newest.kind or PUSH,
            message_model=newest.model, subscription_table=subscriptions,
        )  # fmt: skip
        return answer(command, body=bodies.write(body))

    def _producers(self, _: ClientSession, command: Command) -> Command:
        group = requests.GET_PRODUCER_CONNECTIONS.read(command).producer_group
        found = _connections(self._clients.connections(group), "producer")
        if not found:
            raise DejamqError(f"the producer group[{group}] not exist", code=Code.SYSTEM_ERROR, definite=True)
        return answer(command, body=bodies.write(bodies.ProducerConnection(connection_set=found)))

    def _all_producers(self, _: ClientSession, command: Command) -> Command:
        found: dict[str, list[bodies.ProducerTold]] = {}
        for one in self._clients.connections():
            if one.role == "producer":
                found.setdefault(one.group, []).append(bodies.ProducerTold(
                    client_id=one.client_id, language=_language(one), version=_version(one),
                    last_update_timestamp=one.last_heartbeat_ms, remote_ip=f"/{one.address}",
                ))  # fmt: skip
        return answer(command, body=bodies.write(bodies.ProducerTableBody(data=found)))

    def _runtime(self, _: ClientSession, command: Command) -> Command:
        return answer(command, body=bodies.write(bodies.KVTable(table=runtime_told(self._inspector.runtime()))))

    def _config(self, _: ClientSession, command: Command) -> Command:
        fields = requests.SettingsVersion(version=self._site.boot_id)
        return answer(command, fields=fields, body=java_properties.write(self._settings.rocketmq_values()))

    def _all_groups(self, _: ClientSession, command: Command) -> Command:
        return answer(command, body=msgspec.json.encode(self._groups.content()))

    def _group(self, _: ClientSession, command: Command) -> Command:
        group = requests.GET_GROUP.read(command).group
        found = self._groups.content()["subscriptionGroupTable"].get(group)
        if found is None:
            raise DejamqError(f"No group in this broker. group: {group}", code=Code.SUBSCRIPTION_GROUP_NOT_EXIST)
        return answer(command, body=msgspec.json.encode(found))

    def _who_consumes(self, _: ClientSession, command: Command) -> Command:
        """Groups with a member that subscribes, and groups that have committed an offset."""
        topic = requests.WHO_CONSUMES.read(command).topic
        groups = self._clients.groups
        online = {name for name in groups.names() if groups.subscription(name, topic) is not None}
        stored = {group for name, group, _ in self._offsets.everything() if name == topic}
        return answer(command, body=bodies.write(bodies.GroupList(group_list=sorted(online | stored))))

    def _topics_of(self, _: ClientSession, command: Command) -> Command:
        group = requests.TOPICS_OF_GROUP.read(command).group
        return answer(command, body=bodies.write(bodies.TopicList(topic_list=self._moves.topics_of(group))))

    def _statistics(self, _: ClientSession, command: Command) -> Command:
        asked = requests.VIEW_STATS.read(command)
        line = next(iter(self._stats.lines(asked.stats_name, asked.stats_key)), None)
        if line is None:
            text = f"The stats <{asked.stats_name}> <{asked.stats_key}> not exist"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
        body = bodies.BrokerStats(
            stats_day=_window(line.day), stats_hour=_window(line.hour), stats_minute=_window(line.minute)
        )
        return answer(command, body=bodies.write(body))

    def _ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)

    def _stored_ms(self, topic: str, queue_id: int, before: int) -> int:
        """The store time of the message before this offset; 0 without one."""
        low = self._store.min_offset(topic, queue_id)
        return self._store.stored_ms(topic, queue_id, before - 1) if before > low else 0


def _queue(site: Site, topic: str, queue_id: int) -> bodies.MessageQueueBody:
    return bodies.MessageQueueBody(broker_name=site.broker_name, queue_id=queue_id, topic=topic)


def _connections(found: Iterable[MemberConnection], role: str) -> list[bodies.ConnectionBody]:
    return [
        bodies.ConnectionBody(
            client_addr=one.address, client_id=one.client_id, language=_language(one), version=_version(one)
        )
        for one in found
        if one.role == role
    ]


def _check_count(wanted: int) -> None:
    """Each change is a write that the event loop waits for."""
    if wanted > MOST_CHANGES:
        text = f"{wanted} changes came at once, at most {MOST_CHANGES} are made"
        raise DejamqError(text, code=Code.INVALID_PARAMETER)


def _language(one: MemberConnection) -> str:
    """A name that Java knows."""
    return one.language if one.language in LANGUAGES else LANGUAGES[OTHER]


def _version(one: MemberConnection) -> int:
    """RocketMQ's number; clients of ours have another kind of version, and can what the newest can."""
    number = number_of(one.version, MOST_32)
    return VERSION if number is None else number


def _window(window: CallRates) -> bodies.BrokerStatsItem:
    return bodies.BrokerStatsItem(avgpt=window.average, sum=window.sum, tps=window.tps)


def _changed(attributes: dict[str, Any], changes: str) -> dict[str, Any]:
    """Attributes after ``+name=value`` and ``-name``. Raises INVALID_PARAMETER for another form."""
    found = dict(attributes)
    for change in filter(None, map(str.strip, changes.split(","))):
        name, equals, value = change[1:].partition("=")
        if change[0] == "+" and equals:
            found[name] = value
        elif change[0] == "-" and not equals:
            found.pop(name, None)
        else:
            text = f"a change of attributes is +name=value or -name, not {change!r}"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
    return found
