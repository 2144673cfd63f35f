"""What several services read from their requests."""

from dejamq_proto.common_pb2 import Caller, QueueKey

from dejamq_broker.locks import QueueAt
from dejamq_broker.offsets import Asker


def asker_of(caller: Caller) -> Asker:
    """Who asks, and by which request."""
    return Asker(caller.client_id, caller.boot_id, caller.seq)


def queue_at(key: QueueKey) -> QueueAt:
    """The queue of this broker that is meant."""
    return QueueAt(key.topic, key.queue_id)
