"""Messages that their consumers keep for longer than they said: the broker renews the invisible time by itself.

A consumer holds the handle that it was given first, and goes on with it. Check points say for whom they are kept, so a
start goes on with that. RocketMQ's proxy forgets it all. Source: RocketMQ ``DefaultReceiptHandleManager``,
``RenewStrategyPolicy``.
"""

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec
from dejamq_proto.codes import DejamqError

from dejamq_broker.base.config import PopSettings
from dejamq_broker.pop.flight import Keeper
from dejamq_broker.pop.handles import KINDS, NORMAL, ORDER_QUEUE, Handle, physical_topic
from dejamq_broker.pop.records import REVIVE_QUEUE
from dejamq_broker.pop.revive import first_topic
from dejamq_broker.pop.service import Pops
from dejamq_broker.tables.offsets import Asker, Position

log = logging.getLogger(__name__)
LADDER_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""What each further renewal asks for; the last one serves all others."""
GONE_MS = 1_000
"""Messages of a client that is gone are visible again after this time, if not sooner."""
EARLIER_MS = 10
"""The clock goes on meanwhile, and nothing of it may be visible later than it would have been."""


class HandedMessage(NamedTuple):
    """A message as its consumer names it, by its first handle."""

    at: Position
    offset: int
    start_offset: int
    pop_time: int

    @classmethod
    def of(cls, group: str, topic: str, handle: Handle) -> "HandedMessage":
        """``topic`` is the one that was asked for."""
        at = Position(group, physical_topic(group, topic, handle.kind), handle.queue_id)
        return cls(at, handle.queue_offset, handle.start_offset, handle.pop_time)


class KeptMessage(msgspec.Struct, eq=False):
    """One message in a consumer's hands. ``topic`` is the one that was asked for, ``handle`` is today's."""

    asker: Asker
    topic: str
    handle: Handle
    times: int = 0


class Renewals:
    """Owned by the event loop; it never waits."""

    def __init__(self, pops: Pops, broker_name: str, settings: PopSettings, clock_ms: Callable[[], int]) -> None:
        self._pops, self._broker_name, self._settings, self._clock_ms = pops, broker_name, settings, clock_ms
        self._kept: dict[HandedMessage, KeptMessage] = {}
        self._by_client: dict[str, set[HandedMessage]] = {}
        self._due: list[tuple[int, int, HandedMessage]] = []
        self._count = 0
        self._awaits_until_ms = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, asker: Asker, group: str, topic: str, handles: Iterable[Handle]) -> None:
        """The client was given these, and keeps them until it says what became of them, or is gone."""
        for handle in handles:
            self._keep(HandedMessage.of(group, topic, handle), KeptMessage(asker, topic, handle))

    def resume(self, *, clean: bool) -> None:
        """Go on with what was kept when the broker ended. Clients have a while to come back.

        After a crash, a client that nobody renewed for may never have got its messages. Those come again when their
        time is over.
        """
        now_ms = self._clock_ms()
        for delivery, kept in tuple(self._left()):
            if not clean and not kept.times:
                continue
            ends_soon = kept.handle.pop_time + kept.handle.invisible_ms <= now_ms + self._settings.renew_ahead_time_ms
            if not ends_soon or self._change(delivery, kept, self._settings.default_invisible_time_ms):
                self._keep(delivery, kept)
        if self._kept:
            self._awaits_until_ms = now_ms + self._settings.default_invisible_time_ms

    def ended(self, group: str, topic: str, handle: Handle) -> Handle:
        """Its consumer decides about the message now: today's handle, which is renewed no more."""
        return self._forget(HandedMessage.of(group, topic, handle)) or handle

    def gone(self, client_id: str) -> None:
        """The client has ended: what it has comes again soon."""
        for delivery in tuple(self._by_client.get(client_id, ())):
            kept = self._kept[delivery]
            self._forget(delivery)
            left_ms = kept.handle.pop_time + kept.handle.invisible_ms - self._clock_ms() - EARLIER_MS
            self._change(delivery, kept, min(GONE_MS, max(0, left_ms)), go_on=False)

    def turn(self, alive: Callable[[str], bool]) -> None:
        """Renew what ends soon; ``alive`` knows which clients are there."""
        now_ms = self._clock_ms()
        while self._due and self._due[0][0] <= now_ms:
            _, _, delivery = heapq.heappop(self._due)
            kept = self._kept.get(delivery)
            if kept is None:
                continue
            if not alive(kept.asker.client_id) and now_ms >= self._awaits_until_ms:
                self.gone(kept.asker.client_id)
            elif now_ms - delivery.pop_time >= self._settings.renew_max_time_ms or not self._renewed(delivery, kept):
                self._forget(delivery)

    def _left(self) -> Iterator[tuple[HandedMessage, KeptMessage]]:
        """By what the records say."""
        state, broker = self._pops.state, self._broker_name
        for queue in state.flights:
            topic = first_topic(queue.at)
            kind = next(kind for kind in KINDS if physical_topic(queue.at.group, topic, kind) == queue.at.topic)
            for point in queue.popped.values():
                if (keeper := point.keeper) is None:
                    continue
                for offset in sorted(point.left):
                    handle = Handle(
                        point.start_offset, point.pop_time, point.invisible_ms, REVIVE_QUEUE, kind, broker,
                        queue.at.queue_id, offset,
                    )  # fmt: skip
                    first = HandedMessage(queue.at, offset, keeper.start_offset, keeper.pop_time)
                    yield first, KeptMessage(Asker(keeper.client_id), topic, handle, keeper.times)
        for ordered in state.orders.values():
            client_id, offsets = ordered.kept
            if (info := ordered.info) is None:
                continue
            for offset in sorted(offsets.intersection(info.left)):
                invisible_ms = info.visible_ms(offset) - info.pop_time
                start = info.offsets[0]
                handle = Handle(
                    start, info.pop_time, invisible_ms, ORDER_QUEUE, NORMAL, broker, ordered.at.queue_id, offset
                )  # fmt: skip
                kept = KeptMessage(Asker(client_id), ordered.at.topic, handle, int(offset in info.visible))
                yield HandedMessage(ordered.at, offset, start, info.pop_time), kept

    def _keep(self, delivery: HandedMessage, kept: KeptMessage) -> None:
        self._kept[delivery] = kept
        self._by_client.setdefault(kept.asker.client_id, set()).add(delivery)
        self._look_later(delivery, kept)

    def _renewed(self, delivery: HandedMessage, kept: KeptMessage) -> bool:
        scale = self._settings.default_invisible_time_ms / LADDER_MS[0]
        longer_ms = round(LADDER_MS[min(kept.times, len(LADDER_MS) - 1)] * scale)
        if not self._change(delivery, kept, longer_ms):
            return False
        self._look_later(delivery, kept)
        return True

    def _change(self, delivery: HandedMessage, kept: KeptMessage, invisible_ms: int, *, go_on: bool = True) -> bool:
        """False when the message is not this consumer's any more, or cannot be kept. ``go_on``: it is kept on."""
        group, topic, times = delivery.at.group, kept.topic, kept.times + 1
        keeper = Keeper(kept.asker.client_id, times, delivery.start_offset, delivery.pop_time) if go_on else None
        try:
            kept.handle = self._pops.change(group, topic, kept.handle, invisible_ms, kept.asker, keeper)
        except DejamqError as error:
            log.info("not_renewed group=%s topic=%s reason=%s", group, topic, error)
            return False
        kept.times = times
        return True

    def _look_later(self, delivery: HandedMessage, kept: KeptMessage) -> None:
        """Entries of messages that are done leave the heap before they outnumber the others."""
        self._count += 1
        visible_ms = kept.handle.pop_time + kept.handle.invisible_ms
        heapq.heappush(self._due, (visible_ms - self._settings.renew_ahead_time_ms, self._count, delivery))
        if len(self._due) > 64 + 2 * len(self._kept):
            self._due = [entry for entry in self._due if entry[2] in self._kept]
            heapq.heapify(self._due)

    def _forget(self, delivery: HandedMessage) -> Handle | None:
        kept = self._kept.pop(delivery, None)
        if kept is None:
            return None
        client_id = kept.asker.client_id
        self._by_client[client_id].discard(delivery)
        if not self._by_client[client_id]:
            del self._by_client[client_id]
        return kept.handle
