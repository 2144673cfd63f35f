"""Histories of delayed messages that a broker delivered twice, and of dead letters that were sent again."""

from typing import Any

from dejamq_proto.names import SCHEDULE_TOPIC, retry_topic
from journals import TOPIC, History, Process
from stories import story, story_of

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


def restarted(
    made: History, *written: dict[str, int], clean: bool = False, booted: bool = True, delivered: bool = True
) -> None:
    """A broker that delivered 6 wrote these progresses, ended and delivered it again."""
    broker = first_start(made, TOPIC)
    for levels in written:
        broker.progress(**levels)
    if clean:
        broker.close()
    else:
        broker.kill()
    again(made, next_start(made, clean=clean, booted=booted), TOPIC, delivered=delivered)


story_of("b1", restarted)
story_of("b1-undelivered", restarted, delivered=False)
story_of("b1-after-a-clean-stop", restarted, clean=True)
story_of("b1-without-the-restart", restarted, booted=False)
story_of("b1-although-progress-was-written", restarted, {"l3": 7}, {"l3": 7})

# The line stands in the journal, the file was not replaced any more.
story_of("b1-killed-while-progress-was-written", restarted, {"l3": 7})

# Progress of one level says nothing of another.
story_of("b1-at-another-level", restarted, {"l3": 6, "l4": 99})


@story
def b1_within_one_start(made: History) -> None:
    again(made, first_start(made, TOPIC), TOPIC)


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


SLOT = 1_700_000_000_000


def timed(
    made: History, *written: tuple[int, int], read: tuple[int, int] | None = None, clean: bool = False,
    slots: tuple[int, int] = (SLOT, SLOT),
) -> None:  # fmt: skip
    """A broker that delivered the timer topic's message 6 wrote these progresses, ended and delivered it again."""
    broker, key, other = made.broker(), made.key(6), {"l3": 9}
    broker.timer_progress(SLOT, 6)
    broker.append(key, 0, topic=TOPIC, origin="timer", origin_refs=[f"{slots[0]}:6"])
    broker.progress(**other)
    for read_ms, queue_offset in written:
        broker.timer_progress(read_ms, queue_offset)
    if clean:
        broker.close()
    else:
        broker.kill()
    broker = next_start(made, clean=clean)
    if read:
        broker.timer_progress_read(*read)
    broker.append(key, 1, topic=TOPIC, origin="timer", origin_refs=[f"{slots[1]}:6"])
    consumer = made.consumer()
    queue = consumer.open_queue(0, topic=TOPIC)
    for offset in (0, 1):
        consumer.handle(queue, offset, offset + 1, key=key, topic=TOPIC)
    consumer.close()
    broker.close()


story_of("b4", timed)
story_of("b4-of-a-slot-in-work", timed, (SLOT, 7), (SLOT, 7))
story_of("b4-of-a-message-that-came-late", timed, (SLOT + 5000, 6), (SLOT + 5000, 6))
story_of("b4-told-by-the-next-start", timed, read=(SLOT, 7))
story_of("b4-in-another-slot", timed, slots=(SLOT, SLOT + 9000))
story_of("b4-after-a-clean-stop", timed, clean=True)
story_of("b4-although-progress-was-written", timed, (SLOT + 1000, 7), (SLOT + 1000, 7))
story_of("b4-although-the-next-start-knew", timed, read=(SLOT + 1000, 7))


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


story_of("l7-to-the-topic", dead_letter_replayed, TOPIC)


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


story_of("b11", given_back_twice)
story_of("b11-without-the-send-back", given_back_twice, without="rpc")
story_of("b11-without-the-fallback", given_back_twice, without="fallback")
story_of("b11-without-the-append", given_back_twice, without="append")
story_of("b11-was-not-stored-by-the-broker", given_back_twice, stored_by_both=False, broker_answers="failed")
