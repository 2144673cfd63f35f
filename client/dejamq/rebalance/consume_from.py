"""Where a group begins in a queue, and who of it gets what."""

import asyncio
from enum import Enum
from typing import TypeVar

from dejamq_proto.codes import ConfigError
from dejamq_proto.names import RETRY_PREFIX

from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.offset_store import OffsetStore
from dejamq.values.message import MessageQueue


class ConsumeFrom(Enum):
    """Where a group without a committed offset begins. A committed one always wins.

    For a retry topic LAST_OFFSET means its beginning, or retries from before the first start would never come
    (RocketMQ: RebalancePushImpl.computePullFromWhere).
    """

    LAST_OFFSET = "LAST_OFFSET"
    FIRST_OFFSET = "FIRST_OFFSET"
    TIMESTAMP = "TIMESTAMP"


class MessageModel(Enum):
    """CLUSTERING: the group's members share the messages. BROADCASTING: each member gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


AT_ONCE = 64
"""Questions for the ends of queues: each is a call of its own, and brokers refuse more than a thousand at once."""
Choice = TypeVar("Choice", bound=Enum)


def choice(kind: type[Choice], given: object) -> Choice:
    """The member itself, or the member of this value. Raises ConfigError that lists the members."""
    try:
        return kind(given)
    except ValueError:
        known = ", ".join(one.value for one in kind)
        raise ConfigError(f"{given!r} is no {kind.__name__}; use one of {known}") from None


class StartRule:
    """Finds the first offset of a newly owned queue. Source: RocketMQ ``RebalancePushImpl.computePullFromWhere``."""

    def __init__(self, context: ConsumerContext, offsets: OffsetStore, rule: ConsumeFrom, timestamp_ms: int) -> None:
        self._context, self._offsets, self.rule, self._timestamp_ms = context, offsets, rule, timestamp_ms
        self._questions = asyncio.Semaphore(AT_ONCE)

    async def start_of(self, queue: MessageQueue) -> tuple[int, str]:
        """The offset and its source for the journal. Raises DejamqError: then the queue must not be opened now.

        A queue whose beginning is still in memory is young. For a group it does not know the broker answers 0 there, so
        a new group starts at the beginning of a young queue whatever the rule says. RocketMQ asks it once. Here a queue
        that got its first messages between that question and the one for its end counts as young too. A broadcasting
        member asks no broker for offsets of its group.
        """
        stored, kept = await self._offsets.load(queue), self._offsets.source
        if stored is not None:
            return stored, kept
        async with self._questions:
            offset, rule = await self._by_rule(queue)
            if rule == "last" and offset and kept == "broker":
                stored = await self._offsets.load(queue)
        if stored is not None:
            return stored, kept
        return offset, rule if kept == "broker" else f"{kept}_{rule}"

    async def _by_rule(self, queue: MessageQueue) -> tuple[int, str]:
        link, retry = self._context.link(queue.broker_name), queue.topic.startswith(RETRY_PREFIX)
        if self.rule is ConsumeFrom.FIRST_OFFSET or (self.rule is ConsumeFrom.LAST_OFFSET and retry):
            return 0, "first"
        if self.rule is ConsumeFrom.LAST_OFFSET or retry:
            return await link.max_offset(queue.topic, queue.queue_id), "last"
        return await link.search_offset(queue.topic, queue.queue_id, self._timestamp_ms), "timestamp"
