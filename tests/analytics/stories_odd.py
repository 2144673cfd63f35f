"""Histories with something odd that is no duplicate, and their neighbours without it. The odd ones name
their anomaly.
"""

from collections.abc import Callable, Sequence

from dejamq_proto.journal.events import Append, Boot, EndTransaction
from dejamq_proto.journal.writer import Level
from dejamq_proto.names import HALF_TOPIC, SCHEDULE_TOPIC, dlq_topic, retry_topic
from journals import TOPIC, History, Process
from stories import Told, Writer

Odd = Callable[[History], None]
ODD: dict[str, tuple[str | None, Odd]] = {}


def odd(kind: str | None) -> Callable[[Odd], Odd]:
    """Register a history; ``kind`` is the anomaly that it must show once, None for none."""

    def register(write: Odd) -> Odd:
        ODD[write.__name__.replace("_", "-")] = (kind, write)
        return write

    return register


def odd_of(name: str, kind: str | None, write: Writer[Told], *args: Told.args, **more: Told.kwargs) -> None:
    """As `odd`, told by a writer of many: what is not said here is as the writer has it."""

    def tell(made: History) -> None:
        write(made, *args, **more)

    ODD[name] = (kind, tell)


# --- retries and dead letters


def failures(made: History, broker: Process, consumer: Process, tries: int) -> None:
    """The group is given the message so often, each time in vain, and asks for the next try."""
    broker.member(consumer)
    queue = consumer.open_queue(6)
    retries = consumer.open_queue(0, topic=retry_topic(made.group))
    for turn in range(tries):
        place = {"topic": retry_topic(made.group), "reconsume_times": [turn]} if turn else {}
        delivery = consumer.deliver(retries if turn else queue, 6, made.key(6), **place)
        consumer.result(queue, delivery, 6, 7, "reconsume")
        consumer.send_back(delivery, 6, made.key(6))


def buried(made: History, /, tries: int, **more: Level) -> None:
    broker, consumer = made.broker(), made.consumer(**more)
    failures(made, broker, consumer, tries)
    broker.append(made.key(6), 0, topic=dlq_topic(made.group), origin="sendback", reconsume_times=[3])
    broker.close()


odd_of("buried-after-its-tries", None, buried, 3)
odd_of("buried-too-soon", "dead_letter_without_tries", buried, 2)

# It may have been given the message once more and not have written it down.
odd_of("buried-too-soon-with-a-buffering-consumer", None, buried, 2, level=Level.AUDIT)


@odd(None)
def buried_too_soon_by_strangers(made: History) -> None:
    """A member of the group has no journal here."""
    broker, consumer = made.broker(), made.consumer()
    failures(made, broker, consumer, 2)
    stranger = Process(History(made.directory / "elsewhere", made.name), "consumer", "c9", "stranger", Level.FORENSIC)
    broker.member(stranger)
    broker.append(made.key(6), 0, topic=dlq_topic(made.group), origin="sendback", reconsume_times=[3])
    stranger.kill()


def given_back(made: History, /, *, status: str | None, asked: bool, **more: str) -> None:
    broker, consumer = made.broker(), made.consumer()
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6)
    if status is not None:
        consumer.result(queue, delivery, 6, 7, status)
    if asked:
        consumer.send_back(delivery, 6, made.key(6), **more)
    broker.append(made.key(6), 0, topic=SCHEDULE_TOPIC, origin="sendback", reconsume_times=[1],
                  origin_refs=[f"{consumer.boot_id}:{delivery}"])  # fmt: skip


odd_of("given-back-after-a-failure", None, given_back, status="exception", asked=True)
odd_of("given-back-by-the-consume-timeout", None, given_back, status="success", asked=True, reason="expired")
odd_of("given-back-after-success", "retry_without_failure", given_back, status="success", asked=True)
odd_of("given-back-by-nobody", "retry_without_failure", given_back, status="success", asked=False)


@odd(None)
def given_back_by_one_with_a_hole(made: History) -> None:
    given_back(made, status="success", asked=False)
    made.processes[1].skip_lines(1)
    made.processes[1].close()


# --- what should not have been delivered


def sent_and_read(made: History, *outcomes: tuple[str, bool]) -> Process:
    """One message, tried so often with these outcomes, and delivered."""
    broker, producer, consumer = made.broker(), made.producer(), made.consumer()
    for number, (outcome, definite) in enumerate(outcomes, 1):
        producer.send(made.key(6), request=number, call=1, try_no=number)
        producer.send_result(number, outcome, definite)
    broker.append(made.key(6), 6, producer, request=1)
    consumer.handle(consumer.open_queue(6), 6, 7)
    return producer


@odd("aborted_read")
def refused_and_read(made: History) -> None:
    sent_and_read(made, ("refused", True), ("refused", True)).close()


odd_of("refused-once-and-read", None, sent_and_read, ("refused", True), ("ok", True))
odd_of("timed-out-and-read", None, sent_and_read, ("timeout", False))


@odd(None)
def refused_and_read_with_a_hole_at_the_producer(made: History) -> None:
    producer = sent_and_read(made, ("refused", True))
    producer.skip_lines(1)
    producer.close()


def transaction(made: History, *outcomes: str, half: bool = True) -> None:
    """A half message that was ended so, and a message of its key that was delivered."""
    broker, producer, consumer = made.broker(), made.producer(), made.consumer()
    if half:
        broker.append(made.key(6), 3, producer, request=1, topic=HALF_TOPIC, origin="tx_half")
    for number, outcome in enumerate(outcomes, 2):
        broker.write(EndTransaction(
            broker_name=broker.name, group="shop", unique_key=made.key(6), half_queue_offset=3, half_log_offset=300,
            state="commit", from_check=False, outcome=outcome, request_seq=number,
        ))  # fmt: skip
    broker.append(made.key(6), 6, producer, request=2, origin="tx_final", origin_refs=["3:300"])
    consumer.handle(consumer.open_queue(6), 6, 7)
    broker.close()


odd_of("rolled-back-and-read", "aborted_read", transaction, "rolled_back")
odd_of("rolled-back-and-committed", None, transaction, "rolled_back", "committed")
odd_of("committed-without-a-half", "final_without_half", transaction, "committed", half=False)


@odd(None)
def committed_from_before_the_journal(made: History) -> None:
    """The half message lies before the place in the log that the journal begins at."""
    broker = made.process("broker", "broker-0")
    broker.write(Boot(broker_name=broker.name, broker_id=0, address="127.0.0.1:1", clean=True, log_max=400))
    broker.append(made.key(6), 6, origin="tx_final", origin_refs=["3:300"])
    broker.close()


# --- places and times


def two_at_one_place(made: History, second_at: int) -> None:
    consumer = made.consumer()
    queue = consumer.open_queue(6)
    consumer.handle(queue, 6, 7, log_offset=600)
    consumer.handle(queue, 6, 7, log_offset=second_at, key=made.key(9))


odd_of("another-message-at-its-place", "inconsistent_offsets", two_at_one_place, 600)

# Its queues count from 0 again, further on in the log.
odd_of("a-topic-made-anew", None, two_at_one_place, 9000)


def delayed(made: History, after_ms: int, *, delays: tuple[int, ...] = (1000, 5000, 10_000)) -> Process:
    broker = made.process("broker", "broker-0")
    broker.write(Boot(broker_name=broker.name, broker_id=0, address="127.0.0.1:1", clean=True,
                      delay_levels_ms=list(delays)))  # fmt: skip
    broker.write(append_of(made, broker, SCHEDULE_TOPIC, "client", queue_id=2))
    made.clock.now_us += after_ms * 1000
    broker.write(append_of(made, broker, TOPIC, "schedule", origin_refs=["3:6"]))
    return broker


def append_of(
    made: History, broker: Process, topic: str, origin: str, *, queue_id: int = 0, origin_refs: Sequence[str] = ()
) -> Append:
    return Append(
        origin=origin, broker_name=broker.name, topics=[topic], queue_ids=[queue_id], queue_index=[0],
        queue_offsets=[6], log_offsets=[600], unique_keys=[made.key(6)], origin_refs=list(origin_refs),
    )  # fmt: skip


odd_of("delayed-for-less", "delayed_early", delayed, 5000)
odd_of("delayed-as-long-as-it-should", None, delayed, 9990)
odd_of("delayed-by-a-broker-that-does-not-tell-its-delays", None, delayed, 5000, delays=())


# --- acknowledged, and perhaps only not written down


@odd(None)
def acknowledged_by_a_buffering_broker_that_was_killed(made: History) -> None:
    broker, producer = made.broker(level=Level.AUDIT), made.producer()
    producer.send(made.key(6), request=1, call=1)
    producer.send_result(1, "ok")
    broker.kill()


# --- clocks of machines that disagree


def taken_over(made: History, skew_ms: int) -> None:
    """O1: c1 is killed before its offset left, and c2, whose clock is so far off, gets the message again."""
    broker, first = made.broker(), made.consumer()
    broker.member(first)
    broker.offset_get(first, 6)
    first.handle(first.open_queue(6), 6, 7)
    first.kill()
    boot_id = f"{made.name}c2".replace("-", "")
    second = Process(made, "consumer", f"{made.name}-c2", boot_id, Level.FORENSIC, skew_ms / 1000)
    broker.member(second)
    broker.offset_get(second, 6)
    queue = second.open_queue(6)
    second.handle(queue, 6, 7)
    second.persist(queue, 7)
    broker.offset_set(second, 6, 7)
    for process in (second, broker):
        process.close()


odd_of("clocks-that-agree", None, taken_over, 0)
odd_of("a-clock-behind", None, taken_over, -3_600_000)
odd_of("a-clock-ahead", None, taken_over, 3_600_000)
