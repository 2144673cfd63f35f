"""Histories in which the handler or the design asked for more: of lists, in order, of several audiences."""

from dejamq_proto.journal.events import Deliver, Result
from dejamq_proto.names import retry_topic
from journals import TOPIC, History, Process
from stories import story, story_of, successor
from stories_locks import lock


def enter_list(made: History, consumer: Process, queue: int) -> None:
    """One call of a handler gets 6 and 7, as deliveries 1 and 2."""
    consumer.write(Deliver(
        pq_id=queue, group=made.group, topic=TOPIC, broker_name=made.broker_name, queue_id=0, client_id=consumer.name,
        delivery_ids=[1, 2], queue_offsets=[6, 7], log_offsets=[600, 700], unique_keys=[made.key(6), made.key(7)],
        store_hosts=["127.0.0.1:10911"], batch_id=1,
    ))  # fmt: skip


def end_list(made: History, consumer: Process, queue: int, status: str, *offsets: int) -> None:
    """These of the list ended so."""
    consumer.write(Result(
        pq_id=queue, group=made.group, topic=TOPIC, broker_name=made.broker_name, queue_id=0,
        delivery_ids=[offset - 5 for offset in offsets], queue_offsets=list(offsets), status=status, mem_off=offsets[0],
    ))  # fmt: skip


def retry(made: History, consumer: Process, *offsets: int) -> None:
    """These are sent back, and come again by way of the retry topic."""
    topic = retry_topic(made.group)
    again = consumer.open_queue(0, topic=topic)
    for number, offset in enumerate(offsets):
        consumer.send_back(offset - 5, offset, made.key(offset))
        consumer.handle(again, number, number + 1, topic=topic, key=made.key(offset), reconsume_times=[1])


@story
def l2(made: History) -> None:
    """6 was done, 7 failed: both come again."""
    consumer = made.consumer()
    queue = consumer.open_queue(6)
    enter_list(made, consumer, queue)
    end_list(made, consumer, queue, "reconsume", 6, 7)
    retry(made, consumer, 6, 7)
    consumer.close()


@story
def l2_of_the_second_list_that_a_line_tells_of(made: History) -> None:
    """6 by itself was done, of 7 and 8 the call failed: both come again."""
    consumer = made.consumer()
    queue = consumer.open_queue(6)
    consumer.write(Deliver(
        pq_id=queue, group=made.group, topic=TOPIC, broker_name=made.broker_name, queue_id=0, client_id=consumer.name,
        delivery_ids=[1, 2, 3], queue_offsets=[6, 7, 8], log_offsets=[600, 700, 800],
        unique_keys=[made.key(6), made.key(7), made.key(8)], store_hosts=["127.0.0.1:10911"], batch_id=1,
        batch_sizes=[1, 2],
    ))  # fmt: skip
    end_list(made, consumer, queue, "success", 6)
    end_list(made, consumer, queue, "reconsume", 7, 8)
    retry(made, consumer, 7, 8)
    consumer.close()


@story
def l2_not_where_the_handler_said_what_was_done(made: History) -> None:
    consumer = made.consumer()
    queue = consumer.open_queue(6)
    enter_list(made, consumer, queue)
    end_list(made, consumer, queue, "success", 6)
    end_list(made, consumer, queue, "reconsume", 7)
    retry(made, consumer, 7)
    consumer.close()


@story
def l5_of_a_handler_in_whose_name_its_client_asked(made: History) -> None:
    """RocketMQ's client sends a message back whose handler was interrupted, as if it had failed."""
    consumer = made.consumer()
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6)
    consumer.result(queue, delivery, 6, 7, "cancelled")
    retry(made, consumer, 6)
    consumer.close()


@story
def l2_without_the_result(made: History) -> None:
    consumer = made.consumer()
    queue = consumer.open_queue(6)
    enter_list(made, consumer, queue)
    consumer.skip_lines(1)
    retry(made, consumer, 7)
    consumer.close()


def fails_in_order(made: History, status: str, *, dead: bool = False, lost: int = 0) -> Process:
    """6 ends so and comes again at once, in one ownership; ``lost`` lines of it are missing."""
    made.broker()
    consumer = made.consumer()
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6)
    consumer.result(queue, delivery, 6, 6, status=status)
    if dead:
        consumer.send_back(delivery, 6, made.key(6), path="fallback")
    consumer.skip_lines(lost)
    consumer.handle(queue, 6, 7, kind="suspend_retry")
    consumer.close()
    return consumer


story_of("l3", fails_in_order, "suspend")


@story
def l3_by_the_next_owner(made: History) -> None:
    broker, consumer = made.broker(), made.consumer()
    queue = consumer.open_queue(6)
    consumer.result(queue, consumer.deliver(queue, 6), 6, 6, status="suspend")
    consumer.drop_queue(queue, 6)
    consumer.close()
    successor(made, broker)


@story
def l3_of_a_failure_by_the_next_owner(made: History) -> None:
    """The queue has a lock, so it is consumed in order: a failure waits for its turn and is not sent back."""
    broker, consumer = made.broker(), made.consumer()
    lock(broker, consumer)
    queue = consumer.open_queue(6)
    consumer.result(queue, consumer.deliver(queue, 6), 6, 6, status="exception")
    consumer.drop_queue(queue, 6)
    consumer.close()
    successor(made, broker)


story_of("l4", fails_in_order, "exception", dead=True)
story_of("l4-with-a-hole", fails_in_order, "exception", dead=True, lost=1)
story_of("l3-not-l4-without-a-dead-letter", fails_in_order, "exception")


@story
def l5_in_its_own_queue(made: History) -> None:
    consumer = made.consumer()
    queue = consumer.open_queue(6)
    consumer.result(queue, consumer.deliver(queue, 6), 6, 6, status="cancelled")
    consumer.handle(queue, 6, 7, kind="local_retry")
    consumer.close()


def kept_until_the_end(made: History, *outcomes: str) -> None:
    """6 failed, and its owner died before it could try it again: 6 held the low-water mark."""
    broker, consumer = made.broker(), made.consumer()
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6)
    consumer.result(queue, delivery, 6, 6, status="exception")
    for outcome in outcomes:
        consumer.send_back(delivery, 6, made.key(6), path="fallback", outcome=outcome)
    consumer.kill()
    successor(made, broker)


story_of("b12-by-the-next-owner", kept_until_the_end, "failed")
story_of("b12-whether-or-not-it-was-taken-back", kept_until_the_end, "indefinite")
story_of("b12-without-the-send-back", kept_until_the_end)


def interrupted(made: History, lost: int = 0) -> None:
    broker, consumer = made.broker(), made.consumer()
    queue = consumer.open_queue(6)
    consumer.result(queue, consumer.deliver(queue, 6), 6, 6, status="cancelled")
    consumer.skip_lines(lost)
    consumer.drop_queue(queue, 6)
    consumer.close()
    successor(made, broker)


story_of("l5", interrupted)
story_of("l5-with-a-hole", interrupted, lost=1)
story_of("l6", fails_in_order, "uncommitted")
story_of("l6-of-the-one-that-rolled-back", fails_in_order, "rollback")


def uncommitted(made: History, *, commit: bool) -> None:
    """6 waits for a COMMIT, which 7 brings or nobody; then the consumer is killed before it told any offset."""
    broker, consumer = made.broker(), made.consumer()
    queue = consumer.open_queue(6)
    consumer.result(queue, consumer.deliver(queue, 6), 6, 6, status="uncommitted")
    if commit:
        consumer.handle(queue, 7, 8)
    consumer.kill()
    successor(made, broker)


story_of("l6-never-committed", uncommitted, commit=False)
story_of("o1-although-it-was-committed-later", uncommitted, commit=True)


@story
def l8_but_one_member_twice(made: History) -> None:
    """What a member has twice by itself is not because there are several."""
    for name in ("c1", "c2"):
        member = made.consumer(name)
        for _ in range(1 + (name == "c1")):
            member.handle(member.open_queue(6, source="local"), 6, 7)
        member.close()


@story
def l9_of_two_groups(made: History) -> None:
    """Two messages, which both groups had."""
    for group in (made.group, made.group + "-other"):
        consumer = made.consumer(group)
        queue = consumer.open_queue(6, group=group)
        for offset in (6, 7):
            consumer.handle(queue, offset, offset + 1, group=group)
        consumer.close()


@story
def l9_not_of_what_each_group_had_alone(made: History) -> None:
    for offset, group in enumerate((made.group, made.group + "-other"), 6):
        consumer = made.consumer(group)
        consumer.handle(consumer.open_queue(6, group=group), offset, offset + 1, group=group)
        consumer.close()


def sent_to_two_topics(made: History, *, journaled: bool) -> None:
    producer, consumer = made.producer(), made.consumer()
    for number, topic in ((3, TOPIC), (4, "bills")):
        if journaled:
            producer.send(made.key(number), request=number, call=number)
            producer.send_result(number, "ok")
        queue = consumer.open_queue(number, topic=topic)
        consumer.handle(queue, number, number + 1, topic=topic, business_keys=[f"{made.name}-order"])
    for process in (producer, consumer):
        process.close()


story_of("l9-to-two-topics", sent_to_two_topics, journaled=True)
story_of("l9-to-two-topics-without-the-producer", sent_to_two_topics, journaled=False)
