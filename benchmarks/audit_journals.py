"""Journals for benchmarks of the audit, by the real writer, with a truth that is known.

A broker and consumers leave lines as real ones do. ``Shape`` says how deliveries are spread and what comes twice.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dejamq_proto.journal.events import (
    Append,
    Boot,
    Deliver,
    OffGet,
    OffSet,
    Persist,
    PqDrop,
    PqOpen,
    Result,
    Sendback,
    SendResultEvent,
    SendTry,
    State,
)
from dejamq_proto.journal.writer import Journal, Level, journal_name
from dejamq_proto.names import SCHEDULE_TOPIC, retry_topic

BROKER, QUEUES = "broker-a", 8
RUN = 64
START_S = 1_790_000_000.0
TURNS = 10
"""So many consumers of a group, one after the other, each with its own end."""
ENDS = ("killed", "stuck", "overtaken", "sent twice", "failed")
"""What makes the last messages of a consumer's turn come again: O1, O7, O8, P1, and L1, which was asked for."""
LEVEL = 3
"""The delay level of a first retry."""
LATER = 1 << 40
"""Log offsets of what waits for its delay, apart from those of messages."""
LOST: dict[str, Any] = {"outcome": "connection_lost", "definite": False}
STORED: dict[str, Any] = {"outcome": "ok"}


class Shape(NamedTuple):
    """How deliveries are spread: over so many groups and topics, and this share of them in one queue.

    ``again`` is the share of messages that come twice. ``members`` are those of a broadcasting group.
    """

    groups: int
    topics: int
    in_first_queue: float = 1 / QUEUES
    again: float = 0.0
    members: int = 0


SHAPES = {
    "even": Shape(8, 8), "skewed": Shape(8, 8, 0.9), "huge": Shape(1, 1), "shared": Shape(8, 4),
    "again": Shape(8, 8, again=0.1), "broadcast": Shape(1, 1, members=5),
}  # fmt: skip


class Clock:
    """So much time a line, whoever writes; it stands still otherwise."""

    def __init__(self, line_s: float = 1e-5) -> None:
        self.now_s, self._line_s = START_S, line_s

    def __call__(self) -> float:
        self.now_s += self._line_s
        return self.now_s


class Queue:
    """A queue as one group reads it: how far the group is, in runs, and what the broker has yet to hear of that.

    ``keys`` are unique keys of runs that are copies of other messages.
    """

    def __init__(self, group: str, topic: str, queue_id: int, pq_id: int) -> None:
        self.place: dict[str, Any] = {"group": group, "topic": topic, "broker_name": BROKER, "queue_id": queue_id}
        self.pq_id, self.start = pq_id, 0
        self.late: OffSet | None = None
        self.keys: dict[int, list[str]] = {}


def _queues(number: int, shape: Shape) -> list[Queue]:
    """Of a group."""
    group, topic = f"group-{number}", f"orders-{number % shape.topics}"
    return [Queue(group, topic, queue_id, queue_id + 1) for queue_id in range(QUEUES)]


class Writer:
    """The journals of one run in a directory. ``delivered`` counts what consumers journalled, ``again`` of these what
    nobody had asked for a second time, ``asked_for`` what somebody had.
    """

    def __init__(self, directory: Path, run: int = RUN, clock: Callable[[], float] | None = None) -> None:
        self._directory, self._clock, self._size = directory, clock or Clock(), run
        self.delivered = self.again = self.asked_for = 0
        self._waiting = self._requests = 0
        self.broker = self._journal("broker", BROKER)
        self.broker.write(Boot(broker_name=BROKER, broker_id=0, address="127.0.0.1:10911", clean=True))

    def write(self, deliveries: int, shape: Shape) -> None:
        write = self._broadcast if shape.members else self._take_turns if shape.again else self._group
        for number in range(shape.groups):
            write(number, deliveries // shape.groups, shape)
        self._end(self.broker)

    def _group(self, number: int, deliveries: int, shape: Shape) -> None:
        """The first consumer is killed with a run in flight in every queue; the second one begins at the offsets."""
        first, second = (self._journal("consumer", f"group-{number}-c{nth}") for nth in (1, 2))
        rest = deliveries * (1 - shape.in_first_queue) / (QUEUES - 1)
        for queue in _queues(number, shape):
            count = int(deliveries * shape.in_first_queue if queue.pq_id == 1 else rest)
            runs = max(2, count // self._size)
            if number < shape.topics:
                self._store(queue, range(runs))
            self._open(first, queue)
            self._handle(first, queue, range(runs - 1))
            self._deliver(first, queue, runs - 1)
            self._commit(first, queue, runs - 1)
            self._open(second, queue)
            self._handle(second, queue, range(runs - 1, runs))
            self._commit(second, queue, runs)
            self.again += self._size
        self.asked_for += number >= shape.topics  # one finding tells of all that two groups had
        first.close()
        self._end(second)

    def _broadcast(self, number: int, deliveries: int, shape: Shape) -> None:
        """Each member has every message and keeps its own offsets."""
        runs = max(1, deliveries // (shape.members * QUEUES * self._size))
        for queue in _queues(number, shape):
            self._store(queue, range(runs))
        for nth in range(shape.members):
            member = self._journal("consumer", f"group-{number}-c{nth}")
            for queue in _queues(number, shape):
                self._open(member, queue, source="local")
                self._handle(member, queue, range(runs))
                self.asked_for += runs * self._size * (nth > 0)
            self._end(member)

    def _take_turns(self, number: int, deliveries: int, shape: Shape) -> None:
        runs = max(2, deliveries // (QUEUES * TURNS * self._size))
        for _ in self.turns(number, runs, max(1, int(runs * shape.again)), TURNS):
            pass

    def turns(self, number: int, runs: int, tail: int, turns: int) -> Iterator[int]:
        """One consumer after the other has so many runs of each queue of a group; each turn is written when asked for.

        The ``tail`` of them comes again, for the reason that the turn's end is. A last consumer takes what is left.
        """
        queues, before = _queues(number, SHAPES["again"]), None
        for turn in range(turns):
            owner, end = self._journal("consumer", f"group-{number}-c{turn}"), ENDS[(number + turn) % len(ENDS)]
            for queue in queues:
                self._turn(owner, queue, range(turn * runs, (turn + 1) * runs), tail, end)
            if before is not None:
                self._end(before)
            before = owner if end == "overtaken" else None
            if end in ("killed", "stuck"):
                owner.close()
            elif before is None:
                self._end(owner)
            yield turn
        last = self._journal("consumer", f"group-{number}-c{turns}")
        for queue in queues:
            self._open(last, queue)
            self._handle(last, queue, range(queue.start, turns * runs))
            self._commit(last, queue, turns * runs)
        for journal in (before, last):
            if journal is not None:
                self._end(journal)

    def _turn(self, owner: Journal, queue: Queue, fresh: range, tail: int, end: str) -> None:
        """``fresh`` are runs that nobody had before. The owner begins where the broker tells it to."""
        safe = fresh.stop - tail
        if end == "sent twice":
            self._store(queue, range(fresh.start, safe - tail))
            self._send_twice(queue, range(safe - tail, safe), tail)
        else:
            self._store(queue, fresh)
        self._open(owner, queue)
        self._handle(owner, queue, range(queue.start, safe))
        again = range(safe, fresh.stop)
        if end == "failed":
            self._fail(owner, queue, again)
            self.asked_for += tail * self._size
        elif end == "stuck":
            self._deliver(owner, queue, safe)
            self._handle(owner, queue, range(safe + 1, fresh.stop), reached=safe)
        else:
            self._handle(owner, queue, again)
        if end != "failed":
            self.again += tail * self._size
        if end == "overtaken":
            self._commit(owner, queue, safe)
            self._give_up(owner, queue, fresh.stop)
        else:
            self._commit(owner, queue, safe if end in ("killed", "stuck") else fresh.stop)

    # What the broker and producers do.

    def _store(self, queue: Queue, runs: Iterable[int]) -> None:
        for run in runs:
            self._append(queue.place, self._columns(queue, run), origin="client")

    def _append(self, place: dict[str, Any], told: dict[str, Any], **more: Any) -> None:
        self.broker.write(Append(
            broker_name=BROKER, topics=[place["topic"]], queue_ids=[place["queue_id"]], queue_index=[0] * self._size,
            **told, **more,
        ))  # fmt: skip

    def _send_twice(self, queue: Queue, runs: range, apart: int) -> None:
        """The answers to the first tries get lost. The second ones are stored that many runs behind."""
        producer = self._journal("producer", f"{queue.place['group']}-p{queue.pq_id}-{runs.start}")
        for try_no, behind, ended in (1, 0, LOST), (2, apart, STORED):
            for run in runs:
                self._requests += 1
                queue.keys[run + behind] = self._columns(queue, run)["unique_keys"]
                told = self._columns(queue, run + behind)
                producer.write(SendTry(
                    request_seq=self._requests, broker_name=BROKER, address="127.0.0.1:10911", group="shop",
                    topics=[queue.place["topic"]], call_ids=[run * self._size + nth for nth in range(self._size)],
                    tries=[try_no] * self._size, unique_keys=told["unique_keys"],
                ))  # fmt: skip
                client = {"client_boot_id": producer.boot_id, "request_seq": self._requests}
                self._append(queue.place, told, origin="client", **client)
                producer.write(SendResultEvent(request_seq=self._requests, **ended))
        self._end(producer)

    def _retry(self, retries: Queue, run: int, keys: list[str], askers: list[str]) -> None:
        """The broker stores it where it waits for its delay, and then in the retry topic."""
        retries.keys[run] = keys
        waiting = {"topic": SCHEDULE_TOPIC, "queue_id": LEVEL - 1}
        told, times = self._columns(retries, run), [1] * self._size
        offsets = list(range(self._waiting, self._waiting + self._size))
        self._waiting += self._size
        told_first = told | {"queue_offsets": offsets, "log_offsets": [LATER + offset * 1024 for offset in offsets]}
        self._append(waiting, told_first, origin="sendback", origin_refs=askers, reconsume_times=times)
        made_from = [f"{LEVEL}:{offset}" for offset in offsets]
        self._append(retries.place, told, origin="schedule", origin_refs=made_from, reconsume_times=times)

    # What consumers do.

    def _open(self, journal: Journal, queue: Queue, source: str = "broker") -> None:
        """Of a consumer that is overtaken the broker hears when it has told the next one where to begin."""
        start = queue.start * self._size
        client: dict[str, Any] = {"client_id": journal.boot_id, "client_boot_id": journal.boot_id}
        if source == "broker":
            self.broker.write(OffGet(**queue.place, value=start, why="table", **client))
        if queue.late is not None:
            self.broker.write(queue.late)
            queue.late = None
        opened: dict[str, Any] = {"client_id": journal.boot_id, "start_offset": start, "source": source}
        journal.write(PqOpen(pq_id=queue.pq_id, **queue.place, **opened))

    def _handle(self, journal: Journal, queue: Queue, runs: Iterable[int], reached: int | None = None) -> None:
        """With success. All before ``reached`` is done, else all before the end of each run."""
        for run in runs:
            self._deliver(journal, queue, run)
            self._result(journal, queue, run, "success", run + 1 if reached is None else reached)

    def _deliver(self, journal: Journal, queue: Queue, run: int, **more: Any) -> None:
        told = self._columns(queue, run)
        self.delivered += self._size
        ids = _ids(queue, told)
        journal.write(
            Deliver(pq_id=queue.pq_id, **queue.place, client_id=journal.boot_id, delivery_ids=ids, **told, **more)
        )

    def _result(self, journal: Journal, queue: Queue, run: int, status: str, reached: int) -> None:
        told = self._columns(queue, run)
        journal.write(Result(
            pq_id=queue.pq_id, **queue.place, delivery_ids=_ids(queue, told), queue_offsets=told["queue_offsets"],
            status=status, mem_off=reached * self._size,
        ))  # fmt: skip

    def _commit(self, journal: Journal, queue: Queue, reached: int) -> None:
        value, old = reached * self._size, queue.start * self._size
        journal.write(Persist(pq_id=queue.pq_id, **queue.place, value=value, reason="timer"))
        self.broker.write(_set(journal, queue, old, value))
        queue.start = reached

    def _give_up(self, journal: Journal, queue: Queue, reached: int) -> None:
        """To another member, whom the broker answers sooner than it reads how far this one came."""
        value, old = reached * self._size, queue.start * self._size
        dropped: dict[str, Any] = {"reason": "reassigned", "mem_off": value, "in_flight": 0}
        journal.write(PqDrop(pq_id=queue.pq_id, **queue.place, **dropped))
        journal.write(Persist(pq_id=queue.pq_id, **queue.place, value=value, reason="drop"))
        queue.late = _set(journal, queue, old, value)

    def _fail(self, journal: Journal, queue: Queue, runs: range) -> None:
        """The handler fails; the retries succeed."""
        place = queue.place
        retries = Queue(place["group"], retry_topic(place["group"]), place["queue_id"], queue.pq_id + QUEUES)
        for nth, run in enumerate(runs, runs.start):
            self._deliver(journal, queue, run)
            self._result(journal, queue, run, "reconsume", run + 1)
            told = self._columns(queue, run)
            ids, keys = _ids(queue, told), told["unique_keys"]
            asked = {"queue_offsets": told["queue_offsets"], "unique_keys": keys, "path": "rpc", "outcome": "ok"}
            journal.write(Sendback(delivery_ids=ids, **place, **asked))
            self._retry(retries, nth, keys, [f"{journal.boot_id}:{one}" for one in ids])
        retries.start = runs.start
        self._open(journal, retries)
        for run in runs:
            self._deliver(journal, retries, run, reconsume_times=[1] * self._size)
            self._result(journal, retries, run, "success", run + 1)
        self._commit(journal, retries, runs.stop)

    def _columns(self, queue: Queue, run: int) -> dict[str, Any]:
        offsets = list(range(run * self._size, (run + 1) * self._size))
        name = f"{queue.place['topic']}{queue.place['queue_id'] + 1:04X}"
        return {
            "queue_offsets": offsets, "log_offsets": [offset * 1024 for offset in offsets],
            "unique_keys": queue.keys.get(run) or [f"{name}{offset:016X}" for offset in offsets],
        }  # fmt: skip

    def _journal(self, role: str, name: str) -> Journal:
        boot_id, level = name.replace("-", ""), Level.FORENSIC if self._size == 1 else Level.AUDIT
        path = self._directory / journal_name(role, name, boot_id)
        journal = Journal(path, role=role, process=name, boot_id=boot_id, level=level, max_bytes=1 << 40,
                          wall=self._clock, mono=self._clock)  # fmt: skip
        journal.write(State(state="started", reason=f"level={level}"))
        return journal

    def _end(self, journal: Journal) -> None:
        journal.write(State(state="closed"))
        journal.close()


def _ids(queue: Queue, told: dict[str, Any]) -> list[int]:
    return [queue.pq_id << 40 | offset for offset in told["queue_offsets"]]


def _set(journal: Journal, queue: Queue, old: int, new: int) -> OffSet:
    client: dict[str, Any] = {"client_id": journal.boot_id, "client_boot_id": journal.boot_id}
    return OffSet(**queue.place, old=old, new=new, by="oneway", **client)
