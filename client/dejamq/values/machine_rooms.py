"""Allocation by machine room, so that messages stay near. Pure.

Source: RocketMQ ``AllocateMessageQueueByMachineRoom``, ``AllocateMachineRoomNearby``.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dejamq_proto.allocation import averagely

from dejamq.values.allocation import Strategy, strategy_named
from dejamq.values.message import MessageQueue


class ByMachineRoom:
    """Only queues of brokers that are named ``room@name`` with one of these rooms; nobody takes the others.

    Contiguous ranges of equal size, and what is left over one each to the first members.

    >>> queues = [MessageQueue("orders", name, 0) for name in ("east@a", "east@b", "east@c", "west@d")]
    >>> [queue.broker_name for queue in ByMachineRoom(["east"])(queues, ["c1", "c2"], "c1")]
    ['east@a', 'east@c']
    """

    def __init__(self, rooms: Iterable[str]) -> None:
        self.rooms = frozenset(rooms)
        self.name = f"by_machine_room({','.join(sorted(self.rooms))})"

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
        if me not in members:
            return []
        usable = [queue for queue in queues if _room_of(queue) in self.rooms]
        index, share = members.index(me), len(usable) // len(members)
        left_over = usable[share * len(members) :]
        return usable[index * share : (index + 1) * share] + left_over[index : index + 1]


class ByMachineRoomNearby:
    """Queues go to the members of their own room, by an ``inner`` strategy; those of rooms without any go to all.

    ``room_of_broker`` and ``room_of_member`` map broker names and client ids to rooms, the same way at every member.
    Raises ValueError for a room that is empty or None.

    >>> queues = [MessageQueue("orders", name, 0) for name in ("east@a", "east@b", "north@c", "north@d")]
    >>> nearby = ByMachineRoomNearby(lambda name: name.split("@")[0], lambda client_id: client_id.split("-")[0])
    >>> [queue.broker_name for queue in nearby(queues, ["east-1", "west-1"], "east-1")]
    ['east@a', 'east@b', 'north@c']
    >>> [queue.broker_name for queue in nearby(queues, ["east-1", "west-1"], "west-1")]
    ['north@d']
    """

    def __init__(
        self, room_of_broker: Callable[[str], str | None], room_of_member: Callable[[str], str | None],
        inner: str | Strategy = averagely,
    ) -> None:  # fmt: skip
        self._room_of_broker, self._room_of_member = room_of_broker, room_of_member
        inner_name, self._inner = strategy_named(inner)
        self.name = f"by_machine_room_nearby-{inner_name}"

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
        if me not in members:
            return []
        rooms: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            rooms.setdefault(_known(self._room_of_broker(queue.broker_name), queue), []).append(queue)
        neighbours: dict[str, list[str]] = {}
        for member in members:
            neighbours.setdefault(_known(self._room_of_member(member), member), []).append(member)
        home = _known(self._room_of_member(me), me)
        share = list(self._inner(rooms.pop(home), neighbours[home], me)) if home in rooms else []
        for room in sorted(rooms.keys() - neighbours.keys()):
            share += self._inner(rooms[room], members, me)
        return share


def _room_of(queue: MessageQueue) -> str | None:
    """As Java splits: empty parts at the end do not count, and there must be two."""
    parts = queue.broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def _known(room: str | None, of: Any) -> str:
    if not room:
        raise ValueError(f"no machine room is known for {of!r}")
    return room
