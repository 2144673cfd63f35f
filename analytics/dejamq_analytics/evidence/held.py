"""The process queues of a client, from the lines of its log that open, drop and persist queues, as journal events."""

from collections.abc import Callable
from typing import Any

from dejamq_analytics.evidence.client import DROPPED, LAST, OPENED, PERSISTED, ClientStart, Hold
from dejamq_analytics.evidence.mark import SECOND, Mark, QueueName

DROPS = {"dropped": "reassigned", "unsubscribed": "unsubscribed", "idle": "pull_idle", "fixed": "illegal"}
SHUTDOWN_US = 10 * SECOND
ONE_ROUND_US = SECOND
"""All lines of one round of allocation are this close to one another."""
ASSIGNED = OPENED - 1


class _Held:
    """The process queues that a client has while its log is read. Each mark gives its event at once.

    Only the offset that a queue began at is known later.
    """

    def __init__(self, client: ClientStart) -> None:
        self._client = client
        self._now: dict[tuple[str, QueueName], Hold] = {}
        self._rounds = 0
        self._read: dict[str, Callable[[Mark], None]] = {
            "opened": self._open, "begun": self._begin, "persisted": self._persist, "stopped": self._stop,
            "assigned": self._assign, "suspended": self._state, "resumed": self._state, "closed": self._close,
            "not_persisted": self._not_persisted, "unlocked": self._unlock,
        } | dict.fromkeys(DROPS, self._drop)  # fmt: skip

    def read(self, mark: Mark) -> None:
        if mark.what in self._read:
            self._read[mark.what](mark)

    def _hold(self, mark: Mark, opened: Mark | None) -> Hold:
        group, queue = mark.said["group"], mark.said["queue"]
        hold = self._now[group, queue] = self._client.open(group, queue, opened)
        return hold

    def _open(self, mark: Mark) -> None:
        hold = self._hold(mark, mark)
        source = "local" if hold.group in self._client.broadcasting else "broker"
        hold.opening = self._client.add(
            mark, "PQ_OPEN", OPENED, **_place(hold), client_id=self._client.client_id, source=source
        )

    def _begin(self, mark: Mark) -> None:
        """Where it begins: a client of version 4 says it after it has opened the queue, a Go client says only this."""
        if (mark.said["group"], mark.said["queue"]) not in self._now:
            self._open(mark)
        hold = self._now[mark.said["group"], mark.said["queue"]]
        hold.begun_at = mark.said["value"]

    def _persist(self, mark: Mark) -> None:
        if "queue" not in mark.said:
            return
        hold = self._now.get((mark.said["group"], mark.said["queue"])) or self._hold(mark, None)
        hold.persist(mark.at_us, mark.said["value"])
        reason = "timer" if mark.said["reason"] == "persistAll" else "drop"
        told = self._client.add(
            mark, "PERSIST", PERSISTED, **_place(hold), value=mark.said["value"], reason=reason, request_seq=0
        )
        hold.told_last = told

    def _not_persisted(self, mark: Mark) -> None:
        """The line does not name the group: it is of the only one that has the queue."""
        holds = [hold for (_, queue), hold in self._now.items() if queue == mark.said["queue"]]
        if len(holds) == 1:
            holds[0].not_told.append(mark.at_us)

    def _unlock(self, mark: Mark) -> None:
        """A queue in order. Its lock is given back for good, also where a handler of it still works."""
        if hold := self._client.hold_at(mark.said["group"], mark.said["queue"], mark.at_us):
            hold.unlocking = (
                mark.at_us,
                self._client.add(mark, "UNLOCK", DROPPED, **_place(hold), client_id=self._client.client_id),
            )

    def _drop(self, mark: Mark) -> None:
        if hold := self._now.pop((mark.said.get("group", ""), mark.said["queue"]), None):
            self._gone(hold, mark, DROPS[mark.what])

    def _stop(self, mark: Mark) -> None:
        """A client that ends tells its offsets first, and says that it has ended after others may have its queues."""
        for key in [key for key in self._now if key[0] == mark.said["group"]]:
            hold = self._now.pop(key)
            last_us = hold.persisted[-1][0] if hold.persisted else 0
            at_us = last_us if mark.at_us - last_us < SHUTDOWN_US else mark.at_us
            if hold.told_last is not None and at_us == last_us:
                hold.told_last["reason"] = "shutdown"
            self._gone(hold, mark._replace(at_us=at_us), "shutdown")

    def _gone(self, hold: Hold, mark: Mark, reason: str) -> None:
        hold.ended_us = mark.at_us
        hold.dropping = self._client.add(
            mark, "PQ_DROP", DROPPED, **_place(hold), reason=reason,
            mem_off=hold.persisted[-1][1] if hold.persisted else 0,
        )  # fmt: skip

    def _assign(self, mark: Mark) -> None:
        """A log tells how many queues and members there were, not which: what differs in number differs."""
        self._rounds += 1
        said = mark.said
        # the line stands behind those of the queues that the round opened
        since_us = mark.at_us - ONE_ROUND_US
        opened = [hold.opened.at_us for hold in self._now.values() if hold.opened and hold.opened.at_us >= since_us]
        begun = mark._replace(at_us=min(opened, default=mark.at_us))
        self._client.add(
            begun, "ASSIGN", ASSIGNED, group=said["group"], topic=said["topic_of_round"],
            client_id=self._client.client_id, round=self._rounds, namesrv="", broker_name="",
            route_digest=f"{said['all_queues']} queues", strategy=said["strategy"],
            members=[f"{said['all_members']} members"],
            queues=sorted(f"{one.broker_name}:{one.queue_id}" for one in said["queues"]),
        )  # fmt: skip

    def _state(self, mark: Mark) -> None:
        self._client.add(mark, "STATE", state=mark.what, group=mark.said["group"])

    def _close(self, mark: Mark) -> None:
        self._client.add(mark, "STATE", LAST, state="closed", client_id=self._client.client_id)


def _place(hold: Hold) -> dict[str, Any]:
    return {
        "pq_id": hold.pq_id, "group": hold.group, "topic": hold.queue.topic, "broker_name": hold.queue.broker_name,
        "queue_id": hold.queue.queue_id,
    }  # fmt: skip


def events(client: ClientStart) -> None:
    """Its process queues, and what its log tells of them."""
    held = _Held(client)
    for mark in client.marks:
        held.read(mark)


def complete(client: ClientStart) -> None:
    """What only its deliveries tell: where each queue began, and how many handlers worked when it was dropped."""
    for hold in client.holds:
        if hold.opening is not None:
            hold.opening["start_offset"] = hold.start
        if hold.dropping is not None:
            hold.dropping["in_flight"] = hold.in_flight(hold.ended_us or 0)
        if hold.unlocking is not None:
            at_us, told = hold.unlocking
            told["forced"] = hold.in_flight(at_us) > 0
