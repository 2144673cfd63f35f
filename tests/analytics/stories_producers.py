"""Histories of producers that tried again by themselves, by the way the program sent (P2, P3, P6, P10); and of messages
that were given back because their handlers took too long (B13).
"""

from typing import Any

from dejamq_proto.journal.events import SendResultEvent, SendTry
from dejamq_proto.journal.writer import Level
from dejamq_proto.names import SCHEDULE_TOPIC, retry_topic
from journals import TOPIC, History, Process
from stories import story_of


def tried(producer: Process, key: str, request: int, modes: list[str], *, call: int = 1, others: int = 0) -> None:
    """A run with this message in its last place."""
    producer.write(SendTry(
        request_seq=request, broker_name=producer.home.broker_name, address="127.0.0.1:1", group="shop", topics=[TOPIC],
        call_ids=[*range(100, 100 + others), call], tries=[1] * others + [request],
        unique_keys=[*(f"other-{number}-{request}" for number in range(others)), key], modes=modes,
    ))  # fmt: skip


def two_tries(
    made: History, /, modes: list[str], outcome: str = "connection_lost", *, others: int = 0, known: bool = True,
    second_tried: bool = True, **result: Any,
) -> None:  # fmt: skip
    """One call whose two tries were both stored, and a consumer that gets both."""
    broker, producer, key = made.broker(), made.producer(), made.key(1)
    tried(producer, key, 1, modes, others=others)
    broker.append(key, 3, producer, request=1)
    if outcome:
        definite = {"definite": outcome == "not_ok_status"}
        producer.write(SendResultEvent(request_seq=1, outcome=outcome, **definite | result))
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


story_of("p2", two_tries, ["async"])
story_of("p2-in-a-run-with-others", two_tries, ["sync", "batch", "async"], others=2)
story_of("p1-in-a-run-with-others", two_tries, ["async", "batch", "sync"], others=2)
story_of("p1-by-another-calls-time-out", two_tries, [], reason="127.0.0.1:1: closed after a time-out")
story_of("p6", two_tries, ["batch"], others=2)
story_of("p6-not-durable-enough", two_tries, ["batch"], "not_ok_status")
story_of("p10", two_tries, ["request"], "timeout")
story_of("p2-without-an-answer", two_tries, ["async"], "")
story_of("p3-without-its-second-try", two_tries, [], "not_ok_status", second_tried=False)
story_of("p6-without-the-producer", two_tries, ["batch"], known=False)
story_of("p10-after-a-definite-refusal", two_tries, ["request"], "refused", definite=True)


def overdue(
    made: History, /, status: str = "timeout", reason: str = "success after 900 s", *, why: str = "",
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


story_of("b13", overdue)
story_of("b13-of-a-handler-that-never-ended", overdue, "")
story_of("b13-with-a-hole", overdue, "", why="hole")
story_of("b13-without-its-last-lines", overdue, "", level=Level.AUDIT)
story_of("b13-without-the-append", overdue, stored=False)
story_of("b13-without-the-send-back", overdue, why="unsaid")
story_of("b13-of-a-handler-that-failed", overdue, "timeout", "reconsume after 900 s")
story_of("b13-of-a-handler-that-threw", overdue, "exception", "ValueError()")
