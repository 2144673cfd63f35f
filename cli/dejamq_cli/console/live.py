"""Looks at the cluster again and again, and tells browsers over server-sent events when there is something new."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from dejamq import Admin
from dejamq.admin.running import StatsLine
from dejamq_proto.codes import DejamqError
from dejamq_proto.names import MASTER_ID
from dejamq_proto.texts import number_of

from dejamq_cli.access.admin_session import asked_half
from dejamq_cli.access.topic_kinds import kind_of, own_topics
from dejamq_cli.groups.lists import lag_by_topic, list_groups

KEPT = 120
"""Looks that are remembered, for the small charts."""
IDLE_S, MOST_LISTENERS = 15.0, 100
PUT, GET = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"


class Bell:
    """Wakes everybody who listens. ``ring`` names what is new."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[str]] = set()

    def ring(self, name: str) -> None:
        for queue in self._listeners:
            if not queue.full():
                queue.put_nowait(name)

    @property
    def is_full(self) -> bool:
        return len(self._listeners) >= MOST_LISTENERS

    async def events(self) -> AsyncIterator[str]:
        """As server-sent events, with a comment when nothing is new for a while."""
        queue: asyncio.Queue[str] = asyncio.Queue(16)
        self._listeners.add(queue)
        try:
            yield "retry: 2000\n\n"
            while True:
                try:
                    async with asyncio.timeout(IDLE_S):
                        name = await queue.get()
                    yield f"event: {name}\ndata: {time.time_ns() // 1_000_000}\n\n"
                except TimeoutError:
                    yield ": nothing new\n\n"
        finally:
            self._listeners.discard(queue)


@dataclass(frozen=True)
class Look:
    """The cluster at one moment. Rates are of the last minute."""

    at_ms: int
    brokers: list[dict[str, Any]]
    topics: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    silent: dict[str, str]

    def lag(self) -> dict[str, int]:
        return {row["group"]: row["lag"] for row in self.groups}

    def rates(self) -> dict[str, float]:
        return {row["topic"]: row["in_per_s"] for row in self.topics}


class Watch:
    """One task looks; pages read ``last`` and ``history``."""

    def __init__(self, namesrv: str | None, refresh_s: float, bell: Bell) -> None:
        self.namesrv, self._refresh_s, self._bell = namesrv, refresh_s, bell
        self.last: Look | None = None
        self.error = ""
        self.history: deque[Look] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Until it is cancelled."""
        if self.namesrv is None:
            return
        while True:
            begun = time.monotonic()
            await self.look(self.namesrv)
            self._bell.ring("cluster")
            await asyncio.sleep(max(self._refresh_s, time.monotonic() - begun))

    async def look(self, namesrv: str) -> None:
        try:
            (brokers, topics, groups), silent = await asked_half(namesrv, _look)
        except DejamqError as error:
            self.error = str(error)
            return
        told = {name: str(why) for name, why in silent.items()}
        self.last, self.error = Look(time.time_ns() // 1_000_000, brokers, topics, groups, told), ""
        self.history.append(self.last)


async def _look(admin: Admin) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    stats, lags, groups, brokers, names = await asyncio.gather(
        admin.stats(), lag_by_topic(admin, None), list_groups(admin, every=False), _brokers(admin), admin.topics()
    )
    incoming, outgoing = _rates(stats, PUT), _rates(stats, GET)
    readers: dict[str, set[str]] = {}
    for row in lags:
        readers.setdefault(row["topic"], set()).add(row["group"])
    own = own_topics(await admin.brokers())
    topics = [
        {
            "topic": name, "kind": kind_of(name, own), "in_per_s": incoming.get(name, 0.0),
            "groups": sorted(readers.get(name, ())),
        }
        for name in sorted(names)
    ]  # fmt: skip
    taken: dict[str, float] = {}
    for key, rate in outgoing.items():
        group = key.partition("@")[2]
        taken[group] = taken.get(group, 0.0) + rate
    waiting: dict[str, int] = {}
    for row in lags:
        waiting[row["group"]] = waiting.get(row["group"], 0) + row["lag"]
    told = [
        row | {"lag": waiting.get(row["group"], 0), "out_per_s": taken.get(row["group"], 0.0)} for row in groups
    ]  # fmt: skip
    return brokers, topics, told


async def _brokers(admin: Admin) -> list[dict[str, Any]]:
    rows = []
    for one in await admin.brokers():
        told: dict[str, str] = {}
        if MASTER_ID in one.addresses:
            try:
                told = await admin.runtime_info(one.broker_name)
            except DejamqError:
                told = {}
        rows.append({
            "broker": one.broker_name, "cluster": one.cluster, "answers": bool(told),
            "addresses": {str(number): address for number, address in sorted(one.addresses.items())},
            "version": told.get("brokerVersionDesc", ""), "started_at_ms": _whole(told.get("bootTimestamp")),
            "in_per_s": _first(told.get("putTps")), "out_per_s": _first(told.get("getTransferredTps")),
            "stored_messages": _whole(told.get("putMessageTimesTotal")), "slaves": _whole(told.get("slaves")),
        })  # fmt: skip
    return sorted(rows, key=lambda row: str(row["broker"]))


def _rates(stats: list[StatsLine], item: str) -> dict[str, float]:
    """A second, by the line's key, over all brokers."""
    found: dict[str, float] = {}
    for line in stats:
        if line.item == item:
            found[line.key] = found.get(line.key, 0.0) + line.minute.tps
    return found


def _whole(text: str | None) -> int | None:
    return number_of(text)


def _first(text: str | None) -> float | None:
    """Of the last minute: the first of three rates."""
    try:
        return float((text or "").split()[0])
    except (ValueError, IndexError):
        return None
