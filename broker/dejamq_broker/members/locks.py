"""Locks on queues, so that one member at a time consumes a queue in order. Pure: the time is an argument.

In memory only, as in RocketMQ: a broker that restarts has forgotten every lock, and gives a queue to the first that
asks (cause R10). The owner is the client id, so two processes that share one both hold the lock (cause R4). Source:
RocketMQ ``RebalanceLockManager``.
"""

from collections.abc import Iterable

import msgspec

MOST = 100_000
"""Locks, and claims, that a broker keeps: names are not checked, and nobody may fill its memory with invented ones."""


class QueueAt(msgspec.Struct, frozen=True):
    """A queue of this broker."""

    topic: str
    queue_id: int


class LockAnswer(msgspec.Struct, frozen=True):
    """The result for one lock that was asked for or given back.

    ``owner`` held it before, '' when nobody did (nor an expired one); ``age_ms`` is how long ago that one asked for it
    last.
    """

    queue: QueueAt
    granted: bool
    owner: str = ""
    age_ms: int = 0


class _Lock(msgspec.Struct):
    client_id: str
    renewed_ms: int


class LockTable:
    """The locks of all groups. Owned by the event loop; nothing here waits or raises."""

    def __init__(self, life_ms: float) -> None:
        """A lock older than ``life_ms`` may be taken by anybody."""
        self._life_ms = life_ms
        self._groups: dict[str, dict[QueueAt, _Lock]] = {}
        self._count = 0

    def lock(self, group: str, client_id: str, queues: Iterable[QueueAt], now_ms: int) -> list[LockAnswer]:
        """Give each queue that is free, expired or the client's own; having some of them is normal."""
        return [self._lock(self._groups.setdefault(group, {}), queue, client_id, now_ms) for queue in queues]

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueAt], now_ms: int) -> list[LockAnswer]:
        """Free those that are the client's own; another member's lock stays as it is (``granted`` False)."""
        held = self._groups.get(group, {})
        return [self._unlock(held, queue, client_id, now_ms) for queue in queues]

    def all_expired(self, group: str, now_ms: int) -> bool:
        """No member of the group holds a lock: it does not consume in order now (RocketMQ: isLockAllExpired)."""
        return all(self._expired(lock, now_ms) for lock in self._groups.get(group, {}).values())

    def _lock(self, held: dict[QueueAt, _Lock], queue: QueueAt, client_id: str, now_ms: int) -> LockAnswer:
        lock = held.get(queue)
        if lock is None:
            if self._count >= MOST and not self._forget_expired(now_ms):
                return LockAnswer(queue, False)
            held[queue] = _Lock(client_id, now_ms)
            self._count += 1
            return LockAnswer(queue, True)
        answer = LockAnswer(queue, lock.client_id == client_id or self._expired(lock, now_ms), *_before(lock, now_ms))
        if answer.granted:
            held[queue] = _Lock(client_id, now_ms)
        return answer

    def _unlock(self, held: dict[QueueAt, _Lock], queue: QueueAt, client_id: str, now_ms: int) -> LockAnswer:
        lock = held.get(queue)
        if lock is None:
            return LockAnswer(queue, False)
        answer = LockAnswer(queue, lock.client_id == client_id, *_before(lock, now_ms))
        if answer.granted:
            del held[queue]
            self._count -= 1
        return answer

    def _forget_expired(self, now_ms: int) -> bool:
        """Make space. False when every lock is alive."""
        for held in self._groups.values():
            for queue in [queue for queue, lock in held.items() if self._expired(lock, now_ms)]:
                del held[queue]
        self._groups = {group: held for group, held in self._groups.items() if held}
        self._count = sum(map(len, self._groups.values()))
        return self._count < MOST

    def _expired(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._life_ms


def _before(lock: _Lock, now_ms: int) -> tuple[str, int]:
    return lock.client_id, now_ms - lock.renewed_ms
