"""Lines on replication: which slave follows which master, how far, and the part of its log that a slave gave up."""

from dejamq_proto.journal.events.base import Event


class ReplicaEvent(Event, tag="REPLICA"):
    """A step of replication. ``broker_id`` tells who wrote it: 0 a master of its slave, above a slave of its master.

    ``change`` is one of:

    - ``connected``, ``lost``: both sides.
    - ``position``: the master; everything before ``log_offset`` is acknowledged.
    - ``begun``: the slave; its empty log begins at ``log_offset``.
    - ``cut``: the slave; the master lacks what stood from ``log_offset`` on. ``size`` bytes are kept in ``kept``.
    - ``refused``: ``reason`` says why it does not follow.
    - ``took_over``, ``stepped_down``: with ``failover_enable`` its role changes, ``reason`` has the epoch.
    - ``lease_lost``, ``lease_regained``: a master stores nothing in between.
    - ``promoted``: a store that was a slave's is a master's now.
    """

    broker_name: str
    broker_id: int
    change: str
    peer_id: int = 0
    peer_boot_id: str = ""
    address: str = ""
    log_offset: int = 0
    lag_bytes: int = 0
    size: int = 0
    kept: list[str] = []
    reason: str = ""
