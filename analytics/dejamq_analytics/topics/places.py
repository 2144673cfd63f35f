"""Offsets of queues: as a mapping here, as nested JSON in options and in Spark's checkpoint. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dejamq_proto.codes import ConfigError

EARLIEST, LATEST = -2, -1
"""In JSON, in place of an offset. The numbers are those of Spark's source for Kafka."""


class TopicQueue(NamedTuple):
    """One queue of a topic at one broker."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} at {self.broker_name}"


Places = Mapping[TopicQueue, int]
"""The next offset to be read of each queue."""


class Piece(NamedTuple):
    """The messages of a queue from ``start`` to before ``end``."""

    queue: TopicQueue
    start: int
    end: int


def to_json(places: Places) -> dict[str, Any]:
    """``{"topic": {"broker-a": {"0": 12}}}``."""
    found: dict[str, Any] = {}
    for queue, offset in sorted(places.items()):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return found


def of_json(value: object) -> dict[TopicQueue, int]:
    """The other way. Raises ConfigError for anything else."""
    try:
        return {
            TopicQueue(topic, broker, int(number)): _offset(offset)
            for topic, brokers in _table(value).items()
            for broker, queues in _table(brokers).items()
            for number, offset in _table(queues).items()
        }
    except (TypeError, ValueError) as error:
        raise ConfigError(f'offsets are written {{"TOPIC": {{"BROKER": {{"QUEUE": OFFSET}}}}}}: {error}') from None


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no table")
    return value


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        raise TypeError(f"{value!r} is no offset: 0 and more, -1 for the latest, -2 for the earliest")
    return value


def limited(start: Places, end: Places, most: int) -> dict[TopicQueue, int]:
    """Ends so that at most ``most`` messages lie between: each queue gets a share by how much it has.

    A queue that ends before its start is left as it is. Every queue of ``end`` is in ``start``.
    """
    waiting = {queue: max(0, offset - start[queue]) for queue, offset in end.items()}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    shares = {queue: most * count // total for queue, count in waiting.items()}
    left = most - sum(shares.values())
    # what rounding has left over goes to those that lost most by it
    for queue in sorted(waiting, key=lambda one: (-(most * waiting[one] % total), one))[:left]:
        shares[queue] += 1
    return {queue: start[queue] + shares[queue] if waiting[queue] else offset for queue, offset in sorted(end.items())}


def pieces(start: Places, end: Places, most: int | None) -> Iterator[Piece]:
    """What lies between, a piece a queue, or several of at most ``most`` messages. Empty ones are left out."""
    for queue, last in sorted(end.items()):
        first = start[queue]
        step = most or max(1, last - first)
        for begin in range(first, last, step):
            yield Piece(queue, begin, min(begin + step, last))
