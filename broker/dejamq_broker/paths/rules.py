"""The rules of a pull: which client may pull from which topic, and which messages it wants.

Source: RocketMQ ``PullMessageProcessor``, the part before it reads.
"""

from collections.abc import Mapping

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, PermissionDenied

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.filters.chosen import Filter, FilterFactory, Wanted
from dejamq_broker.members.groups import GroupSubscription, GroupTable
from dejamq_broker.store.files.config import QUEUE_ENTRY_SIZE
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.subscription_groups import SubscriptionGroup, SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable, check_readable


class PullQuery(msgspec.Struct, kw_only=True):
    """One request. ``read_offset`` runs ahead of ``queue_offset`` while only filtered messages arrive.

    Offsets are queue offsets. ``suspend_ms`` 0 means that the request is never held; ``commit_offset`` is the
    consumer's own progress that travels with the pull (RocketMQ: flag bit commitOffset of PullSysFlag).
    ``registered``: the expression is not here but in the group's heartbeats, of ``subscription_version`` (ms) or
    newer (RocketMQ: without the flag bit subscription). ``together``: its answer may share a frame. ``tags``,
    ``wanted`` and ``deadline_ms`` are filled in by ``Puller.begin``.
    """

    asker: Asker
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int = 0
    max_bytes: int = 0
    suspend_ms: int = 0
    commit_offset: int | None = None
    expression: str = ""
    expression_type: str = ""
    registered: bool = False
    subscription_version: int = 0
    lite: bool = False
    together: bool = False
    tags: frozenset[int] | None = None
    wanted: Wanted | None = None
    read_offset: int = 0
    deadline_ms: float = 0


class PullRules:
    """Owned by the event loop; it never waits and changes nothing but the request, and a group made on first use."""

    def __init__(
        self, config: BrokerConfig, topics: TopicTable, groups: SubscriptionGroupTable, members: GroupTable,
        filters: FilterFactory,
    ) -> None:  # fmt: skip
        """``members``: the present consumers, and the subscriptions of their heartbeats."""
        self.config, self._topics, self.groups, self._members = config, topics, groups, members
        self.filters = filters
        self.window = config.store.max_filter_message_size // QUEUE_ENTRY_SIZE
        """How many queue entries one look goes through for those that are wanted."""

    def reconfigure(self, config: BrokerConfig) -> None:
        """Other settings are in force; requests that are held keep their filters."""
        self.config = config
        self.filters.filter_by_sql(config.enable_property_filter)

    def admit(self, pull: PullQuery) -> None:
        """Fill in the filter. Raises the error that the consumer is to see, in RocketMQ's order.

        The broker, the group, which is made if the broker makes groups, the topic and its read permission, the
        queue, the subscription.
        """
        if not self.config.broker_permission & names.PERM_READ:
            raise PermissionDenied(f"broker {self.config.broker_name} may not be read (broker_permission)")
        if pull.lite and not self.config.lite_pull_message_enable:
            raise PermissionDenied("this broker serves no lite pull consumers (lite_pull_message_enable)")
        group = self.groups.require(pull.group)
        if not group.consume_enable:
            raise PermissionDenied(f"group {pull.group!r} may not consume on this broker")
        check_readable(self._topics.require(pull.topic), pull.queue_id)
        self._check_group(pull, group)
        own = (pull.expression, pull.expression_type)
        chosen = self._registered(pull) if pull.registered else self.filters.of(*own)
        pull.tags, pull.wanted = chosen.tags, chosen.wanted
        if pull.wanted and self.config.filter_support_retry and pull.topic.startswith(names.RETRY_PREFIX):
            pull.wanted = self._by_first_topic(pull.topic.removeprefix(names.RETRY_PREFIX))

    def _check_group(self, pull: PullQuery, group: SubscriptionGroup) -> None:
        """Checks the rights that an administrator may have taken from the group, also where a pull brings its own
        filter. RocketMQ does not check then: its consumers bring no filter by default.
        """
        if self._members.broadcasting(pull.group) and not group.consume_broadcast_enable:
            raise PermissionDenied(f"group {pull.group!r} may not consume by broadcasting")
        if self.groups.reading_forbidden(pull.group, pull.topic):
            raise PermissionDenied(f"group {pull.group!r} is forbidden to read topic {pull.topic!r}")

    def _registered(self, pull: PullQuery) -> Filter:
        """The group's subscription to the topic, by its newest heartbeat."""
        subscription = self._subscription(pull)
        if subscription.version < pull.subscription_version:
            text = f"the broker knows an older subscription of group {pull.group!r} to {pull.topic!r} than yours"
            raise DejamqError(text, code=Code.SUBSCRIPTION_NOT_LATEST)
        try:
            return self.filters.of(subscription.expression, subscription.expression_type)
        except DejamqError as error:
            if error.code != Code.SUBSCRIPTION_PARSE_FAILED:
                raise
            raise DejamqError(str(error), code=Code.FILTER_DATA_NOT_EXIST) from None

    def _subscription(self, pull: PullQuery) -> GroupSubscription:
        if not self._members.members(pull.group):
            text = f"no member of group {pull.group!r} has sent this broker a heartbeat"
            raise DejamqError(text, code=Code.SUBSCRIPTION_NOT_EXIST)
        subscription = self._members.subscription(pull.group, pull.topic)
        if subscription is None:
            text = f"group {pull.group!r} does not subscribe to {pull.topic!r}: do its members subscribe differently?"
            raise DejamqError(text, code=Code.SUBSCRIPTION_NOT_EXIST)
        return subscription

    def _by_first_topic(self, group: str) -> Wanted:
        """Retries are judged by the group's subscription to the topic that they were first sent to, if that is known.

        Source: RocketMQ ``ExpressionForRetryMessageFilter``.
        """

        def wanted(properties: Mapping[str, str]) -> bool:
            topic = properties.get(names.PROPERTY_RETRY_TOPIC, "")
            subscription = self._members.subscription(group, topic)
            if subscription is None:
                return True
            try:
                first = self.filters.of(subscription.expression, subscription.expression_type).wanted
            except DejamqError:
                return True
            return first is None or first(properties)

        return wanted
