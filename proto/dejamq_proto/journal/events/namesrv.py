"""Lines of a name server on its answers about topics and brokers."""

from dejamq_proto.journal.events.base import Event


class Route(Event, tag="ROUTE"):
    """A name server answered for a topic."""

    topic: str
    client_boot_id: str
    brokers: list[str]
    digest: str


class BrokerEvent(Event, tag="BROKER"):
    """A name server's view of a broker changed. ``reason``: register, unregister, channel_closed, expired."""

    broker_name: str
    broker_id: int
    address: str
    change: str
    reason: str
