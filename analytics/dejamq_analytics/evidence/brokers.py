"""Brokers: their starts, members, locks and offsets that went back, from their logs; and what clients prove of them."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from dejamq_analytics.evidence.client import ClientStart, Hold
from dejamq_analytics.evidence.clients import ClientStarts
from dejamq_analytics.evidence.mark import MS, SAME_CLOCK_US, SECOND, TWO_CLOCKS_US, Mark, QueueName, Reset
from dejamq_analytics.evidence.process import Process
from dejamq_analytics.evidence.stored import Stored

LEFT = {"left": "unregister", "lost": "close", "expired": "expire"}
LOCK_LIFE_MS = 60_000
GOODBYE_US = 5 * SECOND
FOREVER_US = 1 << 62
BOOTED, SET, ANSWERED = 0, 4, 6
"""The order of a broker's acts within one moment of its clock."""


class BrokerStart(Process):
    """One start of a broker."""

    def __init__(self, key: str, name: str, address: str, began_us: int) -> None:
        super().__init__(key, name, "broker")
        self.address, self.began_us = address, began_us
        self.killed_before = False
        """Whether it found its store as a crash leaves it."""
        self.boot: dict[str, Any] | None = None


class Brokers:
    """All starts of all brokers; ``names`` by the address at which clients reach them."""

    def __init__(self, clients: ClientStarts) -> None:
        self._clients = clients
        self.names: dict[str, str] = {}
        self.starts: dict[str, list[BrokerStart]] = defaultdict(list)
        self._hosts: dict[str, str] = {}
        self.resets: list[Reset] = []
        """Offsets that somebody set, by lines of brokers."""
        self._operators: dict[tuple[str, str], str] = {}
        self._client_ids: dict[tuple[str, str], str] = {}
        self.answers_to_checks: dict[tuple[str, int], Mark] = {}
        """Lines of commits that answer a check, by broker and half message."""
        self._seen: list[Mark] = []
        """Offsets that a broker says it had."""
        self._cleaned: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        self._gone: list[dict[str, Any]] = []
        """Events of members that said no goodbye."""
        self._read: dict[str, Callable[[BrokerStart, str, Mark], None]] = {
            "joined": self._member, "lowered": self._lower, "reset": self._reset_by, "reset_to": self._reset,
            "reset_one": self._reset_one, "cleaned": self._clean, "cleaned_all": self._clean, "loaded": self._load,
            "checked": self._check, "answered": self._answer, "recovered": self._recover, "locked": self._lock,
            "locked_4": self._lock, "taken_over": self._lock,
        } | dict.fromkeys(LEFT, self._member)  # fmt: skip

    def learn_names(self, marks: Iterable[Mark]) -> None:
        """From routes in the logs of clients."""
        for mark in marks:
            for name, address in mark.said.get("brokers", {}).items():
                self.names[address] = name

    def begin(self, host: str, marks: list[Mark], hosts_of_store: set[str]) -> None:
        """The starts of the broker on one machine, and what its logs say of each."""
        said = {mark.said["name"]: mark.said["text"] for mark in marks if mark.what == "set"}
        address = f"{said['brokerIP1']}:{said['listenPort']}" if {"brokerIP1", "listenPort"} <= said.keys() else ""
        address = address or min(hosts_of_store, default="")
        name = said.get("brokerName") or self.names.get(address) or host
        self.names.setdefault(address, name)
        self._hosts[host] = name
        starts = [mark for mark in marks if mark.what == "began"]
        for nth, mark in enumerate(starts, 1):
            broker = self._start(host, name, address, nth, mark.at_us)
            if nth > 1 and mark.said["how"] == "normally":  # the start before had ended in order, with a last flush
                self.starts[name][-2].add(
                    mark._replace(at_us=mark.at_us - 1), "OFF_FLUSH", broker_name=name, digest="", entries=0
                )
            replica = 1 if said.get("brokerRole") == "SLAVE" else 0
            broker.killed_before = mark.said["how"] != "normally"
            broker.boot = broker.add(
                mark, "BOOT", BOOTED, broker_name=name, broker_id=replica, address=address,
                clean=not broker.killed_before,
            )  # fmt: skip
        if not starts and marks:
            broker = self._start(host, name, address, 1, marks[0].at_us)
            broker.add(marks[0], "BOOT", BOOTED, broker_name=name, broker_id=0, address=address, clean=True)
        for mark in marks:
            self._tell(name, mark)

    def _start(self, host: str, name: str, address: str, nth: int, at_us: int) -> BrokerStart:
        broker = BrokerStart(f"broker:{host}:{nth}:{at_us}", name, address, at_us)
        self.starts[name].append(broker)
        return broker

    def at(self, name: str, at_us: int) -> BrokerStart:
        """The start that ran at a moment; one that is known by nothing else, if no log tells of any."""
        starts = self.starts[name]
        if not starts:
            starts.append(BrokerStart(f"broker:{name}", name, "", 0))
        running = [one for one in starts if one.began_us <= at_us + SECOND]
        return running[-1] if running else starts[0]

    def starts_between(self, name: str, begin_us: int, end_us: int) -> list[BrokerStart]:
        """Starts that its logs tell of, from one moment to another."""
        return [one for one in self.starts[name] if one.boot and begin_us < one.began_us < end_us]

    def _tell(self, name: str, mark: Mark) -> None:
        broker, said = self.at(name, mark.at_us), mark.said
        broker.has.add(_kind_of(mark.source))
        if "client_id" in said and "address" in said:
            self._client_ids[name, said["address"]] = said["client_id"]
        if mark.what in self._read:
            self._read[mark.what](broker, name, mark)

    def _lower(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        said = mark.said
        client_id = self._client_ids.get((name, said["address"]), said["address"])
        self._set(broker, name, mark, said["queue_id"], said["old"], said["new"], "oneway", client_id)
        self._had(name, mark, {(said["topic"], said["group"], said["queue_id"]): said["old"]})

    def _reset_by(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        self._operators[mark.said["topic"], mark.said["group"]] = mark.said["address"]

    def _reset(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        for queue, offset in mark.said["offsets"].items():
            self._set(broker, name, mark, queue, -1, offset, "reset", "")

    def _reset_one(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        self._set(broker, name, mark, mark.said["queue_id"], -1, mark.said["new"], "reset", "")

    def _clean(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        """Of one topic, or all that a group had at this broker."""
        topic, group = mark.said.get("topic", ""), mark.said["group"]
        before = {(topic, group, queue_id): offset for queue_id, offset in mark.said.get("offsets_before", {}).items()}
        self._had(name, mark, before)
        self._cleaned[name, group, topic].append(mark.at_us)

    def _load(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        if mark.said["file"] == "consumerOffset":
            source = "bak" if mark.said.get("bak") else "main"
            broker.add(mark, "OFF_LOAD", broker_name=name, source=source, digest="", entries=0)

    def _check(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        said = mark.said
        broker.add(
            mark, "CHECK_TRANSACTION", broker_name=name, group="", unique_key=said["unique_key"],
            half_queue_offset=said["half_offset"], half_log_offset=said["half_log_offset"], check_times=0,
        )  # fmt: skip

    def _answer(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        self.answers_to_checks[name, mark.said["half_log_offset"]] = mark

    def _recover(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        if broker.boot is not None:
            broker.boot["log_max"] = mark.said["log_max"]

    def _member(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        address = mark.said.get("remote", "")
        client_id = mark.said.get("client_id") or self._client_ids.get((name, address), "")
        client = self._clients.of_client_id(client_id, mark.at_us + mark.within_us)
        told = broker.add(
            mark, "MEMBER", broker_name=name, group=mark.said["group"], client_id=client_id,
            client_boot_id=client.boot_id if client else "", change="+" if mark.what == "joined" else "-",
            reason="heartbeat" if mark.what == "joined" else LEFT[mark.what],
        )  # fmt: skip
        if client is None:
            return
        if mark.what in ("lost", "expired"):
            self._gone.append(told)
            client.lost = mark
        if mark.what == "lost":
            client.lost_us = self._lost_by(mark)
        elif mark.what == "left":
            self._said_goodbye(broker, name, client, mark)

    def _lost_by(self, mark: Mark) -> int:
        """A moment by which the connection had ended: members are told at once, and their logs have milliseconds."""
        last = mark.at_us + mark.within_us
        told = [
            told.at_us
            for client in self._clients.by_key.values()
            for told in client.marks_between("told", mark.at_us, last + SECOND)
            if told.said["group"] == mark.said["group"]
        ]
        return min(last, min(told)) if len(told) == 1 else last

    def _said_goodbye(self, broker: BrokerStart, name: str, client: ClientStart, mark: Mark) -> None:
        """It left in order, on the connection that it had told its last offsets on: so these had come before."""
        for hold in client.holds:
            if hold.group != mark.said["group"] or hold.queue.broker_name != name or not hold.persisted:
                continue
            at_us, value = hold.persisted[-1]
            if 0 <= mark.at_us + mark.within_us - at_us <= GOODBYE_US:
                arrived = mark._replace(at_us=at_us)
                self._set_by(broker, arrived, hold.group, hold.queue, -1, value, "oneway", client)

    def _had(self, name: str, mark: Mark, offsets: dict[tuple[str, str, int], int]) -> None:
        """Offsets that it had just before a line."""
        self._seen.append(mark._replace(at_us=mark.at_us - 1, said={"broker": name, "offsets": offsets}))

    def settle_members(self) -> None:
        """A member that one broker lost may still have been one at a broker without a log: nobody knows then."""
        with_log = {name for name, starts in self.starts.items() if any("broker.log" in one.has for one in starts)}
        used = {hold.queue.broker_name for one in self._clients.by_key.values() for hold in one.holds}
        if {*self.names.values(), *used} - with_log:
            for told in self._gone:
                told["client_boot_id"] = ""

    def polled(self, marks: Iterable[Mark]) -> None:
        """Offsets that a broker had at a moment: it had taken them from the only client that may have told them."""
        told, untold = self._first_told(), self._untold()
        for mark in (*marks, *self._seen):
            name = mark.said["broker"] or self._hosts.get(mark.host, "")
            if mark.what == "delays":
                self.at(name, mark.at_us).add(
                    mark, "PROGRESS_FLUSH", broker_name=name, service="schedule", progress=mark.said["progress"]
                )
                continue
            for (topic, group, queue_id), value in mark.said["offsets"].items():
                queue = QueueName(topic, name, queue_id)
                tellers = [
                    (at_us, self._clients.by_key[key])
                    for key, at_us in told.get((group, queue, value), {}).items()
                    if at_us <= mark.at_us
                ]
                if len(tellers) == 1 and not _had_it_too(*tellers[0], untold.get((group, queue), ()), mark.at_us):
                    self._set_by(self.at(name, mark.at_us), mark, group, queue, -1, value, "oneway", tellers[0][1])

    def _untold(self) -> dict[tuple[str, QueueName], list[tuple[ClientStart, Hold]]]:
        """Each time that a client had a queue of which its log has no offset."""
        found: dict[tuple[str, QueueName], list[tuple[ClientStart, Hold]]] = defaultdict(list)
        for client in self._clients.by_key.values():
            for hold in client.holds:
                if not hold.persisted:
                    found[hold.group, hold.queue].append((client, hold))
        return found

    def _first_told(self) -> dict[tuple[str, QueueName, int], dict[str, int]]:
        """When each client first told each offset, by group, queue and offset."""
        found: dict[tuple[str, QueueName, int], dict[str, int]] = defaultdict(dict)
        for client in self._clients.by_key.values():
            for hold in client.holds:
                for at_us, value in hold.persisted:
                    known = found[hold.group, hold.queue, value]
                    known[client.key] = min(at_us, known.get(client.key, at_us))
        return found

    def _set(
        self, broker: BrokerStart, name: str, mark: Mark, queue_id: int, old: int, new: int, by: str, client_id: str
    ) -> None:
        client = self._clients.of_client_id(client_id, mark.at_us + mark.within_us)
        queue = QueueName(mark.said["topic"], name, queue_id)
        told = self._set_by(broker, mark, mark.said["group"], queue, old, new, by, client)
        if by == "reset":
            self.resets.append(Reset(mark.said["group"], queue, new, mark.at_us + mark.within_us))
        told["client_id"] = client_id or self._operators.get((mark.said["topic"], mark.said["group"]), "")

    def _set_by(
        self,
        broker: BrokerStart,
        mark: Mark,
        group: str,
        queue: QueueName,
        old: int,
        new: int,
        by: str,
        client: ClientStart | None,
    ) -> dict[str, Any]:
        return broker.add(
            mark, "OFF_SET", SET, broker_name=queue.broker_name, group=group, topic=queue.topic,
            queue_id=queue.queue_id, old=old, new=new, by=by, client_id=client.client_id if client else "",
            client_boot_id=client.boot_id if client else "",
        )  # fmt: skip

    def _lock(self, broker: BrokerStart, name: str, mark: Mark) -> None:
        said, queue = mark.said, mark.said["queue"]
        client = self._clients.of_client_id(said["client_id"], mark.at_us + mark.within_us)
        owner = said.get("owner", "")
        broker.add(
            mark, "LOCK", broker_name=queue.broker_name, group=said["group"], topic=queue.topic,
            queue_id=queue.queue_id, client_id=said["client_id"], client_boot_id=client.boot_id if client else "",
            granted=True, owner=owner, age_ms=LOCK_LIFE_MS if owner else 0, life_ms=LOCK_LIFE_MS,
        )  # fmt: skip

    def appended(self, record: Stored, origin: str, **more: Any) -> None:
        """A record of a commit log, and who wrote it."""
        broker = self.at(record.queue.broker_name, record.stored_ms * MS)
        broker.has.add("store")
        broker.add(
            record.mark(), "APPEND", origin=origin, broker_name=record.queue.broker_name, topics=[record.queue.topic],
            queue_ids=[record.queue.queue_id], queue_index=[0], queue_offsets=[record.queue_offset],
            log_offsets=[record.log_offset], unique_keys=[record.unique_key],
            reconsume_times=[record.reconsume_times], **more,
        )  # fmt: skip

    # what clients prove

    def answered(self, client: ClientStart, hold: Hold, start: int | None) -> None:
        """A client that opens a queue has asked the broker where to begin."""
        if hold.opened is None or start is None or hold.group in client.broadcasting:
            return
        queue, at_us = hold.queue, hold.opened.at_us
        why = "default_zero" if start == 0 and self._was_cleaned(hold.group, queue, at_us) else "table"
        self.at(queue.broker_name, hold.opened.at_us).add(
            hold.opened, "OFF_GET", ANSWERED, broker_name=queue.broker_name, group=hold.group, topic=queue.topic,
            queue_id=queue.queue_id, value=start, why=why, client_id=client.client_id,
            client_boot_id=client.boot_id,
        )  # fmt: skip

    def _was_cleaned(self, group: str, queue: QueueName, at_us: int) -> bool:
        """Whether its offset had been taken away by then, and nobody had told one since."""
        name = queue.broker_name
        every = [*self._cleaned[name, group, ""], *self._cleaned[name, group, queue.topic]]
        cleaned_us = max((one for one in every if one <= at_us), default=None)
        return cleaned_us is not None and not any(
            cleaned_us <= told_us <= at_us
            for client in self._clients.by_key.values()
            for hold in client.holds_of(group, queue)
            for told_us, _ in hold.persisted
        )

    def came_late(self) -> None:
        """Offsets that clients told after the next owner had opened the queue: they came after it had asked."""
        by_queue: dict[tuple[str, QueueName], list[tuple[ClientStart, Hold]]] = defaultdict(list)
        for client in self._clients.by_key.values():
            for hold in client.holds:
                by_queue[hold.group, hold.queue].append((client, hold))
        for holds in by_queue.values():
            for former, left in holds:
                for later, opened in holds:
                    if former is not later and opened.opened is not None and opened.start is not None:
                        self._came_late(former, left, later, opened.opened.at_us, opened.start)

    def _came_late(self, former: ClientStart, left: Hold, later: ClientStart, opened_us: int, start: int) -> None:
        """Nothing if it had told more before: that may have come in time, and been lost."""
        exact_us = opened_us + (SAME_CLOCK_US if former.ip == later.ip else TWO_CLOCKS_US)
        until_us = left.ended_us or FOREVER_US
        if until_us <= exact_us or left.opened is None or left.opened.at_us > opened_us:
            return
        if max((value for at_us, value in left.persisted if at_us <= exact_us), default=start) > start:
            return
        broker = self.at(left.queue.broker_name, exact_us)
        for mark in former.marks_between("persisted", exact_us + 1, until_us):
            if (mark.said["group"], mark.said.get("queue")) == (left.group, left.queue):
                self._set_by(broker, mark, left.group, left.queue, -1, mark.said["value"], "oneway", former)

    def share_kinds(self, stored: set[str]) -> None:
        """The files of a broker are of all its starts. ``stored`` are those whose commit log is there."""
        for name in stored:
            self.at(name, 0)
        for name, starts in self.starts.items():
            kinds = {kind for one in starts for kind in one.has} | ({"store"} if name in stored else set())
            for one in starts:
                one.has |= kinds

    def every(self) -> Iterable[BrokerStart]:
        """All starts."""
        return [one for starts in self.starts.values() for one in starts]


def _had_it_too(
    told_us: int, teller: ClientStart, untold: Iterable[tuple[ClientStart, Hold]], at_us: int
) -> bool:  # fmt: skip
    """Whether another client, which told nothing, had the queue between the two moments."""
    return any(
        client is not teller
        and (hold.opened is None or hold.opened.at_us <= at_us)
        and (hold.ended_us or FOREVER_US) >= told_us
        for client, hold in untold
    )


def _kind_of(source: str) -> str:
    """``broker.log``, ``store.log``, …: whichever of its files a line came from.

    RocketMQ 5.3 writes what belongs in ``lock.log`` into ``filter.log``: its logging has one appender's name twice.
    """
    name = source.rpartition(":")[0].rpartition("/")[2]
    if name.startswith("filter"):
        return "lock.log"
    return next((f"{one}.log" for one in ("broker", "store", "lock", "transaction") if name.startswith(one)), name)
