"""Which commands of the broker a client's user may be told: the same at every door, whatever words the protocol has."""

from dejamq_proto.access.admission import Hearer
from dejamq_proto.records.record import decode

from dejamq_broker.deferred.transactions.check import CheckProducer
from dejamq_broker.members.commands import TakeDirectly


def may_hear(hearer: Hearer, command: object) -> bool:
    """Of a command that has a message in it: whether he may see that. Without access control everybody may."""
    if hearer.guard is None or not isinstance(command, CheckProducer | TakeDirectly):
        return True
    topic = decode(command.record, check_crc=False).topic
    return hearer.may_publish(topic) if isinstance(command, CheckProducer) else hearer.may_consume(topic)
