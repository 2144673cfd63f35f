"""What nearly all of a large journal is: runs of messages that were stored, delivered and done once."""

from typing import Any

from dejamq_proto.events import Append, Deliver, PqOpen, Result
from dejamq_proto.journal import Level
from journals import TOPIC, History

RUN, RUNS = 64, 12
SECOND = 1 << 40
"""Ids of deliveries that came a second time are above."""


def run_of(history: History, number: int) -> tuple[Append, Deliver, Result]:
    """A run of 64 messages as it is stored, delivered and done."""
    offsets = list(range(number * RUN, number * RUN + RUN))
    keys, logs = [history.key(offset) for offset in offsets], [offset * 100 for offset in offsets]
    place: dict[str, Any] = {
        "group": history.group, "topic": TOPIC, "broker_name": history.broker_name, "queue_id": 0
    }  # fmt: skip
    return (
        Append(origin="client", broker_name=history.broker_name, topics=[TOPIC], queue_ids=[0], queue_index=[0] * RUN,
               queue_offsets=offsets, log_offsets=logs, unique_keys=keys),
        Deliver(pq_id=1, **place, client_id="c1", delivery_ids=offsets, queue_offsets=offsets, log_offsets=logs,
                unique_keys=keys),
        Result(pq_id=1, **place, delivery_ids=offsets, queue_offsets=offsets, status="success",
               mem_off=offsets[-1] + 1),
    )  # fmt: skip


def write_runs(
    history: History, unseen: int | None = None, again: int | None = None, brokers: bool = True, runs: int = RUNS
) -> None:
    """Twelve runs; one may never come to the consumer, and one may come to it a second time."""
    broker, consumer = history.broker(level=Level.AUDIT), history.consumer(level=Level.AUDIT)
    consumer.write(PqOpen(pq_id=1, group=history.group, topic=TOPIC, broker_name=history.broker_name, queue_id=0,
                          client_id="c1", start_offset=0, source="broker"))  # fmt: skip
    for number in range(runs):
        append, deliver, result = run_of(history, number)
        if brokers:
            broker.write(append)
        if number != unseen:
            consumer.write(deliver)
            consumer.write(result)
    if again is not None:
        twice = run_of(history, again)[1]
        twice.delivery_ids = [SECOND + offset for offset in twice.delivery_ids]
        consumer.write(twice)
    history.end()
