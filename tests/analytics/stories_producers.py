"""Histories of producers that tried again by themselves, by the way the program sent (P2, P3, P6, P10); and of messages
that were given back because their handlers took too long (B13).
"""

from typing import Any

from dejamq_proto.events import SendResult, SendTry
from dejamq_proto.journal import Level
from dejamq_proto.names import SCHEDULE_TOPIC, retry_topic
from journals import TOPIC, History, Process
from stories import story


def tried(producer: Process, key: str, request: int, modes: list[str], *, call: int = 1, others: int = 0) -> None:
    """A run with this message in its last place."""
    producer.write(SendTry(
        request_seq=request, broker_name=producer.home.broker_name, address="127.0.0.1:1", group="shop", topics=[TOPIC],
        call_ids=[*range(100, 100 + others), call], tries=[1] * others + [request],
        unique_keys=[*(f"other-{number}-{request}" for number in range(others)), key], modes=modes,
    ))  # fmt: skip


def two_tries(
    made: History, modes: list[str], outcome: str = "connection_lost", *, others: int = 0, known: bool = True,
    second_tried: bool = True, **result: Any,
) -> None:  # fmt: skip
    """One call whose two tries were both stored, and a consumer that gets both."""
    broker, producer, key = made.broker(), made.producer(), made.key(1)
    tried(producer, key, 1, modes, others=others)
    broker.append(key, 3, producer, request=1)
    if outcome:
        definite = {"definite": outcome == "not_ok_status"}
        producer.write(SendResult(request_seq=1, outcome=outcome, **definite | result))
    if second_tried:
        tried(producer, key, 2, modes, others=others)
    else:
        producer.skip_lines(1)
    broker.append(key, 8, producer, request=2)
    producer.send_result(2, "ok")
    producer.close()
    if not known:
        producer.path.unlink()
    consumer = made.consumer("c1")
    queue = consumer.open_queue(3)
    for offset in (3, 8):
        consumer.handle(queue, offset, offset + 1, key=key)
    consumer.close()


@story
def p2(made: History) -> None:
    two_tries(made, ["async"])


@story
def p2_in_a_run_with_others(made: History) -> None:
    two_tries(made, ["sync", "batch", "async"], others=2)


@story
def p1_in_a_run_with_others(made: History) -> None:
    two_tries(made, ["async", "batch", "sync"], others=2)


@story
def p1_by_another_calls_time_out(made: History) -> None:
    two_tries(made, [], reason="127.0.0.1:1: closed after a time-out")


@story
def p6(made: History) -> None:
    two_tries(made, ["batch"], others=2)


@story
def p6_not_durable_enough(made: History) -> None:
    two_tries(made, ["batch"], "not_ok_status")


@story
def p10(made: History) -> None:
    two_tries(made, ["request"], "timeout")


@story
def p2_without_an_answer(made: History) -> None:
    two_tries(made, ["async"], "")


@story
def p3_without_its_second_try(made: History) -> None:
    two_tries(made, [], "not_ok_status", second_tried=False)


@story
def p6_without_the_producer(made: History) -> None:
    two_tries(made, ["batch"], known=False)


@story
def p10_after_a_definite_refusal(made: History) -> None:
    two_tries(made, ["request"], "refused", definite=True)


def overdue(
    made: History, status: str = "timeout", reason: str = "success after 900 s", *, why: str = "",
    stored: bool = True, **journal: Any,
) -> None:  # fmt: skip
    """A handler that takes too long: its message is given back meanwhile, and delivered from the retry topic."""
    broker, consumer, key, retries = made.broker(), made.consumer("c1", **journal), made.key(6), retry_topic(made.group)
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6, key)
    if why == "hole":
        consumer.skip_lines(1)
    if why != "unsaid":
        consumer.send_back(delivery, 6, key, reason="expired")
    if stored:
        broker.append(key, 0, consumer, topic=SCHEDULE_TOPIC, origin="sendback",
                      origin_refs=[f"{consumer.boot_id}:{delivery}"])  # fmt: skip
    if why == "unsaid":
        consumer.skip_lines(1)
    broker.append(key, 0, topic=retries, origin="schedule", origin_refs=["1:0"])
    if status:
        consumer.result(queue, delivery, 6, 7, status, reason=reason)
    heir = made.consumer("c2")
    heir.handle(heir.open_queue(0, topic=retries), 0, 1, key=key, topic=retries, reconsume_times=[1])
    heir.close()
    consumer.close() if status else consumer.kill()


@story
def b13(made: History) -> None:
    overdue(made)


@story
def b13_of_a_handler_that_never_ended(made: History) -> None:
    overdue(made, "")


@story
def b13_with_a_hole(made: History) -> None:
    overdue(made, "", why="hole")


@story
def b13_without_its_last_lines(made: History) -> None:
    overdue(made, "", level=Level.AUDIT)


@story
def b13_without_the_append(made: History) -> None:
    overdue(made, stored=False)


@story
def b13_without_the_send_back(made: History) -> None:
    overdue(made, why="unsaid")


@story
def b13_of_a_handler_that_failed(made: History) -> None:
    overdue(made, "timeout", "reconsume after 900 s")


@story
def b13_of_a_handler_that_threw(made: History) -> None:
    overdue(made, "exception", "ValueError()")
