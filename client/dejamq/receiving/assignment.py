"""Which queues this client owns: a value that is replaced, never edited."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dejamq_proto.journal.events import Deliver, Handout, Persist, Result
from dejamq_proto.names import MASTER_ID, RETRY_PREFIX
from dejamq_proto.pull_pb2 import PullRequest

from dejamq.receiving.counts import QueueCounts
from dejamq.receiving.delivery_columns import Stretches
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue

LATELY_S = 1.0
"""For so long a queue that had nothing more is taken to have nothing more."""


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Templates of the journal's lines about one ownership: each line is a copy of one of these, filled in.

    ``entered`` and ``succeeded`` are for one message; they are filled in themselves, again and again.
    """

    handout: Handout
    deliver: Deliver
    result: Result
    persist: Persist
    entered: Deliver
    succeeded: Result
    plain: bool
    """Deliveries need no more than this says, unless the group has failed with their messages before."""


@dataclass(slots=True, eq=False)
class OwnedQueue:
    """One ownership of one queue, from PQ_OPEN to PQ_DROP in the journal; the same queue regained is another one.

    Its fetch task belongs to it and ends with it. ``entered`` and ``succeeded`` gather deliveries for the journal.
    """

    number: int
    queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    expression: str = "*"
    expression_type: str = "TAG"
    tags: frozenset[str] = frozenset()
    subscription_version: int = 0
    last_pull_s: float = 0.0
    last_consume_s: float = 0.0
    """When a handler of it ended last, by ``Context.age_s``, as of the last time that this was counted."""
    corrected_offset: int | None = None
    """Where the broker says to go on, when ours is outside the queue or an operator moved it; ends this ownership."""
    correction: str = "illegal"
    """Which of the two: illegal, reset."""
    locked_at_s: float | None = None
    """When its lock was last asked for with success, by ``Context.age_s``; None without one. For consumption
    in order."""
    lock_lost: bool = False
    """A broker refused to renew the lock: the queue is somebody else's, and so is its progress."""
    generation: int = 0
    """Of the claim on it; 0 without graceful hand-over."""
    claim_lost: bool = False
    """A broker gave the queue to another member; its progress is that one's."""
    replica: int = MASTER_ID
    """Which of the queue's brokers the last answer said to pull from."""
    read_from: int = MASTER_ID
    """Which one the last pull went to."""
    max_offset: int | None = None
    """The end of the queue as the broker told it last."""
    told_s: float = 0.0
    """When that was, by ``Context.age_s``."""
    in_line: bool = False
    """It waits until all queues together hold less, however long that takes."""
    counts: QueueCounts = field(default_factory=QueueCounts)
    """What was pulled and handled, for the statistics."""
    fetching: asyncio.Task[None] | None = None
    entered: Stretches = field(default_factory=Stretches)
    succeeded: Stretches = field(default_factory=Stretches)
    lines: Lines | None = None
    committed_offset: int = field(init=False)
    """Where it began, then what a commit said last."""
    came: list[ReceivedMessage] = field(default_factory=list)
    """What the last pull brought, in the process queue and not with its handlers yet."""
    asking: PullRequest | None = None
    """What all its pulls have in common; of ``subscription_version``."""

    def has_more(self, now_s: float) -> bool | None:
        """Whether the broker has told of messages that have not come yet; None where it has told nothing lately."""
        if self.max_offset is None:
            return None
        if self.next_offset < self.max_offset:
            return True
        return False if now_s - self.told_s < LATELY_S else None

    def __post_init__(self) -> None:
        self.committed_offset = self.next_offset

    @property
    def uncommitted(self) -> int:
        """How many offsets were finished since the last commit."""
        offset = self.process_queue.commit_offset
        if offset is None or self.dropped:
            return 0
        return max(0, offset - self.committed_offset)

    @property
    def dropped(self) -> bool:
        """Results count for nothing any more."""
        return self.process_queue.dropped


@dataclass(frozen=True, slots=True)
class Assignment:
    """The queues owned at one moment.

    Replaced as a whole by the rebalancer and read by everybody else of the same loop; whoever keeps one sees
    the moment it was taken at, never half of a change.
    """

    owned: Mapping[MessageQueue, OwnedQueue] = field(default_factory=dict)

    def __iter__(self) -> Iterator[OwnedQueue]:
        return iter(self.owned.values())

    def __contains__(self, queue: object) -> bool:
        return queue in self.owned

    def by_topic(self) -> dict[str, set[MessageQueue]]:
        """The owned queues of each topic that has any."""
        found: dict[str, set[MessageQueue]] = {}
        for queue in self.owned:
            found.setdefault(queue.topic, set()).add(queue)
        return found

    def queues(self) -> tuple[MessageQueue, ...]:
        """Sorted, without the group's own retry queue, which no program subscribed to."""
        return tuple(sorted(queue for queue in self.owned if not queue.topic.startswith(RETRY_PREFIX)))

    def without(self, leaving: Iterable[OwnedQueue]) -> "Assignment":
        """The assignment after these ownerships ended."""
        gone = {id(one) for one in leaving}
        return Assignment({queue: one for queue, one in self.owned.items() if id(one) not in gone})

    def plus(self, one: OwnedQueue) -> "Assignment":
        """The assignment with one more ownership."""
        return Assignment({**self.owned, one.queue: one})

    @property
    def cached_bytes(self) -> int:
        """Bodies held for handlers in all owned queues."""
        return sum(one.process_queue.cached_bytes for one in self)


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """The queues that each broker has, in their order, by broker name."""
    parts: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        parts.setdefault(queue.broker_name, []).append(queue)
    return parts
