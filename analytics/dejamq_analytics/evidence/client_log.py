"""``rocketmq_client.log`` of RocketMQ's Java client, 4.9 and 5, in its own layout or the application's.

Lines are known by their words, so that any layout that begins with a date will do.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dejamq_analytics.evidence.mark import Mark, QueueName, whole
from dejamq_analytics.evidence.text_lines import Line


def to(text: str) -> str:
    """A pattern of everything up to this text, of its first occurrence only: the time is linear in the line, whatever
    stands in it. A search would begin again at each occurrence.
    """
    return f"(?>.*?{text})"


QUEUE = r"MessageQueue \[topic=(?P<topic>[^,\[\]]+), brokerName=(?P<broker>[^,\[\]]+), queueId=(?P<queue>\d+)\]"
ALL_QUEUES = re.compile(QUEUE)
ROUTED = re.compile(r"BrokerData \[brokerName=([^,\[\]]+), brokerAddrs=\{([^{}]*)\}")
OF_ONE = "(?:(?!queueId=).)*?"
MESSAGE = re.compile(
    rf"queueId=(\d++)(?>{OF_ONE}queueOffset=)(\d++)(?>{OF_ONE}reconsumeTimes=)(\d++)(?>{OF_ONE}UNIQ_KEY=)(\w+)"
)

PATTERNS: dict[str, str] = {
    "created": to("Created a new client Instance, InstanceIndex:") + r"\d+, ClientID:(?P<client_id>[^,\s]+)"
    rf"(?:{to('persistConsumerOffsetInterval=')}(?P<interval_ms>\d+))?",
    "starting": to(r"the consumer \[") + r"(?P<group>[^\]]+)\] start beginning\. messageModel=(?P<model>\w+)",
    "stopped": to(r"the consumer \[") + r"(?P<group>[^\]]+)\] shutdown OK",
    "closed": to(r"the client factory \[") + r"(?P<client_id>[^\]]+)\] shutdown OK",
    "told": to(r"receive broker's notification\[")
    + r"(?P<address>[^\]]+)\], the consumer group: (?P<group>\S+) changed",
    "assigned": to(r"rebalanced result changed\. allocateMessageQueueStrategyName=") + r"(?P<strategy>[^,]+), "
    r"group=(?P<group>[^,]+), topic=(?P<topic_of_round>[^,]+), clientId=(?P<client_id>[^,]+), "
    r"mqAllSize=(?P<all_queues>\d+), cidAllSize=(?P<all_members>\d+), rebalanceResultSize=\d+, "
    r"rebalanceResultSet=\[(?P<queues>.*)\]",
    "opened": to("doRebalance, ") + rf"(?P<group>[^,]+), add a new mq, {QUEUE}",
    "begun": to("doRebalance, ")
    + r"(?P<group>[^,]+), add a new pull request PullRequest \["
    + to(QUEUE)
    + to("nextOffset=")
    + r"(?P<value>\d+)",
    "idle": to(r"\[BUG\]doRebalance, ") + rf"(?P<group>[^,]+), (?:try )?remove unnecessary mq, {QUEUE}",
    "fixed": to("Fix Offset, ") + rf"(?P<group>[^,]+), remove unnecessary mq, {QUEUE}",
    "dropped": to("doRebalance, ") + rf"(?P<group>[^,]+), remove unnecessary mq, {QUEUE}",
    "unsubscribed": to("doRebalance, ")
    + rf"(?P<group>[^,]+), truncateMessageQueueNotMyTopic remove unnecessary mq, {QUEUE}",
    "persisted": to(r"\[(?P<reason>persist|persistAll)\] Group: ") + r"(?P<group>\S+) ClientId: (?P<client_id>\S+) "
    rf"updateConsumeOffsetToBroker {QUEUE} (?P<value>\d+)",
    "not_persisted": to("updateConsumeOffsetToBroker exception, ") + QUEUE,
    "unlocked": to(r"unlock messageQueue\. group:") + rf"(?P<group>[^,]+), clientId:(?P<client_id>[^,]+), mq:{QUEUE}",
    "thrown_away": to(r"processQueue is dropped without process consume result\. messageQueue=")
    + rf"{QUEUE}, msgs=(?P<messages>.*)",
    "suspended_queue": to("consumeMessage Orderly return not OK, Group: ") + r"(?P<group>\S+) Msgs: "
    r"(?P<messages>(?>.*?(?= MQ: ))) MQ: " + QUEUE,
    "interrupted": to(r"consumeMessage exception: java\.lang\.InterruptedException")
    + to(" Group: ")
    + r"(?P<group>\S+) Msgs: (?P<messages>.*)",
    "not_sent_back": to("(?:sendMessageBack [Ee]xception|Failed to send message back)")
    + r",? ?(?:group: |consumerGroup=)?(?P<group>[^,\s]*)",
    "expired": to(r"send expire msg back\. topic=") + r"[^,]*, msgId=(?P<unique_key>\w+), storeHost=[^,]*, "
    r"queueId=(?P<queue_id>\d+), queueOffset=(?P<offset>\d+)",
    "suspended": to("suspend this consumer, ") + r"(?P<group>\S+)",
    "resumed": to("resume this consumer, ") + r"(?P<group>\S+)",
    "lock": to("message queue lock (?P<granted>OK|[Ff]ailed)") + rf",? (?P<group>\S+) {QUEUE}",
    "direct": to("consumeMessageDirectly receive new message: ") + "(?P<messages>.*)",
    "tried_again": to("sendKernelImpl exception, (?P<then>resend at once|throw exception), InvokeID: ")
    + rf"(?P<call>-?\d+), RT: (?P<cost_ms>\d+)ms, Broker: {QUEUE}",
    "routed": to(r"the topic\[")
    + r"(?P<topic_of_route>[^\]]+)\] route info changed, "
    + to(r"new\[")
    + r"(?P<route>.*)\]",
}
CLUES = {
    "updateConsumeOffsetToBroker": ("persisted", "not_persisted"),
    "unlock messageQueue": ("unlocked",),
    "rebalanced result changed": ("assigned",),
    "doRebalance, ": ("opened", "begun", "idle", "dropped", "unsubscribed"),
    "Fix Offset": ("fixed",),
    "a new client Instance": ("created",),
    "the consumer [": ("starting", "stopped"),
    "the client factory [": ("closed",),
    "'s notification[": ("told",),
    "processQueue is dropped": ("thrown_away",),
    "send expire msg back": ("expired",),
    "consumeMessage": ("suspended_queue", "direct", "interrupted"),
    "endMessageBack ": ("not_sent_back",),
    "end message back": ("not_sent_back",),
    "this consumer, ": ("suspended", "resumed"),
    "message queue lock ": ("lock",),
    "sendKernelImpl exception": ("tried_again",),
    "route info changed": ("routed",),
}
"""Words of which one is in every line of use, and the lines that it may be: one look decides for most lines."""
COMPILED: dict[str, list[tuple[str, Callable[[str], re.Match[str] | None]]]] = {
    clue: [(name, re.compile(PATTERNS[name]).match) for name in names] for clue, names in CLUES.items()
}


def is_one(text: str) -> bool:
    """Whether a line is one that only a client writes."""
    return _read(text) is not None


def marks(lines: Iterable[Line], path: str, host: str) -> Iterator[Mark]:
    """What its lines tell."""
    for line in lines:
        if told := _read(line.text):
            yield Mark(line.at_us, line.within_us, f"{path}:{line.number}", host, told[0], told[1], line.pid)


def _read(text: str) -> tuple[str, dict[str, Any]] | None:
    for clue, patterns in COMPILED.items():
        if clue in text:
            for what, match in patterns:
                if found := match(text):
                    return _told(what, found.groupdict())
    return None


def _told(what: str, groups: dict[str, str | None]) -> tuple[str, dict[str, Any]] | None:
    try:
        return what, _said(groups)
    except ValueError:  # a number that no client writes: the line is damaged
        return None


def _said(groups: dict[str, str | None]) -> dict[str, Any]:
    """With queues and numbers as such."""
    said: dict[str, Any] = {name: value for name, value in groups.items() if value is not None}
    if "queue" in said and "topic" in said:
        said["queue"] = QueueName(said["topic"], said["broker"], whole(said["queue"]))
    if "queues" in said:
        said["queues"] = [
            QueueName(one["topic"], one["broker"], whole(one["queue"])) for one in _queues(said["queues"])
        ]
    if "route" in said:
        said["brokers"] = dict(_addresses(said["route"]))
    if "messages" in said:
        said["messages"] = [(whole(q), whole(at), whole(times), key) for q, at, times, key in
                            MESSAGE.findall(said["messages"])]  # fmt: skip
    for name in ("value", "cost_ms", "all_queues", "all_members", "queue_id", "offset", "interval_ms"):
        if name in said:
            said[name] = whole(said[name])
    return said


def _queues(text: str) -> Iterator[re.Match[str]]:
    return ALL_QUEUES.finditer(text)


def _addresses(route: str) -> Iterator[tuple[str, str]]:
    """Name and master's address of each broker of a route."""
    for name, addresses in ROUTED.findall(route):
        for one in addresses.split(", "):
            replica, _, address = one.partition("=")
            if replica == "0":
                yield name, address
