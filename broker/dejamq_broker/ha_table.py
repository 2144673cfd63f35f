"""What a master knows of its slaves: how far each is, and whether enough of them have a record. Pure.

Source: RocketMQ ``DefaultHAService`` and ``GroupTransferService`` (4.x): a slave counts while it is connected and not
further behind than ``haMaxGapNotInSync``, and connections count, not broker ids.
"""

import msgspec


class SlavePosition(msgspec.Struct):
    """One connected slave. ``acknowledged``: everything before this log offset is there, as its flush type promises."""

    broker_id: int
    boot_id: str
    address: str
    acknowledged: int


class SlaveTable:
    """Positions of connected slaves, by connection. ``needed``: so many of them must have a record."""

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
        near = sum(log_end - slave.acknowledged < self._max_gap for slave in self._slaves.values())
        return near >= self._needed
