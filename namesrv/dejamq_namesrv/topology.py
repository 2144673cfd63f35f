"""The values a route table is made of. Names are RocketMQ's: QueueData, BrokerData, DataVersion."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dejamq_proto.names import DIRECT


@dataclass(frozen=True)
class TopicTableVersion:
    """Version of a broker's topic table: the same only when all three are."""

    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0


@dataclass(frozen=True)
class RegisteredTopic:
    """A topic as one broker has it. ``perm``: 4 read, 2 write, 1 inherit."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(frozen=True)
class BrokerIdentity:
    """One broker process. ``advertised``: the name that a client dialled -> the address that it gets; others:
    ``address``.

    ``boot_id`` tells two starts of one broker apart where everything else is equal. ``foreign``: a RocketMQ's, which
    does not speak gRPC.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    boot_id: str = ""
    advertised: Mapping[str, str] = field(default_factory=dict)
    foreign: bool = False

    def address_for(self, listener: str, *, direct: bool = False) -> str:
        """The address advertised for this listener, else the default one.

        ``direct``: the asker speaks gRPC and may dial gRPC's own port, if the broker advertises that.
        """
        usual = self.advertised.get(DIRECT, self.address) if direct else self.address
        return self.advertised.get(listener, usual)


@dataclass(frozen=True)
class QueuesAtBroker:
    """The queues of a topic at one broker name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(frozen=True)
class BrokerReplicas:
    """The live replicas of one broker name: broker id -> host:port; id 0 is the master."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str]


@dataclass(frozen=True)
class RouteAnswer:
    """The answer to a route query, in order of broker name."""

    queues: tuple[QueuesAtBroker, ...]
    brokers: tuple[BrokerReplicas, ...]

    def digest_text(self) -> str:
        """The same text for the same queues and addresses, whichever name server answers."""
        queues = (f"{q.broker_name}:{q.read_queue_nums}:{q.write_queue_nums}:{q.perm}" for q in self.queues)
        brokers = (f"{b.broker_name}={sorted(b.addresses.items())}" for b in self.brokers)
        return ";".join((*queues, *brokers))


@dataclass(frozen=True)
class BrokerChange:
    """A broker came (``+``) or went (``-``), for the journal. Reason: register, unregister, channel_closed, expired."""

    identity: BrokerIdentity
    sign: str
    reason: str


@dataclass(frozen=True)
class Registered:
    """The result of a registration. ``master_address`` is for slaves; '' when the master is away."""

    changes: tuple[BrokerChange, ...] = ()
    master_address: str = ""
