"""Messages of the protocol and records of the log: properties are fields here, and names there. Pure.

Source: RocketMQ ``GrpcConverter``, ``SendMessageActivity``.
"""

import hashlib
from collections.abc import Mapping

import msgspec
from dejamq_proto import names
from dejamq_proto.records.compression import BadCompression, decompress
from dejamq_proto.records.hosts import host_text
from dejamq_proto.records.record import MAX_PROPERTIES_SIZE, SYS_COMPRESSED, Record, encode_properties
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.statuses import StatusError
from dejamq_proto.v2.times import ms_of, set_ms

MOST_PROPERTIES, MOST_PROPERTY_BYTES = 128, 16 << 10
MOST_GROUP_BYTES, MOST_ID_CHARACTERS = 64, 255
MOST_UNPACKED = 8 << 20
"""Bytes: a body that unpacks to more goes out packed."""
HOUR_S = 3600
MOST_ATTEMPTS = (1 << 31) - 1
"""That the field holds. A producer may say of a new message that it was tried as often already."""
VISIBLE = frozenset({
    names.PROPERTY_SHARDING_KEY, names.PROPERTY_TRANSACTION_ID, names.PROPERTY_CHECK_TIMES, "INNER_NUM", "INNER_BASE",
    "INNER_MULTI_DISPATCH",
})  # fmt: skip
"""Names that a program may not set, and that consumers see all the same; clients' tests look for the first two."""
HIDDEN = (names.RESERVED_PROPERTIES - VISIBLE - {*names.DEDUP_PROPERTIES}) | names.REQUEST_PROPERTIES | {
    names.PROPERTY_BORN_HOST, names.PROPERTY_BORN_TIMESTAMP, "INSTANCE_ID",
}  # fmt: skip
"""Names that a program may not send, and that consumers do not see. Source: RocketMQ ``MessageConst``."""
TIMED = (names.PROPERTY_DELAY, *names.ASKING_FOR_A_TIME)


class SentMessage(msgspec.Struct, frozen=True):
    """One message that a producer sends, checked. ``deliver_ms`` 0: now."""

    message_id: str
    type: "pb.MessageType.ValueType"
    born_ms: int
    body: bytes
    properties: dict[str, str]
    message_group: str = ""
    deliver_ms: int = 0
    packed: bool = False


def sent_of(message: pb.Message, topic: str, most_body: int) -> SentMessage:
    """Raises the statuses that the protocol has for what is wrong with a message."""
    system = message.system_properties
    if not 0 < len(system.message_id) <= MOST_ID_CHARACTERS or not _plain(system.message_id):
        raise StatusError(pb.ILLEGAL_MESSAGE_ID, f"{system.message_id!r:.60} is no message id")
    if system.message_type == pb.LITE or system.HasField("lite_topic"):
        raise StatusError(pb.UNSUPPORTED, f"lite topic {system.lite_topic!r:.60}: this broker has no lite topics")
    if not message.body:
        raise StatusError(pb.MESSAGE_BODY_EMPTY, "the message has no body")
    if len(message.body) > most_body:
        text = f"the body has {len(message.body)} bytes, at most {most_body} are taken (maxMessageSize)"
        raise StatusError(pb.MESSAGE_BODY_TOO_LARGE, text)
    _check_names(system)
    _check_user(message.user_properties)
    properties = dict(message.user_properties) | _stored(system, topic)
    if len(encode_properties(properties)) > MAX_PROPERTIES_SIZE:
        raise StatusError(pb.MESSAGE_PROPERTIES_TOO_LARGE, f"a record holds {MAX_PROPERTIES_SIZE} bytes of properties")
    timed = system.HasField("delivery_timestamp")
    deliver_ms = ms_of(system.delivery_timestamp, pb.ILLEGAL_DELIVERY_TIME) if timed else 0
    if deliver_ms and system.message_type == pb.TRANSACTION:
        text = "a message of a transaction cannot have a delivery time"
        raise StatusError(pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
    return SentMessage(
        system.message_id, system.message_type, ms_of(system.born_timestamp), message.body, properties,
        system.message_group, deliver_ms, system.body_encoding == pb.GZIP,
    )  # fmt: skip


def message_of(record: Record, topic: pb.Resource, *, attempt: int, handle: str = "") -> pb.Message:
    """What a consumer is given, under the topic that it asked for. Bodies are unpacked, as few clients can do it."""
    properties, system = record.properties, pb.SystemProperties()
    body, packed = _unpacked(record)
    system.message_id = properties.get(names.PROPERTY_UNIQUE_KEY) or record.offset_message_id
    if tag := properties.get(names.PROPERTY_TAGS):
        system.tag = tag
    system.keys.extend(properties.get(names.PROPERTY_KEYS, "").split())
    system.body_digest.type = pb.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = pb.GZIP if packed else pb.IDENTITY
    system.message_type = _type_of(properties)
    set_ms(system.born_timestamp, record.born_timestamp_ms)
    system.born_host = properties.get(names.PROPERTY_BORN_HOST) or host_text(record.born_host)
    set_ms(system.store_timestamp, record.store_timestamp_ms)
    system.store_host = host_text(record.store_host)
    _set_times(system, properties)
    if handle:
        system.receipt_handle = handle
    system.queue_id, system.queue_offset = record.queue_id, record.queue_offset
    system.delivery_attempt = min(attempt, MOST_ATTEMPTS)
    if group := properties.get(names.PROPERTY_SHARDING_KEY):
        system.message_group = group
    if trace := properties.get(names.PROPERTY_TRACE_CONTEXT):
        system.trace_context = trace
    user = {name: value for name, value in properties.items() if name not in HIDDEN}
    return pb.Message(topic=topic, user_properties=user, system_properties=system, body=body)


def _unpacked(record: Record) -> tuple[bytes, bool]:
    """The body, and whether it is still packed."""
    if not record.sys_flag & SYS_COMPRESSED:
        return record.body, False
    try:
        return decompress(record.body, record.sys_flag, MOST_UNPACKED), False
    except BadCompression:
        return record.body, True


def _set_times(system: pb.SystemProperties, properties: Mapping[str, str]) -> None:
    deliver = properties.get(names.PROPERTY_TIMER_DELIVER, "")
    if deliver.isascii() and deliver.isdigit() and len(deliver) < 15:
        set_ms(system.delivery_timestamp, int(deliver))
    immune = properties.get(names.PROPERTY_CHECK_IMMUNITY, "")
    if immune.isascii() and immune.isdigit() and len(immune) < 10:
        set_ms(system.orphaned_transaction_recovery_duration, int(immune) * 1000)


def _type_of(properties: Mapping[str, str]) -> "pb.MessageType.ValueType":
    if properties.get(names.PROPERTY_TRANSACTION, "").lower() == "true":
        return pb.TRANSACTION
    if any(name in properties for name in TIMED):
        return pb.DELAY
    return pb.FIFO if names.PROPERTY_SHARDING_KEY in properties else pb.NORMAL


def _stored(system: pb.SystemProperties, topic: str) -> dict[str, str]:
    """The properties by which the record keeps these fields. Empty ones are not kept."""
    transaction = system.message_type == pb.TRANSACTION
    immune_s = min(system.orphaned_transaction_recovery_duration.seconds, HOUR_S)
    properties = {
        names.PROPERTY_UNIQUE_KEY: system.message_id,
        names.PROPERTY_TAGS: system.tag,
        names.PROPERTY_KEYS: " ".join(system.keys),
        names.PROPERTY_SHARDING_KEY: system.message_group,
        names.PROPERTY_TRACE_CONTEXT: system.trace_context,
        names.PROPERTY_BORN_HOST: system.born_host if _plain(system.born_host) else "",
        names.PROPERTY_BORN_TIMESTAMP: str(ms_of(system.born_timestamp)),
        names.PROPERTY_PRODUCER_GROUP: topic,
        names.PROPERTY_TRANSACTION: "true" if transaction else "",
        names.PROPERTY_CHECK_IMMUNITY: str(immune_s) if transaction and immune_s > 0 else "",
    }
    return {name: value for name, value in properties.items() if value}


def _check_names(system: pb.SystemProperties) -> None:
    tag, group = system.tag, system.message_group
    if system.HasField("tag") and (not tag.strip() or "|" in tag or not _plain(tag)):
        raise StatusError(pb.ILLEGAL_MESSAGE_TAG, f"{tag!r:.60} is no tag")
    for key in system.keys:
        if not key.strip() or not _plain(key):
            raise StatusError(pb.ILLEGAL_MESSAGE_KEY, f"{key!r:.60} is no key")
    good = group.strip() and _plain(group) and len(group.encode()) < MOST_GROUP_BYTES
    if system.HasField("message_group") and not good:
        raise StatusError(pb.ILLEGAL_MESSAGE_GROUP, f"{group!r:.60} is no message group")
    if not _plain(system.trace_context):
        raise StatusError(pb.BAD_REQUEST, "the trace context holds control characters")


def _check_user(properties: Mapping[str, str]) -> None:
    if len(properties) > MOST_PROPERTIES:
        text = f"the message has {len(properties)} properties, at most {MOST_PROPERTIES} are taken"
        raise StatusError(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)
    if sum(len(name.encode()) + len(value.encode()) for name, value in properties.items()) > MOST_PROPERTY_BYTES:
        text = f"the properties take more than {MOST_PROPERTY_BYTES} bytes"
        raise StatusError(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)
    for name, value in properties.items():
        if name in HIDDEN or not name.strip() or not _plain(name) or not _plain(value):
            raise StatusError(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"{name!r:.60} is no property that a program may set")


def _plain(text: str) -> bool:
    """Without control characters, of which two part the properties of a record."""
    return not any(letter < " " or letter == "\x7f" for letter in text)
