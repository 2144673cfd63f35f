"""Histories of polls that went past messages, or saw one too early, and their neighbours without it."""

from dejamq_proto.codes import Code
from dejamq_proto.events import Pull
from dejamq_proto.names import HALF_TOPIC
from journals import TOPIC, History
from stories_odd import odd


def asked_outside(made: History, begin: int, next_offset: int) -> None:
    """A member asks for what its queue does not have, and is told where to go on."""
    broker, consumer = made.broker(), made.consumer()
    broker.write(Pull(
        broker_name=broker.name, group=made.group, topic=TOPIC, queue_id=0, client_id=consumer.name,
        client_boot_id=consumer.boot_id, request_seq=1, request_offset=begin, next_offset=next_offset, count=0,
        code=int(Code.PULL_OFFSET_MOVED),
    ))  # fmt: skip
    for process in (broker, consumer):
        process.close()


@odd("poll_skip")
def sent_past_what_was_deleted(made: History) -> None:
    asked_outside(made, 3, 20)


@odd(None)
def sent_back_to_the_end(made: History) -> None:
    """What comes again then is a duplicate, O16."""
    asked_outside(made, 20, 3)


def read_within_a_transaction(made: History, topic: str) -> None:
    broker, producer, consumer = made.broker(), made.producer(), made.consumer()
    broker.append(made.key(6), 3, producer, request=1, topic=HALF_TOPIC, origin="tx_half")
    broker.append(made.key(6), 6, producer, request=2, origin="tx_final", origin_refs=["3:300"])
    queue = consumer.open_queue(3 if topic == HALF_TOPIC else 6, topic=topic)
    at = 3 if topic == HALF_TOPIC else 6
    consumer.result(queue, consumer.deliver(queue, at, made.key(6), topic=topic), at, at + 1)
    for process in (broker, producer, consumer):
        process.close()


@odd("precommitted_read")
def read_before_its_commit(made: History) -> None:
    read_within_a_transaction(made, HALF_TOPIC)


@odd(None)
def read_after_its_commit(made: History) -> None:
    read_within_a_transaction(made, TOPIC)
