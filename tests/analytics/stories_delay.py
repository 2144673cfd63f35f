"""Histories of delayed messages that a broker delivered twice, and of dead letters that were sent again."""

from typing import Any

from dejamq_proto.names import SCHEDULE_TOPIC, retry_topic
from journals import TOPIC, History, Process
from stories import story

REF = "3:6"


def first_start(made: History, topic: str, *, flushed: int = 6) -> Process:
    """A broker that wrote its progress and then delivered what was next."""
    broker = made.broker()
    broker.progress(l3=flushed)
    broker.append(made.key(6), 0, topic=topic, origin="schedule", origin_refs=[REF])
    return broker


def next_start(made: History, *, clean: bool = False, booted: bool = True) -> Process:
    broker = made.process("broker", "broker-0", boot_id=f"{made.name}-second-start".replace("-", ""))
    if booted:
        broker.boot(broker.name, clean=clean)
    return broker


def again(made: History, broker: Process, topic: str, *, delivered: bool = True) -> None:
    """The later copy, and a consumer that gets both."""
    broker.append(made.key(6), 1, topic=topic, origin="schedule", origin_refs=[REF])
    if delivered:
        consumer = made.consumer()
        queue = consumer.open_queue(0, topic=topic)
        for offset in (0, 1):
            consumer.handle(queue, offset, offset + 1, key=made.key(6), topic=topic)
        consumer.close()
    broker.close()


@story
def b1(made: History) -> None:
    first_start(made, TOPIC).kill()
    again(made, next_start(made), TOPIC)


@story
def b1_undelivered(made: History) -> None:
    first_start(made, TOPIC).kill()
    again(made, next_start(made), TOPIC, delivered=False)


@story
def b1_after_a_clean_stop(made: History) -> None:
    first_start(made, TOPIC).close()
    again(made, next_start(made, clean=True), TOPIC)


@story
def b1_without_the_restart(made: History) -> None:
    first_start(made, TOPIC).kill()
    again(made, next_start(made, booted=False), TOPIC)


@story
def b1_although_progress_was_written(made: History) -> None:
    broker = first_start(made, TOPIC)
    for _ in range(2):
        broker.progress(l3=7)
    broker.kill()
    again(made, next_start(made), TOPIC)


@story
def b1_killed_while_progress_was_written(made: History) -> None:
    """The line stands in the journal, the file was not replaced any more."""
    broker = first_start(made, TOPIC)
    broker.progress(l3=7)
    broker.kill()
    again(made, next_start(made), TOPIC)


@story
def b1_within_one_start(made: History) -> None:
    again(made, first_start(made, TOPIC), TOPIC)


@story
def b1_at_another_level(made: History) -> None:
    """Progress of one level says nothing of another."""
    broker = first_start(made, TOPIC)
    broker.progress(l3=6, l4=99)
    broker.kill()
    again(made, next_start(made), TOPIC)


@story
def b1_of_a_retry(made: History) -> None:
    """One failure, one request, two records: the first was asked for, the second is the broker's."""
    topic, place = retry_topic(made.group), {"topic": retry_topic(made.group), "reconsume_times": [1]}
    consumer = made.consumer()
    queue, retries = consumer.open_queue(6), consumer.open_queue(0, topic=topic)
    delivery = consumer.deliver(queue, 6)
    consumer.result(queue, delivery, 6, 7, "reconsume")
    consumer.send_back(delivery, 6, made.key(6))
    first_start(made, topic).kill()
    consumer.handle(retries, 0, 1, key=made.key(6), **place)
    again(made, next_start(made), topic, delivered=False)
    consumer.handle(retries, 1, 2, key=made.key(6), **place)
    consumer.close()


def dead_letter_replayed(made: History, topic: str) -> None:
    """A group had it before, and gets it once more because a command stored it again."""
    broker, consumer = made.broker(), made.consumer()
    consumer.handle(consumer.open_queue(6), 6, 7)
    broker.append(made.key(6), 9, topic=topic, origin="admin", origin_refs=["7F00000100002A9F0000000000000001"])
    consumer.handle(consumer.open_queue(9, topic=topic), 9, 10, key=made.key(6), topic=topic)
    consumer.close()
    broker.close()


@story
def l7_to_the_group(made: History) -> None:
    dead_letter_replayed(made, retry_topic(made.group))


@story
def l7_to_the_topic(made: History) -> None:
    dead_letter_replayed(made, TOPIC)


def given_back_twice(
    made: History, *, stored_by_both: bool = True, broker_answers: str = "indefinite", without: str = ""
) -> None:  # fmt: skip
    """A failed delivery whose send-back had no good answer, and which the consumer then sent by itself."""
    topic = retry_topic(made.group)
    place: dict[str, Any] = {"topic": topic, "reconsume_times": [1]}
    broker, consumer = made.broker(), made.consumer()
    queue, retries = consumer.open_queue(6), consumer.open_queue(0, topic=topic)
    delivery = consumer.deliver(queue, 6)
    consumer.result(queue, delivery, 6, 7, "reconsume")
    waiting: dict[str, Any] = {"topic": SCHEDULE_TOPIC, "reconsume_times": [1]}
    if stored_by_both and without != "append":
        broker.append(made.key(6), 0, origin="sendback", origin_refs=[f"{consumer.boot_id}:{delivery}"], **waiting)
    if without != "rpc":
        consumer.send_back(delivery, 6, made.key(6), outcome=broker_answers, request_seq=70)
    broker.append(made.key(6), 1, consumer, 71, **waiting)
    if without != "fallback":
        consumer.send_back(delivery, 6, made.key(6), path="fallback", request_seq=71)
    for offset in range(0 if stored_by_both else 1, 2):
        broker.append(made.key(6), offset, origin="schedule", origin_refs=[f"1:{offset}"], **place)
        consumer.handle(retries, offset, offset + 1, key=made.key(6), **place)
    consumer.close()
    broker.close()


@story
def b11(made: History) -> None:
    given_back_twice(made)


@story
def b11_without_the_send_back(made: History) -> None:
    given_back_twice(made, without="rpc")


@story
def b11_without_the_fallback(made: History) -> None:
    given_back_twice(made, without="fallback")


@story
def b11_without_the_append(made: History) -> None:
    given_back_twice(made, without="append")


@story
def b11_was_not_stored_by_the_broker(made: History) -> None:
    given_back_twice(made, stored_by_both=False, broker_answers="failed")
