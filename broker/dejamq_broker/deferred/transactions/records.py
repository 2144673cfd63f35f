"""The records of a transaction: half, put back, committed, given up, and the marks of ended half messages. Pure.

A half message is the program's message in RMQ_SYS_TRANS_HALF_TOPIC, with its own topic and queue in REAL_TOPIC and
REAL_QID. Committed, it is stored once more where it belongs; its properties still have REAL_TOPIC, REAL_QID and
TRAN_MSG, as in RocketMQ. Source: RocketMQ ``TransactionalMessageBridge``, ``EndTransactionProcessor``.
"""

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.hosts import Host
from dejamq_proto.records.record import (
    MAX_PROPERTIES_SIZE,
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_MASK,
    BadRecord,
    Record,
    encode_properties,
)
from dejamq_proto.texts import number_of

from dejamq_broker.store.log.entries import LONGEST_LEVEL

OP_TAG = "d"
SEPARATOR = ","
OWN_PROPERTIES_SIZE = 128
"""Kept free for the properties that rounds add to a half message when they put it back."""
TransactionKey = tuple[str, str]
"""The topic of a transaction's message, and its id."""


def is_transactional(record: Record, properties: dict[str, str]) -> bool:
    """Whether a sent record begins a transaction; a consumer's retry of one does not.

    Source: RocketMQ ``SendMessageProcessor``.
    """
    retried = record.reconsume_times > 0 and _number(properties.get(names.PROPERTY_DELAY)) > 0
    return properties.get(names.PROPERTY_TRANSACTION, "").lower() == "true" and not retried


def half_trouble(properties: dict[str, str]) -> str:
    """Why these properties begin no transaction; '' when they do.

    RocketMQ stores all of them: a delayed one then loses its own topic, one without a group can never be ended.
    """
    if _number(properties.get(names.PROPERTY_DELAY)) > 0:
        return "a message of a transaction cannot have a delay"
    if not properties.get(names.PROPERTY_PRODUCER_GROUP):
        return "a message of a transaction names its producer group in PGROUP"
    if not properties.get(names.PROPERTY_UNIQUE_KEY):
        return "a message of a transaction has a UNIQ_KEY, which is the transaction's id"
    return ""


def half_of(record: Record, properties: dict[str, str]) -> Record:
    """The record as consumers of its topic do not see it.

    Raises BadRecord for properties so long that a check could not add its own.
    """
    waiting = properties | {
        names.PROPERTY_TRANSACTION_ID: properties[names.PROPERTY_UNIQUE_KEY],
        names.PROPERTY_REAL_TOPIC: record.topic,
        names.PROPERTY_REAL_QUEUE: str(record.queue_id),
    }
    raw = encode_properties(waiting)
    if len(raw) > MAX_PROPERTIES_SIZE - OWN_PROPERTIES_SIZE:
        raise BadRecord(f"properties of {len(raw)} bytes leave no room for those of a transaction")
    return msgspec.structs.replace(
        record, topic=names.HALF_TOPIC, queue_id=0, raw_properties=raw,
        sys_flag=record.sys_flag & ~SYS_TRANSACTION_MASK, magic=None,
    )  # fmt: skip


def has_place(half: Record) -> bool:
    """Whether it says where it belongs; all that brokers store do."""
    properties = half.properties
    return bool(properties.get(names.PROPERTY_REAL_TOPIC)) and _is_number(properties.get(names.PROPERTY_REAL_QUEUE, ""))


def own_place(half: Record) -> Record:
    """The half message as its program knows it, at its own topic and queue.

    Raises SYSTEM_ERROR for one that does not say where that is.
    """
    if not has_place(half):
        text = f"the half message at log offset {half.log_offset} does not say where it belongs"
        raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
    properties = half.properties
    topic, queue = properties[names.PROPERTY_REAL_TOPIC], properties[names.PROPERTY_REAL_QUEUE]
    return msgspec.structs.replace(half, topic=topic, queue_id=int(queue), magic=None)


def committed(half: Record, store_host: Host) -> Record:
    """What consumers get. Raises as ``own_place``."""
    sys_flag = half.sys_flag & ~SYS_TRANSACTION_MASK | SYS_TRANSACTION_COMMIT
    return msgspec.structs.replace(
        own_place(half), sys_flag=sys_flag, prepared_transaction_offset=half.log_offset, store_host=store_host
    )


def put_back(half: Record, **changes: str) -> Record:
    """The half message for the end of its queue, with these properties changed."""
    return msgspec.structs.replace(half, raw_properties=encode_properties(half.properties | changes))


def given_up(half: Record) -> Record:
    """The half message as it is kept for people when nobody could say how it ended."""
    return msgspec.structs.replace(half, topic=names.GIVEN_UP_TOPIC, queue_id=0, magic=None)


def half_again(record: Record) -> Record:
    """The half message of one that was given up, as if nobody had been asked about it."""
    return msgspec.structs.replace(
        put_back(record, **{names.PROPERTY_CHECK_TIMES: "0"}), topic=names.HALF_TOPIC, queue_id=0, magic=None
    )


def op_of(half_offsets: list[int], now_ms: int, store_host: Host) -> Record:
    """The mark that these half messages have ended. RocketMQ 4 wrote one for each of them."""
    body = "".join(f"{offset}{SEPARATOR}" for offset in half_offsets).encode()
    return Record(
        names.OP_TOPIC, 0, body, encode_properties({names.PROPERTY_TAGS: OP_TAG}),
        born_timestamp_ms=now_ms, born_host=store_host, store_host=store_host,
    )  # fmt: skip


def ended_by(op: Record) -> list[int]:
    """The half messages that an op message marks; none for one with another tag."""
    if op.properties.get(names.PROPERTY_TAGS) != OP_TAG:
        return []
    pieces = op.body.decode("utf-8", "replace").split(SEPARATOR)
    return [number for piece in pieces if (number := number_of(piece)) is not None]


def unique_key(half: Record) -> str:
    """The transaction's id, which its half messages share; one without (no RocketMQ client makes it) is alone."""
    return half.properties.get(names.PROPERTY_UNIQUE_KEY) or f"@{half.queue_offset}"


def transaction_of(half: Record) -> TransactionKey:
    """What its half messages have in common. The id alone would let another topic's half message take their place."""
    return half.properties.get(names.PROPERTY_REAL_TOPIC, ""), unique_key(half)


def check_times(properties: dict[str, str]) -> int:
    """How often producers were asked about it."""
    return _number(properties.get(names.PROPERTY_CHECK_TIMES))


def immunity_ms(properties: dict[str, str], timeout_ms: int) -> int | None:
    """The time after its birth in which it is not asked about, where its program says so in whole seconds.

    A text that is no number, and -1 too, means the ordinary time-out. Source: RocketMQ ``TransactionalMessageUtil``.
    """
    text = properties.get(names.PROPERTY_CHECK_IMMUNITY)
    if not text:
        return None
    return int(text) * 1000 if _is_number(text) else timeout_ms


def prepared_offset(properties: dict[str, str]) -> int | None:
    """Where an immune half message was stored first; its producer ends the transaction by that place."""
    return number_of(properties.get(names.PROPERTY_PREPARED_QUEUE_OFFSET))


def _number(text: str | None) -> int:
    return int(text) if text and _is_number(text) else 0


def _is_number(text: str) -> bool:
    """Short ones only: Python refuses to read numbers of thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= LONGEST_LEVEL
