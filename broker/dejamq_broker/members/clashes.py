"""One client id that several processes use in one group at a time: both get the same queues (cause R4). Pure.

RocketMQ refuses nothing and says nothing; here it is remembered, so that an operator still sees it after one of them
has gone.
"""

from collections.abc import Iterable, Iterator

import msgspec

KEPT = 1000


class ClientIdUser(msgspec.Struct, frozen=True):
    """One connection under a client id. ``boot_id`` is '' for a client that does not tell: each is then its own."""

    channel: int
    boot_id: str
    address: str

    @property
    def process(self) -> str:
        """Connections of one start of a client are one user: the older is half open and goes."""
        return self.boot_id or f"channel {self.channel}"


class SharedClientId(msgspec.Struct):
    """``role`` is producer or consumer. Times are the broker's wall clock, ms."""

    role: str
    group: str
    client_id: str
    addresses: list[str]
    boot_ids: list[str]
    first_ms: int
    last_ms: int
    present: bool = True


class ClashBook:
    """The clashes since the broker started, the newest thousand."""

    def __init__(self) -> None:
        self._clashes: dict[tuple[str, str, str], SharedClientId] = {}

    def seen(
        self, role: str, group: str, client_id: str, users: Iterable[ClientIdUser], now_ms: int
    ) -> SharedClientId | None:
        """These use the client id in the group now. The clash when it is news, else None."""
        users = list(users)
        key = role, group, client_id
        known = self._clashes.get(key)
        if len({user.process for user in users}) < 2:
            if known is not None:
                known.present = False
            return None
        news = known is None or not known.present
        if known is None:
            known = self._clashes[key] = SharedClientId(role, group, client_id, [], [], now_ms, now_ms)
            while len(self._clashes) > KEPT:
                del self._clashes[next(iter(self._clashes))]
        known.present, known.last_ms = True, now_ms
        known.addresses = sorted({*known.addresses, *(user.address for user in users)} - {""})
        known.boot_ids = sorted({*known.boot_ids, *(user.boot_id for user in users)} - {""})
        return known if news else None

    def __iter__(self) -> Iterator[SharedClientId]:
        return iter(sorted(self._clashes.values(), key=lambda one: (one.group, one.role, one.client_id)))
