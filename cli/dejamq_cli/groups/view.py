"""A consumer group as it is now: members, who consumes which queue, and the faults of that.

Only its owner knows that it owns a queue: brokers hand out messages to every client that asks. So every member is
asked, through a broker. A member that does not answer leaves the owners of its queues unknown, not absent.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dejamq import Admin, MessageQueue
from dejamq.admin.cluster import ClientConnection
from dejamq.admin.offsets import QueueProgress
from dejamq.admin.running import RunningInfo
from dejamq_proto.codes import DejamqError
from dejamq_proto.names import PERM_READ, RETRY_PREFIX

ANSWER_TIMEOUT_S = 4
BROADCASTING = "BROADCASTING"
OWN_LANGUAGE = "PYTHON"


@dataclass(frozen=True)
class MemberView:
    """One client id of the group. ``info`` is what it says of itself; without it ``silence`` is the reason."""

    client_id: str
    connections: tuple[ClientConnection, ...]
    info: RunningInfo | None
    silence: str = ""

    @property
    def queues(self) -> list[MessageQueue]:
        """Those it owns now, as far as it says so."""
        return [one.queue for one in self.info.queues if not one.dropped] if self.info else []

    @property
    def broadcasting(self) -> bool:
        return any(one.message_model == BROADCASTING for one in self.connections)

    @property
    def subscriptions(self) -> frozenset[str]:
        """``topic expression``, as its heartbeats say."""
        return frozenset(text for one in self.connections for text in one.subscriptions)

    @property
    def allocation(self) -> str | None:
        """The name of its strategy."""
        return self.info.state.get("allocation") if self.info else None

    @property
    def graceful(self) -> bool | None:
        """Whether it claims its queues; None: it does not say. RocketMQ's clients never do."""
        if any(one.language not in ("", OWN_LANGUAGE) for one in self.connections):
            return False
        told = self.info.state.get("graceful_handover") if self.info else None
        return None if told is None else told == "true"

    def row(self) -> dict[str, Any]:
        first = self.connections[0]
        return {
            "client_id": self.client_id, "host": first.address.rpartition(":")[0],
            "brokers": sorted({one.broker_name for one in self.connections}),
            "version": f"{first.language} {first.version}".strip(),
            "queues": len(self.queues) if self.info else None, "allocation": self.allocation,
            "last_heartbeat_timestamp_ms": max(one.last_heartbeat_ms for one in self.connections),
        }  # fmt: skip


@dataclass(frozen=True)
class GroupView:
    """One look at a group. ``wanted`` are the queues that its members' topics have; ``clashing`` client ids that
    several processes use now.
    """

    group: str
    members: Sequence[MemberView]
    wanted: frozenset[MessageQueue]
    progress: Mapping[MessageQueue, QueueProgress]
    clashing: frozenset[str] = field(default_factory=frozenset)

    @property
    def broadcasting(self) -> bool:
        return any(member.broadcasting for member in self.members)

    @property
    def whole(self) -> bool:
        """Every member has said what it owns."""
        return all(member.info for member in self.members)

    @property
    def owned(self) -> frozenset[MessageQueue]:
        """Queues that some member consumes, by its subscription or by the program's choice."""
        return frozenset(queue for member in self.members for queue in member.queues)

    def owners(self, queue: MessageQueue) -> list[str]:
        return [member.client_id for member in self.members if queue in member.queues]

    def queue_rows(self) -> list[dict[str, Any]]:
        """Every queue that is wanted, owned or committed, with its owners: several, or none."""
        return [self._row(queue) for queue in sorted(self.wanted | self.owned | self.progress.keys())]

    def _row(self, queue: MessageQueue) -> dict[str, Any]:
        progress = self.progress.get(queue)
        return {
            "topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id,
            "owners": self.owners(queue), "committed": progress and progress.committed,
            "max_offset": progress and progress.max_offset, "lag": progress and progress.lag,
        }  # fmt: skip


async def look_at(admin: Admin, group: str) -> GroupView:
    """Asks brokers and members; changes nothing."""
    connections = [one for one in await admin.connections(group) if one.role == "consumer"]
    ids = sorted({one.client_id for one in connections})
    infos = await asyncio.gather(*(_asked(admin, group, client_id) for client_id in ids))
    members = [
        MemberView(client_id, tuple(one for one in connections if one.client_id == client_id), *told)
        for client_id, told in zip(ids, infos, strict=True)
    ]
    topics = subscribed(connections, retries=True)
    return GroupView(
        group, members, frozenset(await queues_of(admin, topics)),
        {one.queue: one for one in await admin.progress(group)},
        frozenset(one.client_id for one in await admin.clashes() if one.present and one.group == group),
    )  # fmt: skip


async def _asked(admin: Admin, group: str, client_id: str) -> tuple[RunningInfo | None, str]:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await admin.running_info(group, client_id), ""
    except TimeoutError:
        return None, f"no answer within {ANSWER_TIMEOUT_S} s"
    except DejamqError as error:
        return None, str(error)


def subscribed(connections: Iterable[ClientConnection], *, retries: bool = False) -> set[str]:
    """The topics of these clients; with ``retries`` also retry topics, which nobody chooses."""
    topics = {text.split(" ", 1)[0] for one in connections for text in one.subscriptions}
    return {topic for topic in topics if retries or not topic.startswith(RETRY_PREFIX)}


async def queues_of(admin: Admin, topics: Iterable[str]) -> list[MessageQueue]:
    """The queues that consumers of these topics read, as the masters have them."""
    return [
        MessageQueue(topic, one.broker_name, queue_id)
        for topic in sorted(topics)
        for one in await admin.topic(topic)
        if one.perm & PERM_READ
        for queue_id in range(one.read_queues)
    ]
