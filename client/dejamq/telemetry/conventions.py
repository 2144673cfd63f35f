"""Names of attributes, and what they hold. Pure.

Source: OpenTelemetry's semantic conventions for messaging and RocketMQ, 1.44.0 (status: development). What they have
no name for begins with ``dejamq.``.
"""

from collections.abc import Mapping, Sequence

from dejamq_proto import names
from dejamq_proto.codes import DejamqError

from dejamq.receiving.observer import ObservedClient
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import Message, MessageQueue

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
Value = str | bool | int | float | Sequence[str]
Attributes = dict[str, Value]

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
CLIENT_ID = "messaging.client.id"
GROUP = "messaging.consumer.group.name"
BATCH_COUNT = "messaging.batch.message_count"
MESSAGE_ID = "messaging.message.id"
CONVERSATION_ID = "messaging.message.conversation_id"
NAMESPACE = "messaging.rocketmq.namespace"
MODEL = "messaging.rocketmq.consumption_model"
TAG = "messaging.rocketmq.message.tag"
KEYS = "messaging.rocketmq.message.keys"
TYPE = "messaging.rocketmq.message.type"
MESSAGE_GROUP = "messaging.rocketmq.message.group"
DELAY_LEVEL = "messaging.rocketmq.message.delay_time_level"
DELIVERY_TIMESTAMP = "messaging.rocketmq.message.delivery_timestamp"
SERVER_ADDRESS, SERVER_PORT = "server.address", "server.port"
ERROR_TYPE = "error.type"

PRODUCER_GROUP = "dejamq.producer.group"
SEND_ATTEMPTS, SEND_DEFINITE, SEND_DUPLICATE = "dejamq.send.attempts", "dejamq.send.definite", "dejamq.send.duplicate"
QUEUE_OFFSET, STORED_ID = "dejamq.queue_offset", "dejamq.offset_message_id"
ATTEMPT, DELIVERY_ID, REDELIVERY = "dejamq.delivery_attempt", "dejamq.delivery_id", "dejamq.redelivery"
LINK, EARLIER_STATUS = "dejamq.link", "dejamq.earlier_delivery.status"
COMMIT_REASON, CONSUME_STATUS = "dejamq.commit.reason", "dejamq.consume.status"


def operation(who: ObservedClient, name: str, kind: str, topic: str) -> Attributes:
    """What spans of every operation have; ``topic`` is empty for messages of several."""
    found: Attributes = {
        SYSTEM: "rocketmq", OPERATION_NAME: name, OPERATION_TYPE: kind, NAMESPACE: who.namespace,
    }  # fmt: skip
    if client_id := who.client_id():
        found[CLIENT_ID] = client_id
    if topic:
        found[DESTINATION] = topic
    return found


def of_consumer(who: ObservedClient, name: str, kind: str, topic: str) -> Attributes:
    """As ``operation``, with the group."""
    found = operation(who, name, kind, topic) | {GROUP: who.group}
    if who.broadcasting is not None:
        found[MODEL] = "broadcasting" if who.broadcasting else "clustering"
    return found


def of_message(message: Message, *, transaction: bool = False) -> Attributes:
    """Of a message that is sent."""
    found: Attributes = {MESSAGE_ID: message.message_id, TYPE: "normal"}
    if message.tags:
        found[TAG] = message.tags
    if message.keys:
        found[KEYS] = tuple(message.keys)
    if message.sharding_key is not None:
        found |= {TYPE: "fifo", MESSAGE_GROUP: message.sharding_key}
    if message.is_delayed:
        found[TYPE] = "delay"
    if message.delay_level:
        found[DELAY_LEVEL] = message.delay_level
    elif message.deliver_at_ms is not None:
        found[DELIVERY_TIMESTAMP] = message.deliver_at_ms
    if transaction:
        found[TYPE] = "transaction"
    return found


def of_received(message: ReceivedMessage) -> Attributes:
    """Of a message that was delivered: also its place, and which of its group's tries this is (1: the first)."""
    properties = message.properties
    found: Attributes = {MESSAGE_ID: message.message_id, TYPE: _type(properties)}
    for name, attribute in (
        (names.PROPERTY_TAGS, TAG), (names.PROPERTY_SHARDING_KEY, MESSAGE_GROUP),
        (names.PROPERTY_CORRELATION_ID, CONVERSATION_ID),
    ):  # fmt: skip
        if properties.get(name):
            found[attribute] = properties[name]
    if message.keys:
        found[KEYS] = tuple(message.keys)
    return found | of_place(message.queue) | of_delivery(message)


def of_delivery(message: ReceivedMessage) -> Attributes:
    """Which copy, and which delivery of it; ``dejamq message history`` knows both from journals."""
    return {
        QUEUE_OFFSET: message.queue_offset, STORED_ID: message.offset_message_id,
        ATTEMPT: message.reconsume_times + 1, DELIVERY_ID: message.delivery_id,
    }  # fmt: skip


def of_place(queue: MessageQueue) -> Attributes:
    """The queue as a partition of the topic: queue ids begin at 0 in each broker."""
    return {PARTITION: f"{queue.broker_name}/{queue.queue_id}"}


def of_server(address: str) -> Attributes:
    """``host:port``; nothing for anything else."""
    host, _, port = address.rpartition(":")
    return {SERVER_ADDRESS: host.strip("[]"), SERVER_PORT: int(port)} if host and port.isdigit() else {}


def error_type(error: BaseException) -> str:
    """The class; RocketMQ's name of the code where the class says nothing."""
    if type(error) is DejamqError:
        return str(getattr(error.code, "name", error.code))
    return type(error).__qualname__


def only(attributes: Mapping[str, Value], *wanted: str) -> Attributes:
    """Those of these names that are there: a metric has few of a span's."""
    return {name: attributes[name] for name in wanted if name in attributes}


def _type(properties: Mapping[str, str]) -> str:
    if properties.get(names.PROPERTY_TRANSACTION):
        return "transaction"
    if names.PROPERTY_RETRY_TOPIC not in properties and (
        names.PROPERTY_DELAY in properties or any(name in properties for name in names.ASKING_FOR_A_TIME)
    ):
        return "delay"  # a retry has a delay level too
    return "fifo" if names.PROPERTY_SHARDING_KEY in properties else "normal"
