"""Small histories, each with a known truth. ``STORIES``: a name, which is also the consumer group, to its writer."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Concatenate, ParamSpec

from dejamq_proto.journal.writer import Level
from dejamq_proto.names import retry_topic
from journals import History, Process

Story = Callable[[History], None]
Told = ParamSpec("Told")
Writer = Callable[Concatenate[History, Told], object]
STORIES: dict[str, Story] = {}


def story(write: Story) -> Story:
    STORIES[write.__name__.replace("_", "-")] = write
    return write


def story_of(name: str, write: Writer[Told], *args: Told.args, **more: Told.kwargs) -> None:
    """A story that is told by a writer of many: what is not said here is as the writer has it."""

    def tell(made: History) -> None:
        write(made, *args, **more)

    STORIES[name] = tell


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


def lost_owner(
    made: History, *, level: Level = Level.FORENSIC, persisted: int = 0, told: tuple[int, int] | None = None,
    broker_level: Level | None = Level.FORENSIC, broker_hole: int = 0, hole: int = 0, closed: bool = False,
    start: int = 6, broker_ends: bool = False,
) -> None:  # fmt: skip
    """c1 did 6 and is killed, or closed without a word on its offset; c2 begins at `start`.

    `told`: what the broker wrote down when c1 committed, before and after. There is no broker without a `broker_level`.
    """
    broker = made.broker(level=broker_level) if broker_level is not None else None
    consumer, queue = owner_that_did_6(made, level)
    if persisted:
        consumer.persist(queue, persisted)
    if hole:
        consumer.skip_lines(hole)
        consumer.fault(consumer, "none")
    if broker is not None:
        if told is not None:
            broker.offset_set(consumer, *told)
        broker.skip_lines(broker_hole)
    if closed:
        consumer.close()
    else:
        consumer.kill()
    successor(made, broker, start, max(start, 6))
    if broker is not None and broker_ends:
        broker.close()


story_of("clean", lost_owner, persisted=7, told=(6, 7), start=7)
story_of("o1", lost_owner)
story_of("o1-after-an-older-persist", lost_owner, persisted=6, told=(0, 6))
story_of("o2", lost_owner, persisted=7, broker_ends=True)
story_of("o2-without-the-broker", lost_owner, persisted=7, broker_level=None)
story_of("o2-with-a-hole-at-the-broker", lost_owner, persisted=7, broker_hole=1)
story_of("o2-with-a-buffering-broker", lost_owner, persisted=7, broker_level=Level.AUDIT)
story_of("o1-with-a-hole", lost_owner, hole=2)
story_of("o1-at-level-audit", lost_owner, level=Level.AUDIT)
story_of("closed-without-persisting", lost_owner, closed=True)
story_of("forgotten-by-the-broker", lost_owner, persisted=7, told=(6, 7))


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
def o1_with_a_hole_before(made: History) -> None:
    """A hole that ends before the delivery has nothing to do with it."""
    broker, consumer = made.broker(), made.consumer("c1")
    consumer.skip_lines(2)
    queue = consumer.open_queue(6)
    consumer.handle(queue, 6, 7)
    consumer.kill()
    successor(made, broker)


@story
def o1_without_the_second_opening(made: History) -> None:
    made.broker()
    consumer, _ = owner_that_did_6(made)
    consumer.kill()
    made.consumer("c2").handle(1, 6, 7)


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


def given_up_under_its_handler(made: History, reason: str, status: str = "success", *, hole: int = 0) -> None:
    """c1 loses the queue while it handles 6, or closes."""
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6)
    consumer.skip_lines(hole)
    consumer.drop_queue(queue, 6, reason, in_flight=1)
    consumer.result(queue, delivery, 6, 6, pq_dropped=True, status=status)
    if reason == "shutdown":
        consumer.close()
    successor(made, broker)


story_of("o9", given_up_under_its_handler, "reassigned")

# A line is missing between the delivery and the drop: what it said could have been another cause.
story_of("o9-with-a-hole", given_up_under_its_handler, "reassigned", hole=1)

story_of("o10", given_up_under_its_handler, "shutdown")
story_of("o10-that-interrupts-its-handler", given_up_under_its_handler, "shutdown", "cancelled")


def came_back(made: History, *outcomes: str, set_later: bool = False) -> None:
    """c1 gives the queue up, tells its offset with these outcomes, and opens the queue again.

    ``set_later``: only then does the broker write down what c1 told.
    """
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.drop_queue(queue, 7, "reassigned")
    for outcome in outcomes:
        consumer.persist(queue, 7, reason="drop", **({"outcome": outcome} if outcome else {}))
    broker.offset_get(consumer, 6)
    consumer.handle(consumer.open_queue(6), 6, 7)
    if set_later:
        broker.offset_set(consumer, 6, 7)
    consumer.close()


# The broker is away: the offset cannot be told, the queue is given up, and the same consumer opens it again.
story_of("o13", came_back, "failed")

story_of("o13-although-it-committed-more-later", came_back, "", "failed", set_later=True)

# What it had committed before it came back is hidden behind what it committed after.
story_of("came-back-and-committed-more", came_back, "", set_later=True)


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


story_of("l1", fail_and_retry, ask=True)
story_of("l1-unrequested", fail_and_retry, ask=False)
story_of("l1-twice-for-one-request", fail_and_retry, ask=True, records=2)


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


story_of("p1", send_twice)
story_of("p1-undelivered", send_twice, deliver=False)
story_of("p1-without-the-producer", send_twice, producer_known=False)
story_of("p1-after-a-definite-refusal", send_twice, outcome="refused", definite=True)
story_of("p1-without-an-answer", send_twice, outcome="")
story_of("p3", send_twice, outcome="not_ok_status")
story_of("p5", send_twice, outcome="timeout", calls=(1, 2))


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
