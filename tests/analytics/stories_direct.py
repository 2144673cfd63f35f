"""Histories of messages that an operator gave to one member's handler."""

from journals import History, Process
from stories import owner_that_did_6, story, successor

NO_QUEUE = 0


def directly(consumer: Process, queue_offset: int = 6) -> None:
    """A handler gets it outside of every queue that this member owns."""
    delivery = consumer.deliver(NO_QUEUE, queue_offset, kind="direct")
    consumer.result(NO_QUEUE, delivery, queue_offset, queue_offset)


@story
def l7_direct(made: History) -> None:
    """To the member that had it before."""
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.offset_set(consumer, 6, 7)
    directly(consumer)


@story
def l7_direct_before_its_turn(made: History) -> None:
    """To a member that owns nothing, before the owner gets it in its turn."""
    made.broker()
    other = made.consumer("c2")
    directly(other)
    owner_that_did_6(made)


@story
def l7_direct_in_between(made: History) -> None:
    """The member that was first is killed; what its heir delivers again is not the operator's doing."""
    broker = made.broker()
    consumer, _ = owner_that_did_6(made)
    directly(made.consumer("c3"))
    consumer.kill()
    successor(made, broker)
