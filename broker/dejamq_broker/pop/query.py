"""What a consumer asks for, and what it is given. Values."""

import msgspec

from dejamq_broker.filters.chosen import Wanted
from dejamq_broker.pop.handles import Handle
from dejamq_broker.tables.offsets import NOBODY, Asker

ANY_QUEUE = -1
MOST_MESSAGES = 1024
"""Of one pop: the event loop has others to serve."""
POINT_MESSAGES = 32
"""Of one check point: RocketMQ keeps which of them are acknowledged in the bits of a number."""
DEFAULT_BYTES = 4 << 20


class PopQuery(msgspec.Struct, kw_only=True):
    """One request. ``topic`` is the one that was sent to; the group's retries of it are given too.

    ``from_min``: a group that has no offset begins with the oldest message, else near the end. ``attempt_id`` names a
    request that is repeated, where messages are popped in order. ``kept``: the broker keeps what it gives for this
    client until it says what became of it. ``tags`` and ``wanted`` are filled in by ``begin``.
    """

    group: str
    topic: str
    asker: Asker = NOBODY
    queue_id: int = ANY_QUEUE
    max_messages: int = POINT_MESSAGES
    max_bytes: int = DEFAULT_BYTES
    invisible_ms: int = 60_000
    from_min: bool = False
    expression: str = "*"
    expression_type: str = "TAG"
    ordered: bool = False
    kept: bool = False
    attempt_id: str = ""
    tags: frozenset[int] | None = None
    wanted: Wanted | None = None


class Popped(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue, given at one time. ``kind`` tells the topic, as in handles.

    ``sizes`` are those of the records in ``records``. ``counts``, one a message, are the deliveries before this one;
    they are told where messages are popped in order, and stand in the record elsewhere.
    """

    topic: str
    kind: int
    queue_id: int
    start_offset: int
    pop_time: int
    invisible_ms: int
    revive_queue_id: int
    broker_name: str
    offsets: tuple[int, ...]
    log_offsets: tuple[int, ...]
    sizes: list[int]
    records: bytes
    counts: tuple[int, ...] = ()

    def handles(self) -> list[Handle]:
        """One a message."""
        return [
            Handle(
                self.start_offset, self.pop_time, self.invisible_ms, self.revive_queue_id, self.kind, self.broker_name,
                self.queue_id, offset, log_offset,
            )
            for offset, log_offset in zip(self.offsets, self.log_offsets, strict=True)
        ]  # fmt: skip

    def handle_texts(self) -> list[str]:
        """As ``handles``, as clients get them."""
        head = (
            f"{self.start_offset} {self.pop_time} {self.invisible_ms} {self.revive_queue_id} {self.kind} "
            f"{self.broker_name} {self.queue_id}"
        )
        return [f"{head} {offset} {log}" for offset, log in zip(self.offsets, self.log_offsets, strict=True)]


class PopAnswer(msgspec.Struct, frozen=True):
    """``rest`` are messages that wait behind those given; those of queues that were passed over count too."""

    pop_time: int
    batches: tuple[Popped, ...] = ()
    rest: int = 0
