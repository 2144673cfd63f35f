"""What master and slave know of one another: who follows whom, how far, and what a slave gave up of its log."""

from dejamq_proto.events.base import Event


class Replica(Event, tag="REPLICA"):
    """A step of replication. ``broker_id`` tells who wrote it: 0 a master of its slave, above a slave of its master.

    ``change``: ``connected`` and ``lost`` (both sides), ``position`` (the master: everything before ``log_offset`` is
    acknowledged), ``begun`` (the slave: its empty log begins at ``log_offset``), ``cut`` (the slave: the master has not
    what stood from ``log_offset`` on; ``size`` bytes of it are kept in ``kept``), ``refused`` (``reason`` says
    why it does not follow), ``promoted`` (a store that was a slave's is a master's now).
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
