"""Client processes: which line and which trace record is whose, and whose log is whole to its end.

A client id names a process (``ip@pid#nanoseconds``), unless a program chose the instance's name. A trace record names
its process by the first bytes of its request id: address, process id and class loader.
"""

import re
from collections import defaultdict

from dejamq_analytics.evidence.client import LAST, ClientStart, Origin
from dejamq_analytics.evidence.mark import MS, SECOND, Mark
from dejamq_analytics.sources.journaled import NOTHING, PIDS, Journaled, only_one

INNER = "INNER_TRACE_"


class ClientStarts:
    """All client processes of the evidence."""

    def __init__(self, known: Journaled = NOTHING) -> None:
        """``known``: what journals of brokers tell of these clients."""
        self._known = known
        self.by_key: dict[str, ClientStart] = {}
        self._of_pid: dict[int, list[ClientStart]] = defaultdict(list)
        self._of_id: dict[str, list[ClientStart]] = defaultdict(list)
        self._ids: dict[tuple[str, str], dict[str, ClientStart]] = defaultdict(dict)
        self._all_ids: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._groups: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    # which process a line of a log is of

    def read_log(self, marks: list[Mark]) -> None:
        """The marks of one machine's logs, in the order of time."""
        for mark in marks:
            client_id = mark.said.get("client_id", "")
            if client_id and INNER not in client_id:
                self._all_ids[mark.host, mark.pid].add(client_id)
                if mark.said.get("group"):
                    self._groups[mark.host, mark.pid][mark.said["group"]].add(client_id)
        for mark in marks:
            for client in self._whose(mark):
                client.marks.append(mark)

    def _whose(self, mark: Mark) -> list[ClientStart]:
        where, client_id, group = (mark.host, mark.pid), mark.said.get("client_id", ""), mark.said.get("group", "")
        if INNER in client_id:
            return []
        known = self._ids[where]
        if client_id:
            again = mark.what == "created" and client_id in known and _has_begun(known[client_id])
            return [self._begin(mark, client_id) if again or client_id not in known else known[client_id]]
        if group:
            ids = self._groups[where].get(group) or self._all_ids[where]
            if len(ids) == 1:
                one = next(iter(ids))
                return [known[one] if one in known else self._begin(mark, one)]
        # a line that names nobody is of the only client that the process has
        return [*known.values()] if len(known) == 1 and not group else []

    def _begin(self, mark: Mark, client_id: str) -> ClientStart:
        """A client id that begins, or begins again: then it is another start."""
        base = f"{mark.host}:{client_id}" + (f"[{mark.pid}]" if mark.pid and f"@{mark.pid}" not in client_id else "")
        times = sum(key.startswith(base) for key in self.by_key)
        name = f"{base}~{times + 1}" if times else base
        client = ClientStart(name, name, client_id)
        client.has.add("log")
        self._learn(client, client_id)
        told = re.search(r"@(\d+)(?:#|$)", client_id)
        client.pid = mark.pid or (told[1] if told else "")
        self._ids[mark.host, mark.pid][client_id] = client
        return self._add(client)

    def _add(self, client: ClientStart) -> ClientStart:
        self.by_key[client.key] = client
        self._of_id[client.client_id].append(client)
        if client.pid:
            self._of_pid[int(client.pid) % PIDS].append(client)
        return client

    def _learn(self, client: ClientStart, client_id: str) -> None:
        """What the journals of brokers tell of it."""
        client.known_as = self._known.boots.get(client_id, "")
        lost = self._known.lost.get(client_id)
        if lost is not None:
            source = f"journal of {lost.broker_name}:{lost.seq}"
            client.lost = Mark(lost.at_us, 0, source, lost.broker_name, "lost", {"group": lost.group})
            client.lost_us = lost.at_us

    # which process a trace record is of

    def of_origin(self, origin: Origin, group: str, at_us: int) -> ClientStart:
        """The process that made an id. One that has no log gets a name of its own."""
        fitting = [
            (one, one.ip) for one in self._of_pid.get(origin.pid, ())
            if (not group or group in one.groups) and _alive(one, at_us)
        ]  # fmt: skip
        if (known := only_one(origin.ip, origin.pid, fitting)) is not None:
            return known
        key = f"{origin.key}{f':{group}' if group else ''}"
        if key not in self.by_key:
            client_id = self._known.client_of(origin.ip, origin.pid, group)
            client = ClientStart(key, client_id or key, client_id or key)
            self._learn(client, client_id or "")
            self._add(client)
        return self.by_key[key]

    def settle(self) -> None:
        """The groups of each process, before trace records are laid to it."""
        for client in self.by_key.values():
            client.groups = {mark.said["group"] for mark in client.marks if mark.said.get("group")}
            for mark in client.marks:
                if mark.what == "starting" and mark.said["model"] == "BROADCASTING":
                    client.broadcasting.add(mark.said["group"])
                if mark.what == "closed":
                    client.closed_us = mark.at_us
                if mark.what in ("lock", "suspended_queue") and mark.said.get("group"):
                    client.orderly.add(mark.said["group"])

    def of_client_id(self, client_id: str, at_us: int) -> ClientStart | None:
        """The start of this client id that ran at a moment, as far as logs tell."""
        fitting = [one for one in self._of_id.get(client_id, ()) if _alive(one, at_us)]
        return fitting[-1] if len(fitting) == 1 else None


def _has_begun(client: ClientStart) -> bool:
    """Some lines of a start come before the one that says so."""
    return any(mark.what in ("created", "closed") for mark in client.marks)


def _alive(client: ClientStart, at_us: int) -> bool:
    if not client.marks:
        return True
    return client.marks[0].at_us - MS <= at_us and (client.closed_us is None or at_us <= client.closed_us + SECOND)


def told_by_broker(client: ClientStart) -> None:
    """The broker's line on its connection is the last one of its journal, at the time of its own last act."""
    last_us = max((step.at_us for step in client.steps), default=0)
    if client.lost is not None and client.closed_us is None:
        client.add(client.lost._replace(at_us=last_us), "STATE", LAST, state="disconnected")
