"""Writes journals by hand with the real events, so that a rule can be shown exactly the history it must judge."""

from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto.journal.events import (
    Ack,
    AckTry,
    Append,
    Assign,
    Boot,
    Change,
    Deliver,
    Event,
    Fault,
    Gap,
    MemberEvent,
    MemberList,
    OffFlush,
    OffGet,
    OffLoad,
    OffSet,
    Persist,
    Pop,
    PqDrop,
    PqOpen,
    ProgressFlush,
    ProgressLoad,
    Result,
    Revive,
    Route,
    Sendback,
    SendResultEvent,
    SendTry,
    State,
)
from dejamq_proto.journal.writer import Journal, Level, journal_name

TOPIC = "orders"
START_US = 1_790_000_000_000_000


class Clock:
    """One clock for all processes of a history: every line is a millisecond after the one before, whoever writes."""

    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> float:
        self.now_us += 1000
        return self.now_us / 1e6


class Process:
    """One process's journal, with a method for each event that the rules read."""

    def __init__(self, home: "History", role: str, name: str, boot_id: str, level: Level, ahead_s: float = 0.0) -> None:
        path, clock = home.directory / journal_name(role, name, boot_id), home.clock
        self.home, self.path, self.boot_id, self.name = home, path, boot_id, name
        self._ahead_s = ahead_s
        self.journal = Journal(
            path,
            role=role,
            process=name,
            boot_id=boot_id,
            level=level,
            wall=lambda: clock() + self._ahead_s,
            mono=clock,
        )
        self._deliveries = self._queues = self._rounds = 0
        self.write(State(state="started", reason=f"level={level}"))

    def write(self, event: Event) -> None:
        self.journal.write(event)

    def close(self) -> None:
        self.write(State(state="closed"))
        self.journal.close()

    def jump(self, ms: int) -> None:
        """Its time of day is set forward; the next line tells of it first."""
        self._ahead_s += ms / 1000

    def kill(self) -> None:
        """The journal ends here, as SIGKILL leaves it at level forensic."""
        self.journal.close()

    def skip_lines(self, count: int) -> None:
        """Sequence numbers whose lines nobody will find."""
        self.journal._seq += count

    def _place(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Takes the queue's fields out of ``changes``; the history's own by default."""
        return {
            "group": changes.pop("group", self.home.group),
            "topic": changes.pop("topic", TOPIC),
            "broker_name": changes.pop("broker_name", self.home.broker_name),
            "queue_id": changes.pop("queue_id", 0),
        }

    # --- consumer

    def open_queue(self, start_offset: int, **changes: Any) -> int:
        self._queues += 1
        source = changes.pop("source", "broker")
        self.write(PqOpen(pq_id=self._queues, **self._place(changes), client_id=self.name, start_offset=start_offset,
                          source=source))  # fmt: skip
        return self._queues

    def drop_queue(self, pq_id: int, mem_off: int, reason: str = "shutdown", in_flight: int = 0) -> None:
        self.write(PqDrop(pq_id=pq_id, **self._place({}), reason=reason, mem_off=mem_off, in_flight=in_flight))

    def deliver(self, pq_id: int, queue_offset: int, key: str | None = None, **changes: Any) -> int:
        self._deliveries += 1
        place, log_offset = self._place(changes), changes.pop("log_offset", queue_offset * 100)
        self.write(Deliver(
            pq_id=pq_id, **place, client_id=self.name, delivery_ids=[self._deliveries], queue_offsets=[queue_offset],
            log_offsets=[log_offset], unique_keys=[key or self.home.key(queue_offset)],
            store_hosts=["127.0.0.1:10911"], **changes,
        ))  # fmt: skip
        return self._deliveries

    def result(
        self, pq_id: int, delivery_id: int, queue_offset: int, mem_off: int, status: str = "success", **more: Any
    ) -> None:
        place = self._place(more)
        self.write(Result(pq_id=pq_id, **place, delivery_ids=[delivery_id], queue_offsets=[queue_offset],
                          status=status, mem_off=mem_off, **more))  # fmt: skip

    def handle(self, pq_id: int, queue_offset: int, mem_off: int, **changes: Any) -> int:
        """Deliver and succeed."""
        place = {name: changes[name] for name in ("topic", "broker_name", "queue_id", "group") if name in changes}
        delivery_id = self.deliver(pq_id, queue_offset, **changes)
        self.result(pq_id, delivery_id, queue_offset, mem_off, **place)
        return delivery_id

    def persist(self, pq_id: int, value: int, **more: Any) -> None:
        self.write(Persist(pq_id=pq_id, **self._place({}), value=value, **{"reason": "timer"} | more))

    def send_back(self, delivery_id: int, queue_offset: int, key: str, **more: Any) -> None:
        self.write(Sendback(**{"path": "rpc", "outcome": "ok"} | more, delivery_ids=[delivery_id], **self._place({}),
                            queue_offsets=[queue_offset], unique_keys=[key]))  # fmt: skip

    def assign(self, *members: str, queues: str, client_id: str = "", **more: Any) -> None:
        """One round: ``queues`` are ids of the history's broker, ``"0 1"``."""
        every = [f"{self.home.broker_name}:{number}" for number in queues.split()]
        told = {"namesrv": "127.0.0.1:9876", "route_digest": "six", "strategy": "AVG"} | more
        self._rounds += 1
        self.write(Assign(
            group=self.home.group, topic=TOPIC, client_id=client_id or self.name, round=self._rounds,
            broker_name=told.pop("broker_name", self.home.broker_name), members=sorted(members), queues=every, **told,
        ))  # fmt: skip

    def state(self, state: str) -> None:
        self.write(State(state=state, group=self.home.group, client_id=self.name))

    def slept(self, ms: int) -> None:
        """It did not run for so long, as the watchdog noticed afterwards."""
        self.home.clock.now_us += ms * 1000
        self.write(Gap(missing_ms=ms))

    # --- name server

    def route(self, client: "Process", *brokers: str, digest: str = "") -> None:
        self.write(Route(topic=TOPIC, client_boot_id=client.boot_id, brokers=list(brokers), digest=digest))

    # --- broker

    def member(self, client: "Process", change: str = "+", reason: str = "heartbeat") -> None:
        self.write(MemberEvent(
            broker_name=self.name, group=self.home.group, client_id=client.name, client_boot_id=client.boot_id,
            change=change, reason=reason,
        ))  # fmt: skip

    def member_list(self, client: "Process", *members: str) -> None:
        self.write(MemberList(broker_name=self.name, group=self.home.group, client_id=client.name,
                              client_boot_id=client.boot_id, members=sorted(members)))  # fmt: skip

    def boot(self, name: str, address: str = "127.0.0.1:10911", *, clean: bool = True, log_max: int = 0) -> None:
        self.write(Boot(broker_name=name, broker_id=0, address=address, clean=clean, log_max=log_max))

    def progress(self, **levels: int) -> None:
        """Delay progress, by level: ``l3=7``."""
        table = msgspec.json.encode({level.removeprefix("l"): offset for level, offset in levels.items()})
        self.write(ProgressFlush(broker_name=self.home.broker_name, service="schedule", progress=table.decode()))

    def timer_progress(self, read_ms: int, queue_offset: int) -> None:
        """Slots and messages before are done."""
        table = msgspec.json.encode({"read_ms": read_ms, "queue_offset": queue_offset, "slot_done": 0}).decode()
        self.write(ProgressFlush(broker_name=self.home.broker_name, service="timer", progress=table))

    def timer_progress_read(self, read_ms: int, queue_offset: int) -> None:
        """As ``timer_progress``, when it started."""
        table = msgspec.json.encode({"read_ms": read_ms, "queue_offset": queue_offset, "slot_done": 0}).decode()
        self.write(ProgressLoad(broker_name=self.home.broker_name, service="timer", source="main", progress=table))

    def progress_read(self, **levels: int) -> None:
        """As ``progress``, when it started."""
        table = msgspec.json.encode({level.removeprefix("l"): offset for level, offset in levels.items()}).decode()
        self.write(ProgressLoad(broker_name=self.home.broker_name, service="schedule", source="main", progress=table))

    def offset_set(self, client: "Process", old: int, new: int, by: str = "oneway") -> None:
        self.write(
            OffSet(**self._place({}), old=old, new=new, by=by, client_id=client.name, client_boot_id=client.boot_id)
        )

    def offset_get(self, client: "Process", value: int, why: str = "table") -> None:
        self.write(
            OffGet(**self._place({}), value=value, why=why, client_id=client.name, client_boot_id=client.boot_id)
        )

    def offsets_loaded(self, source: str, entries: int = 1) -> None:
        self.write(OffLoad(broker_name=self.home.broker_name, source=source, digest="", entries=entries))

    def offsets_flushed(self) -> None:
        self.write(OffFlush(broker_name=self.home.broker_name, digest="", entries=1))

    def append(
        self, key: str, queue_offset: int, producer: "Process | None" = None, request: int = 0, **more: Any
    ) -> None:
        topic, broker = more.pop("topic", TOPIC), more.pop("broker_name", self.name)
        self.write(Append(
            **{"origin": "client"} | more, broker_name=broker, topics=[topic], queue_ids=[0], queue_index=[0],
            queue_offsets=[queue_offset], log_offsets=[queue_offset * 100], unique_keys=[key],
            client_boot_id=producer.boot_id if producer else "", request_seq=request,
        ))  # fmt: skip

    # --- pops: messages of the history's topic, one at a time, named by their offset and pop time

    def popped(self, client: "Process", queue_offset: int, pop_time: int, **more: Any) -> None:
        """The check point's record, and the line about it."""
        place = self._place(more)
        self.record_of_pop("ck", queue_offset, pop_time, place["topic"])
        self.write(Pop(
            **place, client_id=client.name, client_boot_id=client.boot_id, request_seq=1, start_offset=queue_offset,
            queue_offsets=[queue_offset], pop_time=pop_time, next_offset=queue_offset + 1,
            **{"invisible_ms": 30} | more,
        ))  # fmt: skip

    def acked(self, client: "Process", queue_offset: int, pop_time: int, **more: Any) -> None:
        place = self._place(more)
        if more.get("outcome", "ok") == "ok":
            self.record_of_pop("ack", queue_offset, pop_time, place["topic"])
        self.write(Ack(**place, client_id=client.name, client_boot_id=client.boot_id, request_seq=2,
                       queue_offsets=[queue_offset], pop_time=pop_time, **more))  # fmt: skip

    def record_of_pop(self, tag: str, queue_offset: int, pop_time: int, topic: str = TOPIC) -> None:
        """Records of the revive topic stand at log offsets from 100,000 on, as they come."""
        self.home.pop_records += 1
        key = f"{topic}@0@{queue_offset}@{self.home.group}@{pop_time}@{self.home.broker_name}@{tag}"
        self.write(Append(
            origin="pop", broker_name=self.home.broker_name, topics=["rmq_sys_REVIVE_LOG_DefaultCluster"],
            queue_ids=[0], queue_index=[0], queue_offsets=[self.home.pop_records],
            log_offsets=[100_000 + 1000 * self.home.pop_records], unique_keys=[key],
        ))  # fmt: skip

    def changed(
        self, client: "Process", queue_offset: int, pop_time: int, new_pop_time: int, how: str, ms: int,
        request_seq: int = 3,
    ) -> None:  # fmt: skip
        self.write(Change(
            **self._place({}), client_id=client.name, client_boot_id=client.boot_id, request_seq=request_seq,
            queue_offset=queue_offset, pop_time=pop_time, new_pop_time=new_pop_time, invisible_ms=ms, how=how,
        ))  # fmt: skip

    def revived(self, queue_offset: int, pop_time: int, target_offset: int, attempt: int = 2, **more: Any) -> None:
        self.write(Revive(
            **self._place(more), queue_offset=queue_offset, pop_time=pop_time, invisible_ms=30,
            target_topic=f"%RETRY%{self.home.group}_{TOPIC}", target_queue_id=0, target_offset=target_offset,
            attempt=attempt,
        ))  # fmt: skip

    def try_ack(self, delivery_id: int, queue_offset: int, pop_time: int, **more: Any) -> None:
        self.write(AckTry(**self._place(more), client_id=self.name, delivery_ids=[delivery_id],
                          queue_offsets=[queue_offset], pop_times=[pop_time]))  # fmt: skip

    def receive(self, queue_offset: int, **more: Any) -> int:
        """A delivery to a simple consumer."""
        return self.deliver(0, queue_offset, kind="pop", **more)

    # --- producer

    def send(self, key: str, request: int, call: int, try_no: int = 1, broker: "Process | None" = None) -> None:
        broker_name = broker.name if broker else self.home.broker_name
        self.write(SendTry(request_seq=request, broker_name=broker_name, address="127.0.0.1:1", group="shop",
                           topics=[TOPIC], call_ids=[call], tries=[try_no], unique_keys=[key]))  # fmt: skip

    def send_result(self, request: int, outcome: str, definite: bool = True) -> None:
        self.write(SendResultEvent(request_seq=request, outcome=outcome, definite=definite))

    def fault(self, target: "Process", kind: str = "kill") -> None:
        self.write(Fault(kind=kind, target=target.name, phase="begin"))


class History:
    """One story in a directory of journals: its group, broker and keys are its own, so that many share a directory."""

    def __init__(self, directory: Path, name: str = "billing") -> None:
        self.directory, self.name, self.clock = directory, name, Clock()
        self.group, self.broker_name = name, f"{name}-broker-0"
        self.processes: list[Process] = []
        self.pop_records = 0

    def process(self, role: str, name: str, level: Level = Level.FORENSIC, boot_id: str | None = None) -> Process:
        made = Process(self, role, f"{self.name}-{name}", boot_id or f"{self.name}{name}".replace("-", ""), level)
        self.processes.append(made)
        return made

    def consumer(self, name: str = "c1", **more: Any) -> Process:
        return self.process("consumer", name, **more)

    def broker(self, name: str = "broker-0", **more: Any) -> Process:
        made = self.process("broker", name, **more)
        made.boot(made.name)
        return made

    def producer(self, name: str = "shop", **more: Any) -> Process:
        return self.process("producer", name, **more)

    def key(self, number: int) -> str:
        return f"{self.name}-key-{number}"

    def end(self) -> None:
        """What is still open belongs to live processes: flushed, without a closing line."""
        for process in self.processes:
            process.journal.close()
