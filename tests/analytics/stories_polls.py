"""Histories of polls that went past messages, or saw one too early, and their neighbours without it."""

from dejamq_proto.codes import Code
from dejamq_proto.journal.events import Pull
from dejamq_proto.names import HALF_TOPIC
from journals import TOPIC, History
from stories_odd import odd_of


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


odd_of("sent-past-what-was-deleted", "poll_skip", asked_outside, 3, 20)

# What comes again then is a duplicate, O16.
odd_of("sent-back-to-the-end", None, asked_outside, 20, 3)


def read_within_a_transaction(made: History, topic: str) -> None:
    broker, producer, consumer = made.broker(), made.producer(), made.consumer()
    broker.append(made.key(6), 3, producer, request=1, topic=HALF_TOPIC, origin="tx_half")
    broker.append(made.key(6), 6, producer, request=2, origin="tx_final", origin_refs=["3:300"])
    queue = consumer.open_queue(3 if topic == HALF_TOPIC else 6, topic=topic)
    at = 3 if topic == HALF_TOPIC else 6
    consumer.result(queue, consumer.deliver(queue, at, made.key(6), topic=topic), at, at + 1)
    for process in (broker, producer, consumer):
        process.close()


odd_of("read-before-its-commit", "precommitted_read", read_within_a_transaction, HALF_TOPIC)
odd_of("read-after-its-commit", None, read_within_a_transaction, TOPIC)
