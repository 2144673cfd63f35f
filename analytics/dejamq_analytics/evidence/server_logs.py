"""Logs of RocketMQ's brokers and name servers: broker.log, store.log, lock.log, transaction.log, namesrv.log.

RocketMQ 5.3 writes lock.log into filter.log.

Their times are whole seconds. Accepted commits that go forward, reads of offsets and pulls are in none of them.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dejamq_analytics.evidence.client_log import QUEUE
from dejamq_analytics.evidence.mark import Mark, Queue, whole
from dejamq_analytics.evidence.text_lines import Line

CLIENT = r"ClientChannelInfo \[channel=\[.*?R:/?(?P<address>[^\]\s]+)\].*?clientId=(?P<client_id>[^,]+)"
PATTERNS: dict[str, str] = {
    "set": r"- (?P<name>brokerName|brokerId|brokerIP1|listenPort|brokerRole|flushConsumerOffsetInterval)=(?P<text>\S+)",
    "joined": rf"new consumer connected, group: (?P<group>\S+) .*?channel: {CLIENT}",
    "left": rf"unregister a consumer\[(?P<group>[^\]]+)\] from consumerGroupInfo {CLIENT}",
    "lost": rf"NETTY EVENT: remove not active channel\[{CLIENT}.*consumer group: (?P<group>\S+)",
    "expired": rf"SCAN: remove expired channel from ConsumerManager consumerTable\. "
    rf"channel=(?:{CLIENT}|/?(?P<remote>[^,\s]+)).*"
    r"consumerGroup=(?P<group>\S+)",
    "lowered": r"update consumer offset less than store\. clientHost=/?(?P<address>[^,]+), key=(?P<topic>[^@]+)@"
    r"(?P<group>[^,]+), queueId=(?P<queue_id>\d+), requestOffset=(?P<new>-?\d+), storeOffset=(?P<old>-?\d+)",
    "reset": r"\[reset-offset\] reset offset started by (?P<address>\S+?)\. topic=(?P<topic>[^,]+), "
    r"group=(?P<group>[^,]+), timestamp=(?P<timestamp>-?\d+)",
    "reset_to": r"Reset offset, topic=(?P<topic>[^,]+), group=(?P<group>[^,]+), queues=(?P<offsets>.*)",
    "reset_one": r"Reset offset OK\. Topic=(?P<topic>[^,]+), group=(?P<group>[^,]+), queueId=(?P<queue_id>\d+), "
    r"resetOffset=(?P<new>-?\d+)",
    "cleaned": r"Clean (?:group's|topic's) offset, (?P<topic>[^@,]+)@(?P<group>[^,]+), (?P<cleaned>\{.*\})",
    "cleaned_all": r"Consumer offset manager clean group offset, groupName=(?P<group>[^,]+), "
    r"offsetTable=true",
    "loaded": r"load \S*?(?P<file>consumerOffset|delayOffset)\.json(?P<bak>\.bak)? OK",
    "began": r"last shutdown (?P<how>normally|abnormally)",
    "recovered": r"message store recover end, and the max phy offset = (?P<log_max>\d+)",
    "locked": r"tryLock(?:Batch)?: lock a message (?:queue )?which has not been locked yet, group=(?P<group>[^,]+), "
    rf"clientId=(?P<client_id>[^,]+), mq={QUEUE}",
    "locked_4": r"tryLock(?:Batch)?, message queue not locked, I got it\. Group: (?P<group>\S+) "
    rf"NewClientId: (?P<client_id>\S+) {QUEUE}",
    "checked": r"Check transaction\. real_topic=(?P<topic>[^,]+), ?uniqKey=(?P<unique_key>[^,]+), ?"
    r"offset=(?P<half_offset>\d+), ?commitLogOffset=(?P<half_log_offset>\d+)",
    "answered": r"Check producer\[(?P<address>[^\]]*)\] transaction state, the producer commit the message\."
    r".*?commitLogOffset=(?P<half_log_offset>\d+)",
    "registered": r"new broker registered, \w+ ?[\[{].*?brokerAddr='?(?P<address>[^'\],}]+)",
    "unregistered": r"unregisterBroker, remove from brokerLiveTable \w+ ?[\[{].*?brokerAddr='?(?P<address>[^'\],}]+)",
    "silent": r"The broker channel expired, \w+ ?[\[{].*?brokerAddr='?(?P<address>[^'\],}]+)",
    "taken_over": rf"tryLock(?:Batch)?: try to lock a expired message queue, group=(?P<group>[^,]+), mq={QUEUE}, "
    r"old client id=(?P<owner>[^,]+), new client id=(?P<client_id>\S+)",
}
ANY = re.compile(
    "consumer connected|unregister|NETTY EVENT|SCAN: remove|less than store|eset.offset|Reset offset|"
    "Offset\\.json|last shutdown|max phy offset|"
    "Clean group's offset|Clean topic's offset|clean group offset|"
    "tryLock|unlockBatch|broker registered|remove from brokerLiveTable|channel expired|"
    "Check transaction\\.|Check producer\\[|"
    "- (?:brokerName|brokerId|brokerIP1|listenPort|brokerRole|flushConsumerOffsetInterval)="
)
RESET_TO = re.compile(r'"queueId":(\d+)[^}]*\}:(-?\d+)')
CLEANED = re.compile(r"(\d+)=(-?\d+)")
COMPILED = [(name, re.compile(pattern).search) for name, pattern in PATTERNS.items()]


def is_one(text: str) -> bool:
    """Whether a line is one that only a server writes."""
    return ANY.search(text) is not None and _read(text) is not None


def marks(lines: Iterable[Line], path: str, host: str) -> Iterator[Mark]:
    """What its lines tell."""
    for line in lines:
        if ANY.search(line.text) is None:
            continue
        told = _read(line.text)
        if told is not None:
            yield Mark(line.at_us, line.within_us, f"{path}:{line.number}", host, told[0], told[1])


def _read(text: str) -> tuple[str, dict[str, Any]] | None:
    for what, search in COMPILED:
        if found := search(text):
            try:
                return what, _said(found.groupdict())
            except ValueError:  # a number that no server writes: the line is damaged
                return None
    return None


def _said(groups: dict[str, str | None]) -> dict[str, Any]:
    said: dict[str, Any] = {name: value for name, value in groups.items() if value is not None}
    if "queue" in said:
        said["queue"] = Queue(said["topic"], said["broker"], whole(said["queue"]))
    if "cleaned" in said:
        said["offsets_before"] = {whole(queue): whole(at) for queue, at in CLEANED.findall(said["cleaned"])}
    if "offsets" in said:
        said["offsets"] = {whole(queue): whole(at) for queue, at in RESET_TO.findall(said["offsets"])}
    for name in ("queue_id", "new", "old", "log_max", "half_offset", "half_log_offset"):
        if name in said:
            said[name] = whole(said[name])
    return said
