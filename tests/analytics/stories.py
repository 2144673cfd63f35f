"""Small histories, each with a known truth. ``STORIES``: a name, which is also the consumer group, to its writer."""

from collections.abc import Callable, Iterable
from pathlib import Path

from dejamq_proto.journal import Level
from dejamq_proto.names import retry_topic
from journals import History, Process

Story = Callable[[History], None]
STORIES: dict[str, Story] = {}


def story(write: Story) -> Story:
    STORIES[write.__name__.replace("_", "-")] = write
    return write


def write_all(directory: Path, names: Iterable[str] = ()) -> None:
    """The journals of these stories, by default of all that are registered."""
    for name in names or STORIES:
        history = History(directory, name)
        STORIES[name](history)
        history.end()


def successor(made: History, broker: Process | None, start: int = 6, last: int = 6) -> Process:
    """Takes the queue over at ``start`` and delivers up to ``last``."""
    heir = made.consumer("c2")
    if broker is not None:
        broker.offset_get(heir, start)
    queue = heir.open_queue(start)
    for offset in range(start, last + 1):
        heir.handle(queue, offset, offset + 1)
    heir.close()
    return heir


def owner_that_did_6(made: History, level: Level = Level.FORENSIC) -> tuple[Process, int]:
    consumer = made.consumer("c1", level=level)
    queue = consumer.open_queue(6)
    consumer.handle(queue, 6, 7)
    return consumer, queue


@story
def clean(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.offset_set(consumer, 6, 7)
    consumer.kill()
    successor(made, broker, start=7, last=7)


@story
def o1(made: History) -> None:
    broker = made.broker()
    consumer, _ = owner_that_did_6(made)
    consumer.kill()
    successor(made, broker)


@story
def o1_in_flight(made: History) -> None:
    broker, consumer = made.broker(), made.consumer("c1")
    consumer.deliver(consumer.open_queue(6), 6)
    consumer.kill()
    successor(made, broker)


@story
def o1_after_an_older_persist(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 6)
    broker.offset_set(consumer, 0, 6)
    consumer.kill()
    successor(made, broker)


@story
def o7(made: History) -> None:
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(5)
    consumer.deliver(queue, 5)
    consumer.handle(queue, 6, 5)
    consumer.kill()
    successor(made, broker, start=5)


@story
def o7_on_a_clean_stop(made: History) -> None:
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(5)
    consumer.handle(queue, 6, 5)
    consumer.drop_queue(queue, 5)
    consumer.close()
    successor(made, broker, start=6)


@story
def o2(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    consumer.kill()
    successor(made, broker)
    broker.close()


@story
def o2_with_a_mark_raised_by_a_send_back(made: History) -> None:
    """5 failed and was sent back: that raises the mark over 6 without another RESULT; the PERSIST shows it."""
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(5)
    consumer.deliver(queue, 5)
    consumer.handle(queue, 6, 5)
    consumer.persist(queue, 7)
    consumer.kill()
    successor(made, broker)
    broker.close()


@story
def o2_without_the_broker(made: History) -> None:
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    consumer.kill()
    successor(made, None)


@story
def o2_with_a_hole_at_the_broker(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.skip_lines(1)
    consumer.kill()
    successor(made, broker)


@story
def o2_with_a_buffering_broker(made: History) -> None:
    broker = made.broker(level=Level.AUDIT)
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    consumer.kill()
    successor(made, broker)


@story
def o1_with_a_hole(made: History) -> None:
    broker = made.broker()
    consumer, _ = owner_that_did_6(made)
    consumer.skip_lines(2)
    consumer.fault(consumer, "none")
    consumer.kill()
    successor(made, broker)


@story
def o1_with_a_hole_before(made: History) -> None:
    """A hole that ends before the delivery has nothing to do with it."""
    broker, consumer = made.broker(), made.consumer("c1")
    consumer.skip_lines(2)
    queue = consumer.open_queue(6)
    consumer.handle(queue, 6, 7)
    consumer.kill()
    successor(made, broker)


@story
def o1_at_level_audit(made: History) -> None:
    broker = made.broker()
    consumer, _ = owner_that_did_6(made, Level.AUDIT)
    consumer.kill()
    successor(made, broker)


@story
def o1_without_the_second_opening(made: History) -> None:
    made.broker()
    consumer, _ = owner_that_did_6(made)
    consumer.kill()
    made.consumer("c2").handle(1, 6, 7)


@story
def closed_without_persisting(made: History) -> None:
    broker = made.broker()
    consumer, _ = owner_that_did_6(made)
    consumer.close()
    successor(made, broker)


@story
def o8(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.drop_queue(queue, 7, "reassigned")
    consumer.persist(queue, 7, reason="drop")
    heir = made.consumer("c2")
    broker.offset_get(heir, 6)
    broker.offset_set(consumer, 6, 7)
    heir.handle(heir.open_queue(6), 6, 7)


@story
def forgotten_by_the_broker(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.offset_set(consumer, 6, 7)
    consumer.kill()
    successor(made, broker)


@story
def o9(made: History) -> None:
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6)
    consumer.drop_queue(queue, 6, "reassigned", in_flight=1)
    consumer.result(queue, delivery, 6, 6, pq_dropped=True)
    successor(made, broker)


@story
def o9_with_a_hole(made: History) -> None:
    """A line is missing between the delivery and the drop: what it said could have been another cause."""
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6)
    consumer.skip_lines(1)
    consumer.drop_queue(queue, 6, "reassigned", in_flight=1)
    consumer.result(queue, delivery, 6, 6, pq_dropped=True)
    successor(made, broker)


@story
def o10(made: History) -> None:
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6)
    consumer.drop_queue(queue, 6, "shutdown", in_flight=1)
    consumer.result(queue, delivery, 6, 6, pq_dropped=True)
    consumer.close()
    successor(made, broker)


@story
def o13(made: History) -> None:
    """The broker is away: the offset cannot be told, the queue is given up, and the same consumer opens it again."""
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.drop_queue(queue, 7, "reassigned")
    consumer.persist(queue, 7, reason="drop", outcome="failed")
    broker.offset_get(consumer, 6)
    consumer.handle(consumer.open_queue(6), 6, 7)
    consumer.close()


@story
def o13_although_it_committed_more_later(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.drop_queue(queue, 7, "reassigned")
    consumer.persist(queue, 7, reason="drop")
    consumer.persist(queue, 7, reason="drop", outcome="failed")
    broker.offset_get(consumer, 6)
    consumer.handle(consumer.open_queue(6), 6, 7)
    broker.offset_set(consumer, 6, 7)
    consumer.close()


@story
def came_back_and_committed_more(made: History) -> None:
    """What it had committed before it came back is hidden behind what it committed after."""
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.drop_queue(queue, 7, "reassigned")
    consumer.persist(queue, 7, reason="drop")
    broker.offset_get(consumer, 6)
    consumer.handle(consumer.open_queue(6), 6, 7)
    broker.offset_set(consumer, 6, 7)
    consumer.close()


@story
def refused_to_another(made: History) -> None:
    """As o13, but another consumer comes next: this may as well be a hand-over to one that reached the broker."""
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.drop_queue(queue, 7, "reassigned")
    consumer.persist(queue, 7, reason="drop", outcome="failed")
    successor(made, broker)


@story
def o8_without_the_answer(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.drop_queue(queue, 7, "reassigned")
    consumer.persist(queue, 7, reason="drop")
    broker.offset_set(consumer, 6, 7)
    heir = made.consumer("c2")
    heir.handle(heir.open_queue(6), 6, 7)


@story
def two_owners(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    successor(made, broker)
    consumer.handle(queue, 7, 8)


@story
def members_of_a_broadcasting_group(made: History) -> None:
    for name in ("c1", "c2"):
        member = made.consumer(name)
        member.handle(member.open_queue(6, source="local"), 6, 7)
        member.close()


@story
def local_retry(made: History) -> None:
    consumer = made.consumer("c1")
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6)
    consumer.result(queue, delivery, 6, 6, "exception")
    consumer.deliver(queue, 6, kind="local_retry")
    consumer.close()


@story
def local_again_after_success(made: History) -> None:
    consumer, queue = owner_that_did_6(made)
    consumer.deliver(queue, 6)
    consumer.close()


def fail_and_retry(made: History, *, ask: bool, records: int = 1) -> None:
    consumer = made.consumer("c1")
    queue, retries = consumer.open_queue(6), consumer.open_queue(0, topic=retry_topic(made.group))
    delivery = consumer.deliver(queue, 6)
    consumer.result(queue, delivery, 6, 7, "reconsume")
    if ask:
        consumer.send_back(delivery, 6, made.key(6))
    for record in range(records):
        place = {"topic": retry_topic(made.group), "reconsume_times": [1]}
        consumer.handle(retries, record, record + 1, key=made.key(6), **place)
    consumer.close()


@story
def sent_back_while_its_handler_ran(made: History) -> None:
    """Cause B13: the handler did what it should, only too late; nobody asked for the retry."""
    consumer = made.consumer("c1")
    queue, retries = consumer.open_queue(6), consumer.open_queue(0, topic=retry_topic(made.group))
    delivery = consumer.deliver(queue, 6)
    consumer.send_back(delivery, 6, made.key(6), reason="expired")
    consumer.result(queue, delivery, 6, 7, "timeout")
    consumer.handle(retries, 0, 1, key=made.key(6), topic=retry_topic(made.group), reconsume_times=[1])
    consumer.close()


@story
def l1(made: History) -> None:
    fail_and_retry(made, ask=True)


@story
def l1_unrequested(made: History) -> None:
    fail_and_retry(made, ask=False)


@story
def l1_twice_for_one_request(made: History) -> None:
    fail_and_retry(made, ask=True, records=2)


@story
def another_group(made: History) -> None:
    consumer = made.consumer("c1")
    for group in (made.group, made.group + "-other"):
        consumer.handle(consumer.open_queue(6, group=group), 6, 7, group=group)
    consumer.close()


def send_twice(
    made: History, *, outcome: str = "connection_lost", definite: bool = False, calls: tuple[int, int] = (1, 1),
    deliver: bool = True, producer_known: bool = True,
) -> None:  # fmt: skip
    """One key to two brokers, each of which stores it, and a consumer that gets both copies."""
    first, second, producer = made.broker(), made.broker("broker-1"), made.producer()
    key = made.key(1)
    producer.send(key, request=1, call=calls[0], broker=first)
    first.append(key, 3, producer, request=1)
    if outcome:
        producer.send_result(1, outcome, definite)
    producer.send(key, request=2, call=calls[1], try_no=2 if calls[0] == calls[1] else 1, broker=second)
    second.append(key, 8, producer, request=2)
    producer.send_result(2, "ok")
    producer.close()
    if not producer_known:
        producer.path.unlink()
    if deliver:
        consumer = made.consumer("c1")
        for broker, offset in ((first, 3), (second, 8)):
            queue = consumer.open_queue(offset, broker_name=broker.name)
            consumer.handle(queue, offset, offset + 1, key=key, broker_name=broker.name)
        consumer.close()


@story
def p1(made: History) -> None:
    send_twice(made)


@story
def p1_undelivered(made: History) -> None:
    send_twice(made, deliver=False)


@story
def p1_without_the_producer(made: History) -> None:
    send_twice(made, producer_known=False)


@story
def p1_after_a_definite_refusal(made: History) -> None:
    send_twice(made, outcome="refused", definite=True)


@story
def p1_without_an_answer(made: History) -> None:
    send_twice(made, outcome="")


@story
def p3(made: History) -> None:
    send_twice(made, outcome="not_ok_status")


@story
def p5(made: History) -> None:
    send_twice(made, outcome="timeout", calls=(1, 2))


@story
def p5_by_business_key(made: History) -> None:
    broker, producer, consumer = made.broker(), made.producer(), made.consumer("c1")
    queue = consumer.open_queue(3)
    for number in (3, 4):
        producer.send(made.key(number), request=number, call=number)
        broker.append(made.key(number), number, producer, request=number)
        producer.send_result(number, "ok")
        consumer.handle(queue, number, number + 1, business_keys=[f"{made.name}-order"])
    for process in (producer, consumer, broker):
        process.close()


@story
def p5_by_business_key_without_the_producer(made: History) -> None:
    consumer = made.consumer("c1")
    queue = consumer.open_queue(3)
    for number in (3, 4):
        consumer.handle(queue, number, number + 1, business_keys=[f"{made.name}-order"])
    consumer.close()


@story
def o17(made: History) -> None:
    """Reset while the owner had everything committed; it follows by itself."""
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.offset_set(consumer, 6, 7)
    broker.offset_set(made.consumer("operator"), 7, 3, by="reset")
    consumer.drop_queue(queue, 7, "reset")
    broker.offset_get(consumer, 3)
    again = consumer.open_queue(3)
    consumer.handle(again, 6, 7)
    consumer.close()


@story
def o17_in_the_middle_of_a_handler(made: History) -> None:
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(6)
    consumer.deliver(queue, 6)
    broker.offset_set(made.consumer("operator"), 6, 6, by="clone")
    consumer.drop_queue(queue, 6, "reset", in_flight=1)
    broker.offset_get(consumer, 6)
    again = consumer.open_queue(6)
    consumer.handle(again, 6, 7)
    consumer.close()


@story
def o17_by_a_seek(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.offset_set(consumer, 6, 7)
    consumer.drop_queue(queue, 7, "seek")
    consumer.handle(consumer.open_queue(2, source="seek"), 6, 7)
    consumer.close()


@story
def o1_long_after_a_reset(made: History) -> None:
    """A reset before the first delivery explains nothing that came after it."""
    broker = made.broker()
    broker.offset_set(made.consumer("operator"), 9, 3, by="reset")
    consumer, _ = owner_that_did_6(made)
    consumer.kill()
    successor(made, broker)


@story
def o1_and_a_reset_that_went_further(made: History) -> None:
    """A reset to behind the record did not ask for it."""
    broker = made.broker()
    consumer, _ = owner_that_did_6(made)
    broker.offset_set(made.consumer("operator"), 6, 7, by="reset")
    consumer.kill()
    successor(made, broker)
