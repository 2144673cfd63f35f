"""Logs of RocketMQ's brokers and name servers: broker.log, store.log, lock.log, transaction.log, namesrv.log.

RocketMQ 5.3 writes lock.log into filter.log.

Their times are whole seconds. Accepted commits that go forward, reads of offsets and pulls are in none of them.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dejamq_analytics.evidence.client_log import QUEUE, to
from dejamq_analytics.evidence.mark import Mark, QueueName, whole
from dejamq_analytics.evidence.text_lines import Line

CLIENT = (
    r"ClientChannelInfo \[channel=\[" + to("R:/?") + r"(?P<address>[^\]\s]++)\]" + to("clientId=")
    + r"(?P<client_id>[^,]++)"
)  # fmt: skip
REGISTERED = r"\w+ ?[\[{]" + to("brokerAddr='?") + r"(?P<address>[^'\],}]+)"
SETTINGS = "brokerName|brokerId|brokerIP1|listenPort|brokerRole|flushConsumerOffsetInterval"
PATTERNS: dict[str, str] = {
    "set": to(f"- (?P<name>{SETTINGS})=") + r"(?P<text>\S+)",
    "joined": to("new consumer connected, group: ")
    + r"(?P<group>\S+) \S+ (?P<model>\S+) "
    + to("channel: (?=ClientChannelInfo)")
    + CLIENT,
    "left": to(r"unregister a consumer\[") + rf"(?P<group>[^\]]+)\] from consumerGroupInfo {CLIENT}",
    "lost": to(r"NETTY EVENT: remove not active channel\[") + CLIENT + r"(?>.*consumer group: )(?P<group>\S+)",
    "expired": to(r"SCAN: remove expired channel from ConsumerManager consumerTable\. channel=")
    + rf"(?:{CLIENT}|/?(?P<remote>[^,\s]++))(?>.*consumerGroup=)(?P<group>\S+)",
    "lowered": to(r"update consumer offset less than store\. clientHost=/?") + r"(?P<address>[^,]+), "
    r"key=(?P<topic>[^@]+)@(?P<group>[^,]+), queueId=(?P<queue_id>\d+), requestOffset=(?P<new>-?\d+), "
    r"storeOffset=(?P<old>-?\d+)",
    "reset": to(r"\[reset-offset\] reset offset started by ") + r"(?P<address>\S+?)\. topic=(?P<topic>[^,]+), "
    r"group=(?P<group>[^,]+), timestamp=(?P<timestamp>-?\d+)",
    "reset_to": to("Reset offset, topic=") + "(?P<topic>[^,]+), group=(?P<group>[^,]+), queues=(?P<offsets>.*)",
    "reset_one": to(r"Reset offset OK\. Topic=") + r"(?P<topic>[^,]+), group=(?P<group>[^,]+), "
    r"queueId=(?P<queue_id>\d+), resetOffset=(?P<new>-?\d+)",
    "cleaned": to("Clean (?:group's|topic's) offset, ") + r"(?P<topic>[^@,]+)@(?P<group>[^,]+), (?P<cleaned>\{.*\})",
    "cleaned_all": to("Consumer offset manager clean group offset, groupName=") + "(?P<group>[^,]+), offsetTable=true",
    "loaded": to("load ") + r"\S*?(?P<file>consumerOffset|delayOffset)\.json(?P<bak>\.bak)? OK",
    "began": to("last shutdown (?P<how>normally|abnormally)"),
    "recovered": to("message store recover end, and the max phy offset = ") + r"(?P<log_max>\d+)",
    "locked": to("tryLock(?:Batch)?: lock a message (?:queue )?which has not been locked yet, group=")
    + rf"(?P<group>[^,]+), clientId=(?P<client_id>[^,]+), mq={QUEUE}",
    "locked_4": to(r"tryLock(?:Batch)?, message queue not locked, I got it\. Group: ")
    + rf"(?P<group>\S+) NewClientId: (?P<client_id>\S+) {QUEUE}",
    "checked": to(r"Check transaction\. real_topic=") + r"(?P<topic>[^,]+), ?uniqKey=(?P<unique_key>[^,]+), ?"
    r"offset=(?P<half_offset>\d+), ?commitLogOffset=(?P<half_log_offset>\d+)",
    "answered": to(r"Check producer\[")
    + r"(?P<address>[^\]]*)\] transaction state, the producer commit the message\."
    + to("commitLogOffset=")
    + r"(?P<half_log_offset>\d+)",
    "filtered": to("subscription changed, ")
    + r"(?:add new topic, )?group: (?P<group>\S+) "
    + r"(?P<filters>SubscriptionData.*|OLD: .*)",
    "registered": to("new broker registered, ") + REGISTERED,
    "unregistered": to("unregisterBroker, remove from brokerLiveTable ") + REGISTERED,
    "silent": to("The broker channel expired, ") + REGISTERED,
    "taken_over": to("tryLock(?:Batch)?: try to lock a expired message queue, group=")
    + rf"(?P<group>[^,]+), mq={QUEUE}, "
    r"old client id=(?P<owner>[^,]+), new client id=(?P<client_id>\S+)",
}
CLUES = (
    "consumer connected", "unregister", "NETTY EVENT", "SCAN: remove", "less than store", "eset offset", "Offset.json",
    "last shutdown", "max phy offset", "Clean group's offset", "Clean topic's offset", "clean group offset", "tryLock",
    "broker registered", "channel expired", "Check transaction.", "Check producer[", "expressionType=SQL92",
    *(f"- {name}=" for name in SETTINGS.split("|")),
)  # fmt: skip
"""Words of which one is in every line of use."""
RESET_TO = re.compile(r'"queueId":(\d++)(?>(?:(?!"queueId":)[^{}])*)\}:(-?\d++)')
CLEANED = re.compile(r"(?<!\d)(\d++)=(-?\d++)")
COMPILED = [(name, re.compile(pattern).match) for name, pattern in PATTERNS.items()]


def is_one(text: str) -> bool:
    """Whether a line is one that only a server writes."""
    return _read(text) is not None


def marks(lines: Iterable[Line], path: str, host: str) -> Iterator[Mark]:
    """What its lines tell."""
    for line in lines:
        told = _read(line.text)
        if told is not None:
            yield Mark(line.at_us, line.within_us, f"{path}:{line.number}", host, told[0], told[1])


def _read(text: str) -> tuple[str, dict[str, Any]] | None:
    if not any(clue in text for clue in CLUES):
        return None
    for what, match in COMPILED:
        if found := match(text):
            try:
                return what, _said(found.groupdict())
            except ValueError:  # a number that no server writes: the line is damaged
                return None
    return None


def _said(groups: dict[str, str | None]) -> dict[str, Any]:
    said: dict[str, Any] = {name: value for name, value in groups.items() if value is not None}
    if "queue" in said:
        said["queue"] = QueueName(said["topic"], said["broker"], whole(said["queue"]))
    if "cleaned" in said:
        said["offsets_before"] = {whole(queue): whole(at) for queue, at in CLEANED.findall(said["cleaned"])}
    if "offsets" in said:
        said["offsets"] = {whole(queue): whole(at) for queue, at in RESET_TO.findall(said["offsets"])}
    if "filters" in said:
        said["filters"] = dict(_filters(said["filters"]))
    for name in ("queue_id", "new", "old", "log_max", "half_offset", "half_log_offset"):
        if name in said:
            said[name] = whole(said[name])
    return said


def _filters(text: str) -> Iterator[tuple[str, str]]:
    """Topic and expression of each subscription by SQL92."""
    for one in text.split("SubscriptionData [")[1:]:
        told, _, kind = one.rpartition(", expressionType=")
        topic, _, expression = told.partition(", topic=")[2].partition(", subString=")
        if kind.startswith("SQL92") and topic:
            yield topic, expression.rpartition(", tagsSet=[")[0]
