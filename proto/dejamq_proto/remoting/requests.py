"""The requests of RocketMQ's remoting protocol: number, name, fields and answer of each. Numbers stand nowhere else.

A field without a default is required. Unknown fields are passed over: clients may send ``bname``, ``ns``, ``nsd``,
``oway``, ``AccessKey`` and others with any request. Source: RocketMQ ``RequestCode`` and the classes of its headers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.remoting.frames import MAX_FRAME_BYTES
from dejamq_proto.remoting.header import I32, I64, Command

MOST_BODY_BYTES = 1 << 20
"""Of a request that carries no messages. The event loop reads bodies, and others wait meanwhile."""
MOST_SETTINGS_BYTES = 64 << 10


class Fields(msgspec.Struct, kw_only=True, rename="camel"):
    """The fields of a request or of its answer; one without any has none."""


Header = TypeVar("Header", bound=Fields)


@dataclass(frozen=True)
class RequestKind(Generic[Header]):
    """One kind of request. ``aliases``: short names of fields, and the names that they stand for.

    ``most_body`` bounds the bytes of its body.
    """

    code: I32
    name: str
    fields: type[Header]
    answer: type[Fields] = Fields
    aliases: Mapping[str, str] = field(default_factory=dict)
    most_body: int = MOST_BODY_BYTES

    def check_size(self, command: Command) -> None:
        """Raises SYSTEM_ERROR for a body that is larger than any that this request needs."""
        if len(command.body) > self.most_body:
            text = f"{self.name}: a body of {len(command.body)} bytes came, at most {self.most_body} are read"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)

    def read(self, command: Command) -> Header:
        """The fields of a command. Raises SYSTEM_ERROR for one that is missing or no such value, as RocketMQ does.

        An empty text is no number: it is taken for a field that is missing.
        """
        texts = {self.aliases.get(key, key): value for key, value in command.ext.items() if value != ""}
        try:
            return msgspec.convert(texts, self.fields, strict=False)
        except msgspec.ValidationError as error:
            text = f"{self.name}: a field of the request is wrong or missing: {error}"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True) from None


REQUESTS: dict[int, RequestKind[Fields]] = {}
"""All by their numbers; those for POP mode once ``pop_requests`` is imported."""


def declare(
    code: I32, name: str, fields: type[Header], answer: type[Fields] = Fields,
    aliases: Mapping[str, str] | None = None, *, most_body: int = MOST_BODY_BYTES,
) -> RequestKind[Header]:  # fmt: skip
    """A request that takes its place in ``REQUESTS``."""
    made = RequestKind(code, name, fields, answer, aliases or {}, most_body)
    REQUESTS[code] = made  # type: ignore[assignment]  # each has fields of its own
    return made


# Name server: what everybody asks.


class OfTopic(Fields):
    topic: str


GET_ROUTE = declare(105, "GET_ROUTEINFO_BY_TOPIC", OfTopic)
GET_CLUSTER_INFO = declare(106, "GET_BROKER_CLUSTER_INFO", Fields)
GET_ALL_TOPICS = declare(206, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER", Fields)

# Name server: what operators and brokers ask.


class ConfigItem(Fields):
    namespace: str
    key: str


class ConfigValue(Fields):
    namespace: str
    key: str
    value: str


class ConfigFound(Fields):
    value: str | None = None


class OfNamespace(Fields):
    namespace: str


class OfBrokerName(Fields):
    broker_name: str


class BrokerMembersQuestion(Fields):
    cluster_name: str
    broker_name: str


class WipedTopics(Fields):
    wipe_topic_count: I32


class AddedTopics(Fields):
    add_topic_count: I32


class TopicInNamesrv(Fields):
    topic: str
    cluster_name: str | None = None


class OfCluster(Fields):
    cluster: str


class BrokerNamed(Fields):
    """A broker by all of its names, as it registers, leaves, and asks for the version of its topics."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class BrokerRegistering(BrokerNamed):
    """``ha_server_addr``: where its slaves copy from; RocketMQ's name server refuses a registration without one."""

    ha_server_addr: str | None = None
    heartbeat_timeout_millis: I64 | None = None
    body_crc32: I32 = msgspec.field(name="bodyCrc32", default=0)


class BrokerRegistered(Fields):
    master_addr: str | None = None


class BrokerBeat(Fields):
    cluster_name: str
    broker_addr: str
    broker_name: str


class VersionChanged(Fields):
    changed: bool


PUT_KV_CONFIG = declare(100, "PUT_KV_CONFIG", ConfigValue)
GET_KV_CONFIG = declare(101, "GET_KV_CONFIG", ConfigItem, ConfigFound)
DELETE_KV_CONFIG = declare(102, "DELETE_KV_CONFIG", ConfigItem)
GET_KV_LIST = declare(219, "GET_KVLIST_BY_NAMESPACE", OfNamespace)
WIPE_WRITE_PERM = declare(205, "WIPE_WRITE_PERM_OF_BROKER", OfBrokerName, WipedTopics)
ADD_WRITE_PERM = declare(327, "ADD_WRITE_PERM_OF_BROKER", OfBrokerName, AddedTopics)
GET_BROKER_MEMBERS = declare(901, "GET_BROKER_MEMBER_GROUP", BrokerMembersQuestion)
GET_TOPICS_BY_CLUSTER = declare(224, "GET_TOPICS_BY_CLUSTER", OfCluster)
GET_SYSTEM_TOPICS_FROM_NS = declare(304, "GET_SYSTEM_TOPIC_LIST_FROM_NS", Fields)
DELETE_TOPIC_IN_NAMESRV = declare(216, "DELETE_TOPIC_IN_NAMESRV", TopicInNamesrv)
REGISTER_BROKER = declare(103, "REGISTER_BROKER", BrokerRegistering, BrokerRegistered, most_body=MAX_FRAME_BYTES)
UNREGISTER_BROKER = declare(104, "UNREGISTER_BROKER", BrokerNamed)
BROKER_HEARTBEAT = declare(904, "BROKER_HEARTBEAT", BrokerBeat)
GET_NAMESRV_CONFIG = declare(319, "GET_NAMESRV_CONFIG", Fields)
UPDATE_NAMESRV_CONFIG = declare(318, "UPDATE_NAMESRV_CONFIG", Fields, most_body=MOST_SETTINGS_BYTES)
QUERY_DATA_VERSION = declare(322, "QUERY_DATA_VERSION", BrokerNamed, VersionChanged)

# Broker: sending.

SHORT_NAMES = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
    "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
    "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
}  # fmt: skip
"""The letters of SEND_MESSAGE_V2."""


class SendMessage(Fields):
    """``queue_id`` below 0 leaves the choice to the broker. C++ sends batches as SEND_MESSAGE_V2 with ``batch``."""

    producer_group: str
    topic: str
    queue_id: I32
    born_timestamp: I64
    default_topic: str | None = None
    default_topic_queue_nums: I32 = 0
    sys_flag: I32 = 0
    flag: I32 = 0
    properties: str = ""
    reconsume_times: I32 | None = None
    max_reconsume_times: I32 | None = None
    batch: bool | None = None


class MessageSent(Fields):
    """``msg_id``: offset message ids, with commas between those of a batch.

    ``duplicates`` is ours: the numbers of those that were stored before, with commas. RocketMQ's clients pass over it.
    """

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    recall_handle: str | None = None
    duplicates: str | None = None
    msg_region: str = msgspec.field(name="MSG_REGION", default="DefaultRegion")
    trace_on: str = msgspec.field(name="TRACE_ON", default="true")


class SendBackHeader(Fields):
    """``offset`` is a log offset; ``delay_level`` 0 leaves it to the broker, below 0 means dead letters."""

    offset: I64
    group: str
    delay_level: I32
    max_reconsume_times: I32 | None = None


class RecallMessage(Fields):
    """``recall_handle`` as the answer to the send told it."""

    topic: str
    recall_handle: str
    producer_group: str = ""


class MessageRecalled(Fields):
    msg_id: str


class EndTransactionHeader(Fields):
    """``commit_or_rollback`` is 8, 12 or 0. The first offset is the half message's in its queue."""

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    from_transaction_check: bool = False


SEND_MESSAGE = declare(10, "SEND_MESSAGE", SendMessage, MessageSent, most_body=MAX_FRAME_BYTES)
SEND_MESSAGE_V2 = declare(310, "SEND_MESSAGE_V2", SendMessage, MessageSent, SHORT_NAMES, most_body=MAX_FRAME_BYTES)
SEND_BATCH_MESSAGE = declare(
    320, "SEND_BATCH_MESSAGE", SendMessage, MessageSent, SHORT_NAMES, most_body=MAX_FRAME_BYTES
)
SEND_REPLY_MESSAGE = declare(324, "SEND_REPLY_MESSAGE", SendMessage, MessageSent, most_body=MAX_FRAME_BYTES)
SEND_REPLY_MESSAGE_V2 = declare(
    325, "SEND_REPLY_MESSAGE_V2", SendMessage, MessageSent, SHORT_NAMES, most_body=MAX_FRAME_BYTES
)
RECALL_MESSAGE = declare(370, "RECALL_MESSAGE", RecallMessage, MessageRecalled)
SEND_BACK = declare(36, "CONSUMER_SEND_MSG_BACK", SendBackHeader)
END_TRANSACTION = declare(37, "END_TRANSACTION", EndTransactionHeader)

# Broker: pulling.

HAS_COMMIT, MAY_SUSPEND, HAS_SUBSCRIPTION, LITE = 1, 2, 4, 16
"""Bits of a pull's ``sys_flag`` (RocketMQ: PullSysFlag)."""


class PullMessage(Fields):
    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64 = 0
    suspend_timeout_millis: I64 = 0
    sub_version: I64 = 0
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: I32 | None = None


class MessagePulled(Fields):
    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64


PULL_MESSAGE = declare(11, "PULL_MESSAGE", PullMessage, MessagePulled)
LITE_PULL_MESSAGE = declare(361, "LITE_PULL_MESSAGE", PullMessage, MessagePulled)

# Broker: members and offsets.


class HeartbeatTaken(Fields):
    supports_v2: bool = msgspec.field(name="IS_SUPPORT_HEART_BEAT_V2", default=False)
    subscription_changed: bool = msgspec.field(name="IS_SUB_CHANGE", default=True)


class Unregister(Fields):
    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class OfConsumerGroup(Fields):
    consumer_group: str


class QueueQuestion(Fields):
    topic: str
    queue_id: I32


class OffsetQuestion(QueueQuestion):
    consumer_group: str
    set_zero_if_not_found: bool | None = None


class OffsetCommit(QueueQuestion):
    consumer_group: str
    commit_offset: I64


class TimeQuestion(QueueQuestion):
    timestamp: I64
    boundary_type: str | None = None


class OffsetFound(Fields):
    offset: I64


class TimeFound(Fields):
    timestamp: I64


HEART_BEAT = declare(34, "HEART_BEAT", Fields, HeartbeatTaken)
UNREGISTER_CLIENT = declare(35, "UNREGISTER_CLIENT", Unregister)
GET_CONSUMER_LIST = declare(38, "GET_CONSUMER_LIST_BY_GROUP", OfConsumerGroup)
QUERY_CONSUMER_OFFSET = declare(14, "QUERY_CONSUMER_OFFSET", OffsetQuestion, OffsetFound)
UPDATE_CONSUMER_OFFSET = declare(15, "UPDATE_CONSUMER_OFFSET", OffsetCommit)
GET_MAX_OFFSET = declare(30, "GET_MAX_OFFSET", QueueQuestion, OffsetFound)
GET_MIN_OFFSET = declare(31, "GET_MIN_OFFSET", QueueQuestion, OffsetFound)
SEARCH_OFFSET = declare(29, "SEARCH_OFFSET_BY_TIMESTAMP", TimeQuestion, OffsetFound)
GET_EARLIEST_STORE_TIME = declare(32, "GET_EARLIEST_MSG_STORETIME", QueueQuestion, TimeFound)
LOCK_BATCH = declare(41, "LOCK_BATCH_MQ", Fields)
UNLOCK_BATCH = declare(42, "UNLOCK_BATCH_MQ", Fields)
CHECK_CLIENT_CONFIG = declare(46, "CHECK_CLIENT_CONFIG", Fields)

# Broker to client.


class GroupChanged(Fields):
    consumer_group: str


class CheckTransactionHeader(Fields):
    tran_state_table_offset: I64
    commit_log_offset: I64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ReplyPushed(Fields):
    """``born_host`` and ``store_host`` are ``address:port``."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    born_host: str
    store_host: str
    store_timestamp: I64
    properties: str | None = None
    reconsume_times: I32 | None = None


class RunningQuestion(Fields):
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class DirectConsumption(Fields):
    """``msg_id`` is an offset message id; the record is the body where a broker asks its client."""

    consumer_group: str
    client_id: str
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


class OffsetsQuestion(Fields):
    topic: str
    group: str


class OffsetsOfMembers(OffsetsQuestion):
    """Of one member where ``client_addr`` has its client id, else of all."""

    client_addr: str | None = None


GET_OFFSETS_OF_CLIENT = declare(221, "GET_CONSUMER_STATUS_FROM_CLIENT", OffsetsQuestion)
GET_OFFSETS_OF_MEMBERS = declare(223, "INVOKE_BROKER_TO_GET_CONSUMER_STATUS", OffsetsOfMembers)
GET_RUNNING_INFO = declare(307, "GET_CONSUMER_RUNNING_INFO", RunningQuestion)
CONSUME_DIRECTLY = declare(309, "CONSUME_MESSAGE_DIRECTLY", DirectConsumption)
CHECK_TRANSACTION_STATE = declare(39, "CHECK_TRANSACTION_STATE", CheckTransactionHeader)
NOTIFY_CONSUMER_IDS_CHANGED = declare(40, "NOTIFY_CONSUMER_IDS_CHANGED", GroupChanged)
PUSH_REPLY = declare(326, "PUSH_REPLY_MESSAGE_TO_CLIENT", ReplyPushed)

# Broker: messages for operators.


class MessageAt(Fields):
    offset: I64


class KeyQuestion(Fields):
    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique: bool = msgspec.field(name="_UNIQUE_KEY_QUERY", default=False)


class KeyFound(Fields):
    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


VIEW_MESSAGE = declare(33, "VIEW_MESSAGE_BY_ID", MessageAt)
QUERY_MESSAGE = declare(12, "QUERY_MESSAGE", KeyQuestion, KeyFound)

# Broker: what operators ask and change.


class TopicChange(Fields):
    """``attributes`` are changes: ``+message.type=FIFO,-other``."""

    topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    default_topic: str | None = None
    topic_filter_type: str | None = None
    topic_sys_flag: I32 | None = None
    order: bool = False
    attributes: str | None = None


class GroupProgressQuestion(Fields):
    consumer_group: str
    topic: str | None = None


class OfProducerGroup(Fields):
    producer_group: str


class OfGroup(Fields):
    group: str


class GroupDeletion(Fields):
    group_name: str
    clean_offset: bool = False


class OffsetReset(Fields):
    """By time, or with an ``offset`` to that; ``queue_id`` below 0 means all queues."""

    topic: str
    group: str
    timestamp: I64
    is_force: bool = False
    queue_id: I32 = -1
    offset: I64 | None = None


class StatsQuestion(Fields):
    stats_name: str
    stats_key: str


class OffsetCloning(Fields):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class SettingsVersion(Fields):
    version: str


class OfTopicAndGroup(Fields):
    topic: str
    group: str


class ForbiddenChange(OfTopicAndGroup):
    """Without ``readable`` it only asks."""

    readable: bool | None = None


class ConsumptionQuestion(Fields):
    """``is_order`` leaves out topics without an order."""

    is_order: bool = False


class EntriesQuestion(QueueQuestion):
    index: I64
    count: I32
    consumer_group: str | None = None


class HalfMessage(Fields):
    """``msg_id`` is the offset message id of one that was given up."""

    msg_id: str
    topic: str | None = None


QUERY_QUEUE_ENTRIES = declare(321, "QUERY_CONSUME_QUEUE", EntriesQuestion)
RESUME_HALF_MESSAGE = declare(323, "RESUME_CHECK_HALF_MESSAGE", HalfMessage)
GET_HA_STATUS = declare(907, "GET_BROKER_HA_STATUS", Fields)
CLEAN_EXPIRED_QUEUES = declare(306, "CLEAN_EXPIRED_CONSUMEQUEUE", Fields)
CLEAN_UNUSED_TOPICS = declare(316, "CLEAN_UNUSED_TOPIC", Fields)
DELETE_EXPIRED_LOG = declare(329, "DELETE_EXPIRED_COMMITLOG", Fields)
UPDATE_TOPICS = declare(18, "UPDATE_AND_CREATE_TOPIC_LIST", Fields)
UPDATE_TOPIC = declare(17, "UPDATE_AND_CREATE_TOPIC", TopicChange)
DELETE_TOPIC = declare(215, "DELETE_TOPIC_IN_BROKER", OfTopic)
GET_TOPIC_CONFIG = declare(351, "GET_TOPIC_CONFIG", OfTopic)
GET_ALL_TOPIC_CONFIG = declare(21, "GET_ALL_TOPIC_CONFIG", Fields)
GET_ALL_CONSUMER_OFFSET = declare(43, "GET_ALL_CONSUMER_OFFSET", Fields)
GET_ALL_DELAY_OFFSET = declare(45, "GET_ALL_DELAY_OFFSET", Fields)
GET_TOPIC_STATS = declare(202, "GET_TOPIC_STATS_INFO", OfTopic)
GET_CONSUME_STATS = declare(208, "GET_CONSUME_STATS", GroupProgressQuestion)
GET_CONSUMER_CONNECTIONS = declare(203, "GET_CONSUMER_CONNECTION_LIST", OfConsumerGroup)
GET_PRODUCER_CONNECTIONS = declare(204, "GET_PRODUCER_CONNECTION_LIST", OfProducerGroup)
GET_ALL_PRODUCERS = declare(328, "GET_ALL_PRODUCER_INFO", Fields)
GET_RUNTIME_INFO = declare(28, "GET_BROKER_RUNTIME_INFO", Fields)
GET_BROKER_CONFIG = declare(26, "GET_BROKER_CONFIG", Fields, SettingsVersion)
UPDATE_BROKER_CONFIG = declare(25, "UPDATE_BROKER_CONFIG", Fields, most_body=MOST_SETTINGS_BYTES)
UPDATE_GROUP = declare(200, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", Fields)
UPDATE_GROUPS = declare(225, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST", Fields)
FORBID = declare(353, "UPDATE_AND_GET_GROUP_FORBIDDEN", ForbiddenChange)
GET_TIME_SPAN = declare(303, "QUERY_CONSUME_TIME_SPAN", OfTopicAndGroup)
GET_SYSTEM_TOPICS = declare(305, "GET_SYSTEM_TOPIC_LIST_FROM_BROKER", Fields)
GET_CONSUMPTION = declare(317, "GET_BROKER_CONSUME_STATS", ConsumptionQuestion)
SUBSCRIPTION_OF_GROUP = declare(345, "QUERY_SUBSCRIPTION_BY_CONSUMER", OfTopicAndGroup)
GET_ALL_GROUPS = declare(201, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", Fields)
GET_GROUP = declare(352, "GET_SUBSCRIPTIONGROUP_CONFIG", OfGroup)
DELETE_GROUP = declare(207, "DELETE_SUBSCRIPTIONGROUP", GroupDeletion)
RESET_OFFSETS = declare(222, "INVOKE_BROKER_TO_RESET_OFFSET", OffsetReset)
CLONE_OFFSETS = declare(314, "CLONE_GROUP_OFFSET", OffsetCloning)
WHO_CONSUMES = declare(300, "QUERY_TOPIC_CONSUME_BY_WHO", OfTopic)
TOPICS_OF_GROUP = declare(343, "QUERY_TOPICS_BY_CONSUMER", OfGroup)
VIEW_STATS = declare(315, "VIEW_BROKER_STATS_DATA", StatsQuestion)
