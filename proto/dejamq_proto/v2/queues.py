"""Queues as routes and assignments name them, with the addresses of their brokers. Pure."""

import ipaddress
from collections.abc import Iterator, Sequence

from dejamq_proto.names import MASTER_ID, PERM_READ, PERM_WRITE
from dejamq_proto.v2 import messages_pb2 as pb

ANY_QUEUE = -1
TYPES = (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION)
"""Each topic takes all of them, as RocketMQ's topics of type MIXED. Older clients fail at numbers beyond these."""
MOST_HOST = 253


def endpoints_of(address: str) -> pb.Endpoints:
    """Of ``host:port``, IPv6 in brackets."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return pb.Endpoints(scheme=scheme_of(host), addresses=[pb.Address(host=host, port=int(port))])


def scheme_of(host: str) -> "pb.AddressScheme.ValueType":
    """What kind of host this is."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return pb.DOMAIN_NAME
    return pb.IPv6 if version == 6 else pb.IPv4


def dialled(endpoints: pb.Endpoints) -> str:
    """The one host and port that a client says it dialled; '' where it names several, or none that can be."""
    if len(endpoints.addresses) != 1:
        return ""
    (address,) = endpoints.addresses
    if not 0 < address.port < 65536 or not 0 < len(address.host) <= MOST_HOST or not address.host.isprintable():
        return ""
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"


def queues_of(
    topic: pb.Resource, broker_name: str, address: str, *, read: int, write: int, perm: int
) -> Iterator[pb.MessageQueue]:
    """Each queue of a topic at one master.

    RocketMQ numbers those for reading alone first. Here those for both come first: Node's client uses no queue but the
    one with number 0. No server looks at the number again.
    """
    read, write = read if perm & PERM_READ else 0, write if perm & PERM_WRITE else 0
    both, broker = min(read, write), broker_of(broker_name, address)
    permissions = [pb.READ_WRITE] * both + [pb.READ] * (read - both) + [pb.WRITE] * (write - both)
    for number, permission in enumerate(permissions):
        yield pb.MessageQueue(topic=topic, id=number, permission=permission, broker=broker, accept_message_types=TYPES)


def broker_of(name: str, address: str) -> pb.Broker:
    """A master."""
    return pb.Broker(name=name, id=MASTER_ID, endpoints=endpoints_of(address))


def assignments_of(queues: Sequence[pb.MessageQueue], *, in_order: bool) -> pb.QueryAssignmentResponse:
    """All readable queues in order, else one entry a broker: members get the same, as pops share the messages."""
    readable = [queue for queue in queues if queue.permission in (pb.READ, pb.READ_WRITE)]
    if not in_order:
        readable = list({queue.broker.name: _any_of(queue) for queue in readable}.values())
    return pb.QueryAssignmentResponse(
        status=pb.Status(code=pb.OK if readable else pb.FORBIDDEN, message="OK" if readable else "no readable queue"),
        assignments=[pb.Assignment(message_queue=queue) for queue in readable],
    )


def _any_of(queue: pb.MessageQueue) -> pb.MessageQueue:
    return pb.MessageQueue(
        topic=queue.topic, id=ANY_QUEUE, permission=queue.permission, broker=queue.broker,
        accept_message_types=queue.accept_message_types,
    )  # fmt: skip
