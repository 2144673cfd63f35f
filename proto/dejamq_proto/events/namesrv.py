"""What a name server told about topics and brokers."""

from dejamq_proto.events.base import Event


class Route(Event, tag="ROUTE"):
    """A name server answered for a topic."""

    topic: str
    client_boot_id: str
    brokers: list[str]
    digest: str


class Broker(Event, tag="BROKER"):
    """A name server's view of a broker changed. ``reason``: register, unregister, channel_closed, expired."""

    broker_name: str
    broker_id: int
    address: str
    change: str
    reason: str
