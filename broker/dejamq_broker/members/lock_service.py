"""Queue locks with a clock and a journal, for members of ordered groups."""

import logging
from collections.abc import Callable, Iterable, Sequence

from dejamq_proto.journal.events import Lock, Unlock
from dejamq_proto.journal.writer import Journal

from dejamq_broker.members.locks import LockAnswer, LockTable, QueueAt
from dejamq_broker.tables.offsets import Asker

log = logging.getLogger(__name__)


class LockService:
    """Owned by the event loop. Every request is in the journal: nothing else tells which member had a queue when.

    The ages are by the wall clock, as RocketMQ's (cause R12), unless ``age_clock`` says otherwise. Neither
    groups nor topics are checked, so that a member may lock before the broker knows them.

    RocketMQ: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ.
    """

    def __init__(self, broker_name: str, life_ms: float, journal: Journal, clock_ms: Callable[[], int]) -> None:
        self._broker_name, self._journal, self._clock_ms = broker_name, journal, clock_ms
        self._table, self._life_ms = LockTable(life_ms), round(life_ms)

    def lock(self, group: str, queues: Sequence[QueueAt], asker: Asker) -> list[QueueAt]:
        """Lock or renew; gives those that the client holds now, which may be fewer."""
        answers = self._table.lock(group, asker.client_id, queues, self._clock_ms())
        for each in answers:
            if not each.granted:
                log.info(
                    "lock_refused group=%s client=%s topic=%s queue=%d owner=%s age_ms=%d",
                    group, asker.client_id, each.queue.topic, each.queue.queue_id, each.owner, each.age_ms,
                )  # fmt: skip
        self._tell(Lock, group, answers, asker)
        return [each.queue for each in answers if each.granted]

    def unlock(self, group: str, queues: Iterable[QueueAt], asker: Asker) -> None:
        """Free the client's own locks; locks of other clients are left alone."""
        self._tell(Unlock, group, self._table.unlock(group, asker.client_id, queues, self._clock_ms()), asker)

    def all_expired(self, group: str) -> bool:
        """No member of the group holds a lock."""
        return self._table.all_expired(group, self._clock_ms())

    def _tell(self, kind: type[Lock] | type[Unlock], group: str, answers: Iterable[LockAnswer], asker: Asker) -> None:
        if not self._journal.on:
            return
        for each in answers:
            told = kind(
                broker_name=self._broker_name, group=group, topic=each.queue.topic, queue_id=each.queue.queue_id,
                client_id=asker.client_id, client_boot_id=asker.boot_id, granted=each.granted, owner=each.owner,
                age_ms=each.age_ms, request_seq=asker.seq,
            )  # fmt: skip
            if isinstance(told, Lock) and each.granted:
                told.life_ms = self._life_ms
            self._journal.write(told)
