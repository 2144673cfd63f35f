"""Journals of our own brokers, as far as they tell of clients that have none: under which boot id a broker knows each.

A broker gives a client of the remoting protocol a boot id of its own making. Events that are made of the client's logs
and traces get that id, so that the broker's lines and the client's are of one process.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from dejamq_proto.journal.events import Boot, MemberEvent, OffSet
from dejamq_proto.journal.lines import boot_id, events, files_in
from dejamq_proto.texts import number_of

from dejamq_analytics.sources.paths import local_path

One = TypeVar("One")
PIDS = 1 << 16
"""An id of RocketMQ's has the lower half of a process id."""
TELLING_PID = 300
"""Whose trace it is a process id tells from here on, even if the address is another: a machine may have several, and a
client takes one for its id and another one for its traces. In containers ids are small, and alike.
"""


def only_one(ip: str, pid: int, fitting: Sequence[tuple[One, str]]) -> One | None:
    """Of processes with this lower half of an id, each with its address, the only one at this address; or at any
    address, where the number tells enough.
    """
    near = [one for one, address in fitting if address == ip]
    if not near and pid >= TELLING_PID:
        near = [one for one, _ in fitting]
    return near[0] if len(near) == 1 else None


class Lost(NamedTuple):
    """A broker's line that a connection had ended."""

    at_us: int
    broker_name: str
    seq: int
    group: str


class Journaled(NamedTuple):
    """``names`` of brokers by address. ``boots`` of foreign members by client id, ``members`` of each group, and
    ``worked``: those that told a broker that they had done something. ``lost``: when the last connection ended of those
    that said no goodbye.
    """

    names: dict[str, str]
    boots: dict[str, str]
    members: dict[str, set[str]]
    worked: set[str]
    lost: dict[str, Lost]

    def client_of(self, ip: str, pid: int, group: str) -> str | None:
        """The client id of the only member of this process, as ``only_one`` tells. ``group``: '' if it is not known."""
        members = self.members.get(group, set()) if group else self.boots
        places = [(name, *_process_of(name)) for name in members]
        return only_one(ip, pid, [(name, address) for name, address, number in places if number == pid])


NOTHING = Journaled({}, {}, {}, set(), {})


def journaled(journals: Iterable[str]) -> Journaled:
    """Of the journals on this machine. Others tell nothing here."""
    folders = [folder for folder in map(local_path, journals) if folder is not None]
    files = [file for folder in folders for file in files_in(folder)]
    own = {boot_id(file) for file in files}
    found, connected = Journaled({}, {}, {}, set(), {}), defaultdict[str, set[str]](set)
    for event in events((file for file in files if file.name.startswith("broker-")), Boot, MemberEvent, OffSet):
        if isinstance(event, Boot):
            found.names[event.address] = event.broker_name
        elif isinstance(event, MemberEvent | OffSet) and event.client_boot_id and event.client_boot_id not in own:
            found.boots[event.client_id] = event.client_boot_id
            found.members.setdefault(event.group, set()).add(event.client_id)
            if isinstance(event, MemberEvent):
                _connection(event, found, connected[event.client_id])
            elif event.new > max(event.old, 0):
                found.worked.add(event.client_id)
    return found


def _connection(event: MemberEvent, found: Journaled, connected: set[str]) -> None:
    """``connected``: the brokers that the client is connected to."""
    if event.change == "+":
        connected.add(event.boot_id)
        found.lost.pop(event.client_id, None)
        return
    connected.discard(event.boot_id)
    if event.reason == "close" and not connected:
        found.lost[event.client_id] = Lost(event.wall_us, event.broker_name, event.seq, event.group)


def _process_of(client_id: str) -> tuple[str, int]:
    """Address and lower half of the process id of ``ip@pid#nanoseconds``."""
    ip, _, rest = client_id.partition("@")
    pid = number_of(rest.partition("#")[0])
    return ip, -1 if pid is None else pid % PIDS
