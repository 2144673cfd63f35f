"""Graceful hand-over with a clock, the offsets and a journal: claims and releases of the members that ask for it."""

import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec
from dejamq_proto.journal.events import ClaimEvent, ReleaseEvent
from dejamq_proto.journal.writer import Journal

from dejamq_broker.members.handover import ClaimAnswer, ClaimTable, QueueWish
from dejamq_broker.members.locks import QueueAt
from dejamq_broker.tables.offsets import Asker, OffsetTable, Position

log = logging.getLogger(__name__)


class Returned(msgspec.Struct, frozen=True):
    """A queue that an owner gives back, with the offset at which the next one begins; None leaves the committed one."""

    wish: QueueWish
    queue_offset: int | None = None


class Handovers:
    """Owned by the event loop.

    The journal has every request: that each claim of a queue was released or had expired before the next one was
    granted is proven from it. The ages are by the monotonic clock, so that nobody loses a queue when the time of day is
    set.
    """

    def __init__(
        self, broker_name: str, table: ClaimTable, offsets: OffsetTable, journal: Journal, clock_ms: Callable[[], int],
        off: Callable[[str], str],
    ) -> None:  # fmt: skip
        """``off``: a member for whose sake hand-over is not graceful in a group, '' when it is."""
        self._off = off
        self._broker_name, self._table, self._offsets = broker_name, table, offsets
        self._journal, self._clock_ms = journal, clock_ms

    def claim(self, group: str, wishes: Sequence[QueueWish], asker: Asker) -> list[ClaimAnswer]:
        """Claim or renew; gives those that the client holds now, which may be fewer."""
        answers = self._table.claim(group, asker, wishes, self._clock_ms())
        for each in answers:
            if self._journal.on:
                self._journal.write(ClaimEvent(
                    broker_name=self._broker_name, group=group, topic=each.queue.topic, queue_id=each.queue.queue_id,
                    client_id=asker.client_id, client_boot_id=asker.boot_id, granted=each.granted,
                    generation=each.generation, owner=each.owner, age_ms=each.age_ms, request_seq=asker.seq,
                ))  # fmt: skip
        return [each for each in answers if each.granted]

    def off(self, group: str) -> str:
        """Why hand-over is not graceful in this group now, '' when it is."""
        member = self._off(group)
        return f"member {member} claims no queues" if member else ""

    def release(self, group: str, returned: Iterable[Returned], asker: Asker) -> list[QueueAt]:
        """Commit and free, queue by queue; gives those that were the client's.

        The offset stands in the table before anybody can be given the queue. One whose claim is another's by now
        commits nothing.
        """
        freed = []
        for each in returned:
            answer = self._table.release(group, asker, each.wish, self._clock_ms())
            queue, value = each.wish.queue, each.queue_offset
            if answer.granted:
                freed.append(queue)
                if value is not None:
                    at = Position(group, queue.topic, queue.queue_id)
                    self._offsets.commit(at, value, by="release", asker=asker)
            else:
                text = "release_ignored group=%s client=%s topic=%s queue=%d: the queue is not its own any more"
                log.warning(text, group, asker.client_id, queue.topic, queue.queue_id)
            self._tell_release(group, answer, value, asker)
        return freed

    def fenced(self, at: Position, asker: Asker) -> str:
        """Why a client's commit is to be ignored now, '' when it is not; requests of the broker's own never are."""
        if not asker.boot_id:
            return ""
        queue, now_ms = QueueAt(at.topic, at.queue_id), self._clock_ms()
        why = self._table.fenced(at.group, queue, asker, now_ms)
        return self._table.fenced(at.group, queue, asker, now_ms, off=True) if why and self._off(at.group) else why

    def _tell_release(self, group: str, answer: ClaimAnswer, value: int | None, asker: Asker) -> None:
        if self._journal.on:
            self._journal.write(ReleaseEvent(
                broker_name=self._broker_name, group=group, topic=answer.queue.topic, queue_id=answer.queue.queue_id,
                client_id=asker.client_id, client_boot_id=asker.boot_id, granted=answer.granted,
                generation=answer.generation, value=-1 if value is None else value, request_seq=asker.seq,
            ))  # fmt: skip
