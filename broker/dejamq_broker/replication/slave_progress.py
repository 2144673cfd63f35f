"""A master's knowledge of its slaves: how far each is, and whether enough of them have a record. Pure.

``HaStatus`` is what an operator sees of it, at a master or a slave.

Source: RocketMQ ``DefaultHAService`` and ``GroupTransferService`` (4.x): a slave counts while it is connected and not
further behind than ``haMaxGapNotInSync``, and connections count, not broker ids.
"""

import msgspec


class SlavePosition(msgspec.Struct):
    """One connected slave. ``acknowledged``: everything before this log offset is there, as its flush type promises.
    ``sent``: the log offset of the next bytes that are sent to it.
    """

    broker_id: int
    boot_id: str
    address: str
    acknowledged: int
    sent: int = 0


class SlaveTable:
    """Positions of connected slaves, by connection. ``needed``: the number of slaves that must have a record."""

    def __init__(self, needed: int, max_gap: int) -> None:
        self._needed, self._max_gap = needed, max_gap
        self._slaves: dict[object, SlavePosition] = {}

    def __len__(self) -> int:
        return len(self._slaves)

    def slaves(self) -> list[SlavePosition]:
        """By broker id."""
        return sorted(self._slaves.values(), key=lambda slave: (slave.broker_id, slave.address))

    def add(self, connection: object, slave: SlavePosition) -> None:
        """A slave came, or came back: ``connection`` is whatever stands for this one."""
        self._slaves[connection] = slave

    def remove(self, connection: object) -> SlavePosition | None:
        """It is gone, and nothing it had counts any more."""
        return self._slaves.pop(connection, None)

    def acknowledge(self, connection: object, log_offset: int) -> None:
        """A position never goes back while a connection lasts."""
        slave = self._slaves.get(connection)
        if slave is not None:
            slave.acknowledged = max(slave.acknowledged, log_offset)

    @property
    def confirmed(self) -> int:
        """Everything before this log offset is at as many slaves as are needed; -1 with fewer."""
        if len(self._slaves) < self._needed:
            return -1
        positions = sorted((slave.acknowledged for slave in self._slaves.values()), reverse=True)
        return positions[self._needed - 1] if self._needed else -1

    def available(self, log_end: int) -> bool:
        """Whether enough slaves are near enough to the end of the log to be waited for."""
        return sum(self.near(slave, log_end) for slave in self._slaves.values()) >= self._needed

    def near(self, slave: SlavePosition, log_end: int) -> bool:
        """Whether this one is near enough to the end of the log."""
        return log_end - slave.acknowledged < self._max_gap


class SlaveStatus(msgspec.Struct, frozen=True):
    """One slave as an operator sees it; the offsets are a log's."""

    address: str
    acknowledged: int
    sent: int
    in_sync: bool


class HaStatus(msgspec.Struct, frozen=True):
    """How replication stands, at a master or, with ``master_address``, at a slave.

    ``log_end`` is this broker's, ``master_end`` the master's as far as its last word tells, at ``heard_ms``.
    """

    log_end: int
    slaves: tuple[SlaveStatus, ...] = ()
    master_address: str | None = None
    master_end: int = 0
    heard_ms: int = 0
