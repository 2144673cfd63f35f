"""Deliveries for the journal's lines: neighbouring messages of one pull, whose columns are slices of the pull's."""

from collections.abc import Iterator, Sequence

import msgspec
from dejamq_proto.records.json_columns import Listed, counted, joined

from dejamq.receiving.batch import PullBatch
from dejamq.receiving.received import ReceivedMessage


class Stretch(msgspec.Struct, eq=False):
    """Messages ``first`` to ``end`` - 1 of one pull; the delivery number of each is its place there plus ``shift``."""

    batch: PullBatch
    first: int
    end: int
    shift: int


class Stretches:
    """Delivered messages in the order of their deliveries; ``count`` is their number.

    ``batch_sizes`` are the sizes of their batches; empty where each message came alone.
    """

    __slots__ = ("_last", "_parts", "batch_sizes", "count")

    def __init__(self, messages: Sequence[ReceivedMessage] = ()) -> None:
        self.count = 0
        self.batch_sizes: list[int] = []
        self._last: Stretch | None = None
        self._parts: list[Stretch] = []
        if messages:
            self.add(messages)

    def add(self, messages: Sequence[ReceivedMessage]) -> None:
        """Append messages. They come in the order of delivery, and messages of one pull in the pull's order.

        So the two ends tell whether they are one stretch (neighbours in one pull): numbers ascend, and no pull lies
        inside of another one.
        """
        first, final, count = messages[0], messages[-1], len(messages)
        batch, index, shift = first._batch, first._index, first.delivery_number - first._index
        if count > 1 and not (
            final._batch is batch
            and final._index - index == count - 1
            and final.delivery_number - final._index == shift
        ):
            for one in messages:
                self.add((one,))
            return
        last = self._last
        self.count += count
        if last is not None and last.end == index and last.shift == shift and last.batch is batch:
            last.end += count
        else:
            self._last = last = Stretch(batch, index, index + count, shift)
            self._parts.append(last)

    def add_batch(self, messages: Sequence[ReceivedMessage]) -> None:
        """As ``add``, of messages that were given together."""
        self.add(messages)
        self.batch_sizes.append(len(messages))

    @property
    def numbers(self) -> Listed:
        """Delivery numbers."""
        return joined([counted(one.first + one.shift, one.end + one.shift) for one in self._parts])

    @property
    def unique_keys(self) -> Listed:
        return joined([one.batch.listed_keys(one.first, one.end) for one in self._parts])

    @property
    def store_hosts(self) -> list[str]:
        """A single value where all share it."""
        different = {host for one in self._parts for host in one.batch.store_hosts}
        if len(different) == 1:
            return list(different)
        return [host for one in self._parts for host in _each_of(one, one.batch.store_hosts)]

    @property
    def retried(self) -> bool:
        """Some of the pulls they came with brought messages that the group has failed with before."""
        return any(one.batch.retried for one in self._parts)

    def listed(self, name: str) -> Listed:
        """One header field."""
        return joined([one.batch.listed(name, one.first, one.end) for one in self._parts])

    def column(self, name: str) -> list[int]:
        """As ``listed``, for who reads it."""
        return [number for one in self._parts for number in one.batch.column(name)[one.first : one.end]]

    def properties(self) -> Iterator[dict[str, str]]:
        """Decoded for the occasion."""
        for one in self._parts:
            yield from map(one.batch.properties, range(one.first, one.end))


def _each_of(stretch: Stretch, hosts: list[str]) -> list[str]:
    """The value of each message, from the values of a pull."""
    return hosts * (stretch.end - stretch.first) if len(hosts) == 1 else hosts[stretch.first : stretch.end]
