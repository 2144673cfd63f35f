"""The JSON bodies of remoting requests and answers, as structs with RocketMQ's names.

RocketMQ's writer (fastjson) leaves map keys bare: numbers, even whole objects. Reading takes that too. Written are
quoted numbers, which every client reads, and bare objects, which Java and Go need there.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.loose_json import quote_number_keys


class Body(msgspec.Struct, kw_only=True, rename="camel"):
    """Fields that are unknown here are passed over; ones that are None are not written."""


Kind = TypeVar("Kind", bound=Body)


def read(raw: bytes, kind: type[Kind]) -> Kind:
    """The body as this kind. Raises SYSTEM_ERROR for bytes that are none, as RocketMQ does."""
    try:
        try:
            return msgspec.json.decode(raw, type=kind, strict=False)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.json.decode(quote_number_keys(raw.decode()), type=kind, strict=False)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        text = f"the request's body is no {kind.__name__}: {error}"
        raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True) from None


def write(body: Body) -> bytes:
    """Compact, without fields that are None: Go splits routes by hand and no blank may stand there."""
    return msgspec.json.encode(_written(body))


def _written(value: Any) -> Any:
    if isinstance(value, Body):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        found = {key: getattr(value, name) for name, key in names}
        return {key: _written(one) for key, one in sorted(found.items()) if one is not None}
    if isinstance(value, dict):
        return {key: _written(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_written(one) for one in value]
    return value


def with_object_keys(pairs: Iterable[tuple[Body, Any]]) -> msgspec.Raw:
    """A map whose keys are objects, as fastjson writes it: no JSON, and what Java's and Go's readers want."""
    written = (msgspec.json.encode(_written(key)) + b":" + msgspec.json.encode(_written(one)) for key, one in pairs)
    return msgspec.Raw(b"{" + b",".join(written) + b"}")


def as_list(bodies: Iterable[Body]) -> msgspec.Raw:
    """A list where others want a map with objects as keys: C++ reads no such map."""
    return msgspec.Raw(msgspec.json.encode(list(map(_written, bodies))))


# Routes.


class BrokerData(Body):
    """``broker_addrs``: broker id -> host:port; the ids are texts, as keys of JSON are."""

    cluster: str
    broker_name: str
    broker_addrs: dict[str, str]
    enable_acting_master: bool = False


class QueueData(Body):
    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class TopicRouteData(Body):
    broker_datas: list[BrokerData]
    queue_datas: list[QueueData]
    filter_server_table: dict[str, Any] = {}
    order_topic_conf: str | None = None


class ClusterInfo(Body):
    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class BrokerMembers(Body):
    cluster: str
    broker_name: str
    broker_addrs: dict[str, str] = {}


class BrokerMembersFound(Body):
    broker_member_group: BrokerMembers


class TopicList(Body):
    topic_list: list[str]
    broker_addr: str | None = None


class KVTable(Body):
    table: dict[str, str]


class DataVersion(Body):
    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


class TopicConfigBody(Body):
    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, Any] | None = None


class TopicConfigs(Body):
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfigBody] = {}


class RegisterBroker(Body):
    topic_config_serialize_wrapper: TopicConfigs = msgspec.field(default_factory=TopicConfigs)


# Members of groups.

MODELS = ("BROADCASTING", "CLUSTERING")
KINDS = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
STARTS = (
    "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP",
)  # fmt: skip


def name_of(value: "str | int | None", names: tuple[str, ...]) -> str:
    """The name of an enum's value: C++ sends its number, others send the name."""
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else ""
    return value or ""


class SubscriptionData(Body):
    topic: str
    sub_string: str | None = "*"
    expression_type: str | None = "TAG"
    sub_version: int = 0


class ConsumerData(Body):
    group_name: str
    consume_type: str | int | None = None
    message_model: str | int | None = "CLUSTERING"
    consume_from_where: str | int | None = None
    subscription_data_set: list[SubscriptionData] | None = None


class ProducerData(Body):
    group_name: str


class Heartbeat(Body):
    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[ConsumerData] | None = None
    producer_data_set: list[ProducerData] | None = None


class ConsumerIds(Body):
    consumer_id_list: list[str]


class MessageQueueBody(Body):
    broker_name: str
    queue_id: int
    topic: str


class LockBatch(Body):
    consumer_group: str
    client_id: str
    mq_set: list[MessageQueueBody] | None = None


class Locked(Body):
    lock_ok_mq_set: list[MessageQueueBody] = msgspec.field(name="lockOKMQSet")


class CheckClient(Body):
    subscription_data: SubscriptionData | None = None


# What operators see.


class GroupList(Body):
    group_list: list[str]


class TopicOffset(Body):
    min_offset: int
    max_offset: int
    last_update_timestamp: int = 0


class TopicStats(Body):
    """The keys of the table are queues."""

    offset_table: msgspec.Raw
    topic_put_tps: float = 0.0


class GroupOffset(Body):
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int = 0


class ConsumeStats(Body):
    """The keys of the table are queues."""

    offset_table: msgspec.Raw
    consume_tps: float = 0.0


class ResetOffsets(Body):
    """The keys of the table are queues; C++ reads a list instead."""

    offset_table: msgspec.Raw


class QueueOffset(Body):
    broker_name: str
    queue_id: int
    topic: str
    offset: int


class ConnectionBody(Body):
    client_addr: str
    client_id: str
    language: str
    version: int


class ConsumerConnection(Body):
    connection_set: list[ConnectionBody]
    consume_from_where: str
    consume_type: str
    message_model: str
    subscription_table: dict[str, "SubscriptionTold"]


class SubscriptionTold(Body):
    topic: str
    sub_string: str
    expression_type: str
    sub_version: int
    class_filter_mode: bool = False
    code_set: list[int] = []
    tags_set: list[str] = []


class ProducerConnection(Body):
    connection_set: list[ConnectionBody]


class ProducerTold(Body):
    client_id: str
    language: str
    last_update_timestamp: int
    remote_ip: str = msgspec.field(name="remoteIP")
    version: int


class ProducerTableBody(Body):
    data: dict[str, list[ProducerTold]]


class Group(Body):
    """Fields that are missing keep their values."""

    group_name: str
    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    consume_message_orderly: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    group_retry_policy: dict[str, Any] | None = None
    broker_id: int | None = None
    which_broker_when_consume_slowly: int | None = None
    notify_consumer_ids_changed_enable: bool | None = None
    group_sys_flag: int | None = None
    consume_timeout_minute: int | None = None


class GroupConfigs(Body):
    group_config_list: list[Group]


class TopicConfigList(Body):
    topic_config_list: list[TopicConfigBody]


class GroupForbidden(Body):
    group: str
    topic: str
    readable: bool


class QueueTimeSpan(Body):
    """Store times of a queue's messages; ``delay_time`` is how long the next one of the group waits already."""

    message_queue: MessageQueueBody
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    delay_time: int


class TimeSpans(Body):
    consume_time_span_set: list[QueueTimeSpan]


class Consumption(Body):
    """Each of the list has one group."""

    broker_addr: str
    consume_stats_list: list[dict[str, list[ConsumeStats]]]
    total_diff: int
    total_inflight_diff: int


class GroupSubscribed(Body):
    group: str
    topic: str
    subscription_data: SubscriptionTold | None = None


class BrokerStatsItem(Body):
    avgpt: float
    sum: int
    tps: float


class BrokerStats(Body):
    stats_day: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_minute: BrokerStatsItem


class MemberOffsets(Body):
    """Where members are: the table by client id; the keys below are queues. One member has the other table."""

    consumer_table: dict[str, msgspec.Raw]
    message_queue_table: msgspec.Raw = msgspec.Raw(b"{}")


class QueueEntry(Body):
    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False


class QueueEntries(Body):
    max_queue_index: int
    min_queue_index: int
    queue_data: list[QueueEntry]
    filter_data: str | None = None
    subscription_data: SubscriptionTold | None = None


class HaClient(Body):
    """A slave's side."""

    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_addr: str | None = None
    master_flush_offset: int = 0
    max_offset: int = 0
    transferred_byte_in_second: int = 0


class HaConnection(Body):
    """A slave as its master knows it."""

    addr: str
    diff: int
    in_sync: bool
    slave_ack_offset: int
    transfer_from_where: int
    transferred_byte_in_second: int = 0


class HaRuntime(Body):
    master: bool
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_client_runtime_info: HaClient = msgspec.field(default_factory=HaClient)
    ha_connection_info: list[HaConnection] = []


# Pops.


class BatchAckOne(Body):
    """Messages of one check point. ``bits``: those at ``start_offset`` + n, in base64, the lowest byte first."""

    group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    start_offset: int = msgspec.field(name="so")
    queue_id: int = msgspec.field(name="q")
    revive_queue_id: int = msgspec.field(name="rq")
    pop_time: int = msgspec.field(name="pt")
    invisible_ms: int = msgspec.field(name="it")
    retry: str = msgspec.field(name="r", default="0")
    bits: str = msgspec.field(name="b", default="")


class BatchAck(Body):
    broker_name: str | None = None
    acks: list[BatchAckOne] = []


# How push consumers in POP mode learn what they may ask for.


class AssignmentQuestion(Body):
    client_id: str
    consumer_group: str
    topic: str
    message_model: str | int = "CLUSTERING"
    strategy_name: str = ""


class MessageQueueAssignment(Body):
    message_queue: MessageQueueBody
    mode: str


class Assignments(Body):
    """None: no opinion, and the client goes on with what it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class RequestModeBody(Body):
    topic: str
    consumer_group: str
    mode: str | int = "PULL"
    pop_share_queue_num: int = 0
