"""Reserved names, and the rules for topics and groups. Source: RocketMQ ``MixAll``, ``TopicValidator``."""

import re

from dejamq_proto.codes import InvalidName

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
REPLY_SUFFIX = "_REPLY_TOPIC"
MAX_TOPIC_SIZE = 127
MAX_GROUP_SIZE = 120
MAX_INTERNAL_TOPIC_SIZE = 255
MAX_REASON_SIZE = 200
MASTER_ID = 0

PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4

NOT_FOR_SENDING = frozenset({
    SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
})  # fmt: skip
SYSTEM_TOPICS = frozenset({AUTO_CREATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"})
SYSTEM_PREFIX = "rmq_sys_"
NOT_FOR_GROUPS = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})

PROPERTY_UNIQUE_KEY = "UNIQ_KEY"
PROPERTY_TAGS = "TAGS"
PROPERTY_KEYS = "KEYS"
PROPERTY_DELAY = "DELAY"
PROPERTY_WAIT = "WAIT"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE = "REAL_QID"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_DEAD_LETTER_REASON = "DEAD_LETTER_REASON"  # this and the next two are ours
PROPERTY_REPLAY_OF = "REPLAY_OF"
PROPERTY_REPLAYED_FROM = "REPLAYED_FROM"
PROPERTY_SHARDING_KEY = "__SHARDINGKEY"
PROPERTY_CLUSTER = "CLUSTER"
PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_TTL = "TTL"
PROPERTY_MESSAGE_TYPE = "MSG_TYPE"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PROPERTY_TRANSACTION = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_TRANSACTION_ID = "__transactionId__"
PROPERTY_CHECK_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
MESSAGE_TYPE_REPLY = "reply"

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    """Where a group's failed messages wait for their next try; every member is subscribed to it."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where a group's messages end that used up their tries."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Where the answers to requests go; each broker has one, and hands what comes there to the client that asked."""
    return cluster + REPLY_SUFFIX


def is_internal(topic: str) -> bool:
    """Topics that the broker makes for itself, by prefix."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_system(topic: str) -> bool:
    """Topics that a broker keeps for itself and nobody changes or deletes (RocketMQ: ``TopicValidator``)."""
    return topic in NOT_FOR_SENDING or topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def check_topic(topic: str) -> None:
    """Raise InvalidName with the rule that the name breaks."""
    limit = MAX_INTERNAL_TOPIC_SIZE if isinstance(topic, str) and is_internal(topic) else MAX_TOPIC_SIZE
    _check("topic", topic, limit)


def check_sendable(topic: str) -> None:
    """As ``check_topic``, and refuses the system topics that only a broker writes to."""
    check_topic(topic)
    if topic in NOT_FOR_SENDING:
        raise InvalidName(f"topic {topic!r} belongs to the broker itself; send to a topic of your own")


def check_group(group: str) -> None:
    """Raise InvalidName for a name that breaks the rules or is reserved (RocketMQ: Validators.checkGroup)."""
    _check("group", group, MAX_GROUP_SIZE)
    if group in NOT_FOR_GROUPS:
        raise InvalidName(f"group {group!r} is reserved; choose a name of your own")


def reason_text(text: str) -> str:
    """Why something failed, as a property can hold it: at most 200 characters, none of them a control character."""
    printable = "".join(letter if letter >= " " else " " for letter in text[:MAX_REASON_SIZE])
    return printable.encode("utf-8", "replace").decode().strip()


def _check(kind: str, name: str, limit: int) -> None:
    if not isinstance(name, str):
        raise InvalidName(f"the name of a {kind} is a text, not {name!r}")
    if not name.strip():
        raise InvalidName(f"the {kind} name is empty")
    if not _LEGAL.fullmatch(name):
        raise InvalidName(f"{kind} {name!r} may hold only letters, digits and the characters % | _ -")
    if len(name) > limit:
        raise InvalidName(f"{kind} {name[:20]!r}… has {len(name)} characters, at most {limit} are allowed")
