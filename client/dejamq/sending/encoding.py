"""From a message to the bytes of its record, with the checks that ``send`` makes first.

UNIQ_KEY comes first with 32 digits: brokers and the journal find it there without decoding.
"""

from functools import lru_cache

import msgspec
from dejamq_proto.codes import Code, DejamqError, InvalidName, MessageTooLarge
from dejamq_proto.names import (
    PROPERTY_DEDUP_BY,
    PROPERTY_DEDUP_ID,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER,
    PROPERTY_TRANSACTION,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
    RESERVED_PROPERTIES,
    check_sendable,
    trimmed,
)
from dejamq_proto.records.record import HEADER_SIZE, I16, MAX_PROPERTIES_SIZE, Outgoing, tags_code

from dejamq.values.message import Message

UNIQUE_NAME = f"{PROPERTY_UNIQUE_KEY}\x01".encode()
KNOWN_BY_ID = f"{PROPERTY_DEDUP_BY}\x01{PROPERTY_UNIQUE_KEY}\x02"
LATEST_MS = 10**15
ID_SIZE = 32
"""Of an id that was not given by the program."""


class Template(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The common part of messages of one topic, flag and tag.

    ``before``, ``rest`` and ``size`` (bytes, without the body) describe a message that has nothing else.
    """

    topic: str
    record: Outgoing
    tags_code: int
    tags_field: str  # and the word that brokers know the message by its id
    before: bytes
    rest: bytes
    size: int


@lru_cache(maxsize=4096)
def template(topic: str, flag: int, tags: str | None, sys_flag: int = 0, *, known_by_id: bool = False) -> Template:
    """``known_by_id``: brokers know the message by its id.

    Raises InvalidName for a topic or tag that may not be sent, DejamqError for a flag beyond 32 bits.

    Kept for up to 4,096 combinations: programs send to few topics with few tags, and the checks need to be made
    once.
    """
    check_sendable(topic)
    if not -(1 << 31) <= flag < 1 << 31:
        raise DejamqError(f"flag {flag} does not fit 32 bits", code=Code.INVALID_PARAMETER)
    record, tags_field = Outgoing.to(topic, flag=flag, sys_flag=sys_flag), _tags_field(tags) if tags else ""
    tags_field += KNOWN_BY_ID if known_by_id else ""
    rest = _utf8(f"\x02{tags_field}")
    before = before_id(record, ID_SIZE, rest)
    size = HEADER_SIZE + len(before) + ID_SIZE + len(rest)
    return Template(topic, record, tags_code(tags), tags_field, before, rest, size)


def before_id(record: Outgoing, id_size: int, rest: bytes) -> bytes:
    """The bytes between a record's body and the message's id. Raises MessageTooLarge."""
    size = len(UNIQUE_NAME) + id_size + len(rest)
    if size > MAX_PROPERTIES_SIZE:
        raise MessageTooLarge(f"the properties take {size} bytes, at most {MAX_PROPERTIES_SIZE} are possible")
    return record.topic + I16.pack(size) + UNIQUE_NAME


def encode_rest(message: Message, common: Template) -> bytes:
    """The bytes behind the id in the properties of the message's record. Raises InvalidName, DejamqError."""
    keys = _keys_field(message.keys) if message.keys else ""  # type: ignore[arg-type]  # construction made it a tuple
    return _utf8(f"\x02{common.tags_field}{keys}{_other_fields(message)}")


def encode_id(message: Message) -> bytes:
    """The id as the record has it. Raises InvalidName."""
    message_id = message.message_id
    if not message_id or not message_id.isprintable():
        raise InvalidName(f"message_id {message_id!r} is empty or holds a character that cannot be printed")
    return _utf8(message_id)


def transactional(rest: bytes, group: str) -> bytes:
    """``rest`` of a half message, which names its producer group."""
    return rest + f"{PROPERTY_TRANSACTION}\x01true\x02{PROPERTY_PRODUCER_GROUP}\x01{group}\x02".encode()


def check_body(body: bytes, max_message_size: int) -> None:
    """Raises MessageTooLarge, and DejamqError for an empty body.

    The limit is of the body as given (RocketMQ: Validators.checkMessage); what the record adds is the broker's
    concern.
    """
    if len(body) > max_message_size:
        raise MessageTooLarge(
            f"the body has {len(body)} bytes, max_message_size is {max_message_size}; send a reference to it instead, "
            "or raise the limit here and at the brokers"
        )
    if not body:
        raise DejamqError("the body is empty; a message needs at least one byte", code=Code.MESSAGE_ILLEGAL)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidName("a key, tag or property holds half a surrogate pair and cannot be written as UTF-8") from None


def _tags_field(tags: str) -> str:
    """Raises InvalidName for a tag that no subscription can name: expressions are cut at bars and trimmed."""
    if "|" in tags or trimmed(tags) != tags or tags == "*":
        raise InvalidName(
            f"tag {tags!r} cannot be subscribed to: a message has one tag, without bars and without blanks around it"
        )
    return _field(PROPERTY_TAGS, tags)


def _keys_field(keys: tuple[str, ...]) -> str:
    text = keys[0] if len(keys) == 1 else " ".join(keys)
    if text.count(" ") != len(keys) - 1 or not all(keys):
        raise InvalidName(f"a key of {keys!r} is empty or holds a space; spaces separate keys")
    if "\x01" in text or "\x02" in text:
        return _field(PROPERTY_KEYS, text)
    return f"{PROPERTY_KEYS}\x01{text}\x02"


def _other_fields(message: Message) -> str:
    fields = []
    for name, value in message.properties.items():
        if name in RESERVED_PROPERTIES:
            raise InvalidName(
                f"property {name!r} is reserved: Message has an argument for it, or only brokers set it; to forward a "
                "message, give its user_properties"
            )
        fields.append(_field(name, value))
    if message.delay_level < 0:
        raise DejamqError(f"delay_level {message.delay_level} is below 0", code=Code.INVALID_PARAMETER)
    if message.delay_level:
        fields.append(_field(PROPERTY_DELAY, str(message.delay_level)))
    if message.delay_ms is not None or message.deliver_at_ms is not None:
        fields.append(_time_field(message))
    if message.dedup_id is not None:
        fields.append(_field(PROPERTY_DEDUP_ID, message.dedup_id))
    if message.sharding_key:
        fields.append(_field(PROPERTY_SHARDING_KEY, message.sharding_key))
    if not message.wait_store:
        fields.append(_field(PROPERTY_WAIT, "false"))
    return "".join(fields)


def _time_field(message: Message) -> str:
    """Raises INVALID_PARAMETER where it says more than one time, or one that cannot be."""
    name, time_ms = PROPERTY_TIMER_DELAY_MS, message.delay_ms
    if time_ms is None:
        name, time_ms = PROPERTY_TIMER_DELIVER, message.deliver_at_ms
    elif message.deliver_at_ms is not None:
        time_ms = None
    if time_ms is None or message.delay_level:
        text = "a message has one of delay_level, delay_ms and deliver_at_ms"
        raise DejamqError(text, code=Code.INVALID_PARAMETER)
    if not 0 <= time_ms < LATEST_MS:
        raise DejamqError(f"a message cannot be delivered at {time_ms} ms", code=Code.INVALID_PARAMETER)
    return _field(name, str(time_ms))


def _field(name: str, value: str) -> str:
    """Raises InvalidName for what would not be read back as it was written."""
    if not name or not value:
        raise InvalidName(f"property {name!r} or its value is empty; a record keeps no empty ones")
    text = f"{name}\x01{value}\x02"
    if text.count("\x01") != 1 or text.count("\x02") != 1:
        raise InvalidName(f"property {name!r} holds a control character (0x01 or 0x02) that separates properties")
    return text
