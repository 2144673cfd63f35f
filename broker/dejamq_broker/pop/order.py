"""Queues that are popped in order: one batch at a time, and the next one when each message of it is done. Pure.

Source: RocketMQ ``ConsumerOrderInfoManager``, ``OrderInfo``. There a message that is not acknowledged brings those
behind it again, acknowledged or not. Here these stay done.
"""

from collections.abc import Sequence

import msgspec
from dejamq_proto.texts import MOST_64

from dejamq_broker.base.data_version import Int64
from dejamq_broker.tables.offsets import Position


class OrderInfo(msgspec.Struct):
    """A batch. ``visible`` has messages whose time was changed, ``counts`` the deliveries before this one, above 0."""

    pop_time: int
    invisible_ms: int
    offsets: list[int]
    visible: dict[int, int] = {}
    counts: dict[int, int] = {}
    done: set[int] = set()
    attempt_id: str = ""

    def visible_ms(self, offset: int) -> int:
        return self.visible.get(offset, self.pop_time + self.invisible_ms)

    @property
    def left(self) -> list[int]:
        """Messages that are not done."""
        return [offset for offset in self.offsets if offset not in self.done]

    @property
    def free_ms(self) -> int:
        """When the queue may give messages again; 0 when all are done."""
        return max(map(self.visible_ms, self.left), default=0)

    @property
    def next_offset(self) -> int:
        """The first message that is not done, else the one behind the last."""
        return next(iter(self.left), self.offsets[-1] + 1)

    def after(self, offsets: Sequence[int], pop_time: int, invisible_ms: int, attempt_id: str) -> "OrderInfo":
        """The next batch, of messages that are left of this one and of others behind it.

        Whatever is done behind the first message stays so. The same attempt again counts as one delivery.
        """
        again = bool(attempt_id) and attempt_id == self.attempt_id
        before = set(self.offsets)
        counts = {
            offset: self.counts.get(offset, 0) + (not again)
            for offset in offsets
            if offset in before and (self.counts.get(offset) or not again)
        }
        done = {offset for offset in self.done if offset > offsets[0]}
        return OrderInfo(
            pop_time, invisible_ms, sorted(done.union(offsets)), counts=counts, done=done, attempt_id=attempt_id
        )

    def encode(self, now_ms: int) -> bytes:
        """As RocketMQ's file has it: offsets after the first as distances to it, ``done`` as bits."""
        first = self.offsets[0]
        return msgspec.json.encode(_Stored(
            pop_time=self.pop_time, invisible_ms=self.invisible_ms, last_ms=now_ms,
            offsets=[first, *(offset - first for offset in self.offsets[1:])], visible=self.visible,
            counts=self.counts, attempt_id=self.attempt_id or None,
            done=sum(1 << at for at, offset in enumerate(self.offsets) if offset in self.done),
        ))  # fmt: skip

    @classmethod
    def read(cls, raw: bytes) -> "OrderInfo | None":
        """None for an entry without messages. Raises msgspec.DecodeError for what is no entry."""
        stored = msgspec.json.decode(raw, type=_Stored, strict=False)
        if not stored.offsets:
            return None
        first, *distances = stored.offsets
        offsets = [first, *(first + distance for distance in distances)]
        if not (min(offsets) >= 0 and max(offsets) <= MOST_64):
            raise msgspec.ValidationError("an offset of it is none of a queue")
        done = {offset for at, offset in enumerate(offsets) if stored.done >> at & 1}
        return cls(
            stored.pop_time, stored.invisible_ms or 0, offsets, stored.visible or {}, stored.counts or {}, done,
            stored.attempt_id or "",
        )  # fmt: skip


class OrderQueue(msgspec.Struct, eq=False):
    """One queue for one group. ``place`` is the offset of its newest record in the revive topic, -1 without one."""

    at: Position
    next_offset: int
    info: OrderInfo | None = None
    place: int = -1
    pop_time: int = 0
    kept: tuple[str, frozenset[int]] = "", frozenset()
    """The client for whom the broker keeps messages of the batch, and these."""

    def blocked(self, now_ms: int, attempt_id: str = "") -> bool:
        """Whether messages of it are in flight, unless this very attempt is made again."""
        if self.info is None or (attempt_id and attempt_id == self.info.attempt_id):
            return False
        return self.info.free_ms > now_ms


class _Stored(msgspec.Struct, omit_defaults=True):
    pop_time: Int64 = msgspec.field(name="popTime")
    invisible_ms: Int64 | None = msgspec.field(name="i", default=None)
    offsets: list[Int64] = msgspec.field(name="o", default_factory=list)
    visible: dict[Int64, Int64] | None = msgspec.field(name="ot", default=None)
    counts: dict[Int64, Int64] | None = msgspec.field(name="oc", default=None)
    last_ms: Int64 = msgspec.field(name="l", default=0)
    done: int = msgspec.field(name="cm", default=0)
    attempt_id: str | None = msgspec.field(name="a", default=None)
