"""Reserved names, and the rules for topics and groups. Source: RocketMQ ``MixAll``, ``TopicValidator``."""

import re

from dejamq_proto.codes import InvalidName

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
TOOLS_GROUP = "TOOLS_CONSUMER"
"""RocketMQ's group of its own tools: every broker has it, so that who only looks needs no group."""
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
REPLY_SUFFIX = "_REPLY_TOPIC"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
MAX_TOPIC_SIZE = 127
MAX_GROUP_SIZE = 120
MAX_INTERNAL_TOPIC_SIZE = 255
MAX_REASON_SIZE = 200
MASTER_ID = 0
DIRECT = "grpc:"
"""The listener name by which a broker advertises gRPC's own port, beside its public one; no host is called so."""

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
PROPERTY_TRACE_CONTEXT = "TRACE_CONTEXT"
PROPERTY_BORN_HOST = "__BORNHOST"
PROPERTY_BORN_TIMESTAMP = "BORN_TIMESTAMP"
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
PROPERTY_POP_CK = "POP_CK"
PROPERTY_FIRST_POP_TIME = "1ST_POP_TIME"
PROPERTY_TIMER_DELIVER = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT = "TIMER_OUT_MS"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
ASKING_FOR_A_TIME = (PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER)
"""The properties of a message that is to be delivered at a time. The first one that is there counts."""
PROPERTY_TIMER_ENQUEUED = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUED = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLLS = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DELETE_KEY = "TIMER_DEL_UNIQKEY"
PROPERTY_DEDUP_ID = "DEDUP_ID"  # this and the next one are ours: the broker stores no second message with this id
PROPERTY_DEDUP_BY = "DEDUP_BY"
"""With the value ``UNIQ_KEY``, and no DEDUP_ID, the client-made id is the one that no second message may have."""
PROPERTY_POP_REF = "POP_REF"  # this one is ours: which delivery a copy was made of
DEDUP_PROPERTIES = (PROPERTY_DEDUP_ID, PROPERTY_DEDUP_BY)
MESSAGE_TYPE_REPLY = "reply"

RESERVED_PROPERTIES = frozenset({
    PROPERTY_UNIQUE_KEY, PROPERTY_TAGS, PROPERTY_KEYS, PROPERTY_DELAY, PROPERTY_WAIT, PROPERTY_SHARDING_KEY,
    PROPERTY_TRANSACTION, PROPERTY_PRODUCER_GROUP, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE, PROPERTY_RETRY_TOPIC,
    PROPERTY_ORIGIN_MESSAGE_ID, PROPERTY_RECONSUME_TIME, PROPERTY_MAX_RECONSUME_TIMES, PROPERTY_DEAD_LETTER_REASON,
    PROPERTY_REPLAY_OF, PROPERTY_REPLAYED_FROM, PROPERTY_CHECK_TIMES, PROPERTY_PREPARED_QUEUE_OFFSET,
    PROPERTY_TRANSACTION_ID, PROPERTY_PUSH_REPLY_TIME, "REPLY_MESSAGE_ARRIVE_TIME",
    "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "MSG_REGION", "TRACE_ON",
    "EXTEND_UNIQ_INFO", "CONSUME_START_TIME", "INNER_NUM", "INNER_BASE", "DUP_INFO", "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET", PROPERTY_POP_CK, "POP_CK_OFFSET", PROPERTY_FIRST_POP_TIME,
    PROPERTY_POP_REF, "ORIGIN_GROUP", "DLQ_ORIGIN_TOPIC",
    "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_QUEUE_ID", "DLQ_ORIGIN_QUEUE_OFFSET", "DLQ_ORIGIN_BROKER_NAME", "__CRC32#",
    "TIMER_DELAY_LEVEL", PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELIVER, "TIMER_IN_MS",
    PROPERTY_TIMER_OUT, PROPERTY_TIMER_ENQUEUED, PROPERTY_TIMER_DEQUEUED, PROPERTY_TIMER_ROLLS,
    PROPERTY_TIMER_DELETE_KEY, "TIMER_DEL_FLAG", PROPERTY_DEDUP_ID, PROPERTY_DEDUP_BY,
})  # fmt: skip
"""Properties that a message has as arguments of its own, or that only the SDK and brokers set.

Names of requests and replies are not among them: a program that answers requests by hand sets them.
Source: RocketMQ ``MessageConst.STRING_HASH_SET``.
"""
REQUEST_PROPERTIES = frozenset({
    PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT, PROPERTY_TTL, PROPERTY_MESSAGE_TYPE, PROPERTY_CLUSTER,
})  # fmt: skip
"""Properties that say whose request a message is and who waits for the reply. A forwarded copy leaves them out."""

_BLANKS = "".join(map(chr, range(ord(" ") + 1)))
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def trimmed(text: str) -> str:
    """The text as Java's ``String.trim`` leaves it: without blanks and control characters around it."""
    return text.strip(_BLANKS)


def retry_topic(group: str) -> str:
    """Where a group's failed messages wait for their next try; every member is subscribed to it."""
    return RETRY_PREFIX + group


def pop_retry_topic(group: str, topic: str, *, v2: bool = False) -> str:
    """Where the messages of a topic that a group popped and did not acknowledge come again.

    The first form cannot be taken apart without knowing the group: both names may hold ``_``.
    """
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def revive_topic(cluster: str) -> str:
    """Where a broker keeps which messages are popped, and which of them are acknowledged."""
    return REVIVE_PREFIX + cluster


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
