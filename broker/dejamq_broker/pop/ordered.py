"""Pops in order: a queue whose messages somebody has gives no others, and its offset is that of the first one left.

A message that used up its tries is a dead letter when its turn comes again, so that it holds up its queue no longer.
"""

from collections.abc import Callable, Sequence

import msgspec
from dejamq_proto.codes import Code, DejamqError

from dejamq_broker.pop.handles import Handle
from dejamq_broker.pop.order import OrderInfo, OrderQueue
from dejamq_broker.pop.revive import Reviver
from dejamq_broker.pop.state import PopState
from dejamq_broker.tables.offsets import Position
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable


class OrderedPops:
    """Owned by the event loop; it never waits."""

    def __init__(
        self, state: PopState, reviver: Reviver, groups: SubscriptionGroupTable, clock_ms: Callable[[], int],
        freed: Callable[[Position], None],
    ) -> None:  # fmt: skip
        """``freed`` is told of a queue that may give messages again."""
        self._state, self._reviver, self._groups, self._clock_ms = state, reviver, groups, clock_ms
        self._freed = freed

    def wanted(self, queue: OrderQueue, offsets: Sequence[int]) -> list[int]:
        """Those of the messages that were read, from the queue's offset on, that are to be given: none is done."""
        info = queue.info
        if info is None:
            return list(offsets)
        tries = self._tries(queue.at)
        for offset in offsets:
            if offset in info.offsets and offset not in info.done and info.counts.get(offset, 0) >= tries:
                self._reviver.bury(queue.at, offset, info.pop_time, info.invisible_ms)
                info.done.add(offset)
        return [offset for offset in offsets if offset not in info.done]

    def popped(
        self, queue: OrderQueue, offsets: Sequence[int], pop_time: int, invisible_ms: int, attempt_id: str,
        keeper: str,
    ) -> OrderInfo:  # fmt: skip
        """These are given away, and kept for a client, if one is named. Raises what the store raises; then nothing has
        changed.
        """
        before = queue.info or OrderInfo(0, 0, [])
        info = before.after(offsets, pop_time, invisible_ms, attempt_id)
        kept = keeper, frozenset(offsets if keeper else ())
        self._state.ordered(queue, info, queue.next_offset, pop_time, kept)
        return info

    def ack(self, at: Position, handle: Handle) -> bool:
        """Done; False: it was so before.

        Raises NO_MESSAGE for a delivery that is over, MESSAGE_ILLEGAL for a message that was not part of it.
        """
        found = self._info(at, handle)
        if found is None:
            return False
        queue, info = found
        if handle.queue_offset in info.done:
            return False
        self._done(queue, info, handle.queue_offset)
        return True

    def bury(self, at: Position, handle: Handle) -> None:
        """A dead letter, and done; nothing where it was done before. Raises as ``ack``."""
        found = self._info(at, handle)
        if found is None or handle.queue_offset in found[1].done:
            return
        queue, info = found
        self._reviver.bury(at, handle.queue_offset, info.pop_time, info.invisible_ms)
        self._done(queue, info, handle.queue_offset)

    def _done(self, queue: OrderQueue, info: OrderInfo, offset: int) -> None:
        changed = msgspec.structs.replace(info, done=info.done | {offset})
        self._state.ordered(queue, changed, changed.next_offset, self._clock_ms())
        if not queue.blocked(self._clock_ms()):
            self._freed(queue.at)

    def change(self, at: Position, handle: Handle, invisible_ms: int, *, kept: bool = False) -> Handle:
        """The message may come again in so many ms; the handle keeps its pop time. Raises as ``ack``.

        ``kept``: by the broker, for the client that has it.
        """
        found, now_ms = self._info(at, handle), self._clock_ms()
        if found is None or handle.queue_offset in found[1].done:
            raise stale(handle)
        queue, info = found
        visible = info.visible | {handle.queue_offset: now_ms + invisible_ms}
        changed = msgspec.structs.replace(info, visible=visible)
        client_id, offsets = queue.kept
        offsets = offsets if kept else offsets - {handle.queue_offset}
        self._state.ordered(queue, changed, queue.next_offset, now_ms, (client_id, offsets))
        if not queue.blocked(now_ms):
            self._freed(at)
        return msgspec.structs.replace(handle, invisible_ms=now_ms + invisible_ms - info.pop_time)

    def _info(self, at: Position, handle: Handle) -> tuple[OrderQueue, OrderInfo] | None:
        """None: the queue is behind this message, so it was done.

        A pop time may come again: it can run ahead of the clock, and a start forgets it with a batch that is done.
        """
        queue = self._state.orders.get(at)
        if queue is None:
            raise stale(handle)
        same = queue.info is not None and queue.info.pop_time == handle.pop_time
        if queue.info is None or not same or handle.queue_offset not in queue.info.offsets:
            if handle.queue_offset < queue.next_offset:
                return None
            if not same:
                raise stale(handle)
            text = f"the message at offset {handle.queue_offset} was not given with those of this receipt handle"
            raise DejamqError(text, code=Code.MESSAGE_ILLEGAL)
        return queue, queue.info

    def _tries(self, at: Position) -> int:
        group = self._groups.get(at.group)
        return 0 if group is None else group.retry_max_times


def stale(handle: Handle) -> DejamqError:
    """The handle names nothing, or a message that was given away again, or is done by its copy."""
    text = f"nobody has the message at offset {handle.queue_offset} by this receipt handle: it is too old, or was none"
    return DejamqError(text, code=Code.NO_MESSAGE)
