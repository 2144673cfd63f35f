"""What nearly all of a large journal is: runs of messages that were stored, delivered and done once."""

import itertools
import random
from typing import Any

from dejamq_proto.journal.events import Append, Deliver, PqOpen, Result
from dejamq_proto.journal.writer import Level
from journals import TOPIC, History

RUN, RUNS, QUEUES = 64, 12, 3
SECOND = 1 << 40
"""Ids of deliveries that came a second time are above."""


def run_of(
    history: History, number: int, *, group: str | None = None, queue_id: int = 0
) -> tuple[Append, Deliver, Result]:
    """A run of 64 messages as it is stored, delivered and done."""
    offsets = list(range(number * RUN, number * RUN + RUN))
    ids = [queue_id << 32 | offset for offset in offsets]
    keys, logs = [history.key(one) for one in ids], [one * 100 for one in ids]
    place: dict[str, Any] = {
        "group": group or history.group, "topic": TOPIC, "broker_name": history.broker_name, "queue_id": queue_id
    }  # fmt: skip
    return (
        Append(origin="client", broker_name=history.broker_name, topics=[TOPIC], queue_ids=[queue_id],
               queue_index=[0] * RUN, queue_offsets=offsets, log_offsets=logs, unique_keys=keys),
        Deliver(pq_id=queue_id + 1, **place, client_id="c1", delivery_ids=ids, queue_offsets=offsets,
                log_offsets=logs, unique_keys=keys),
        Result(pq_id=queue_id + 1, **place, delivery_ids=ids, queue_offsets=offsets, status="success",
               mem_off=offsets[-1] + 1),
    )  # fmt: skip


def opening(history: History, group: str, queue_id: int) -> PqOpen:
    """A group begins a queue at its first message."""
    return PqOpen(pq_id=queue_id + 1, group=group, topic=TOPIC, broker_name=history.broker_name, queue_id=queue_id,
                  client_id="c1", start_offset=0, source="broker")  # fmt: skip


def write_shared(history: History, chance: random.Random, runs: int = RUNS) -> None:
    """Runs in three queues, of which three groups had most, each in an order that is nearly that of the queue."""
    broker = history.broker(level=Level.AUDIT)
    turns: list[tuple[float, str, int, int]] = []
    consumers = {}
    for group in ("shared-b", "shared-a", "shared-c"):
        consumers[group] = history.consumer(group, level=Level.AUDIT)
        begin, share = chance.uniform(0, runs), chance.choice([0.3, 0.9, 1.0])
        for queue_id in range(QUEUES):
            consumers[group].write(opening(history, group, queue_id))
            had = [number for number in range(runs) if chance.random() < share]
            turns += [(begin + number + chance.choice([0, 0, 0, 1.5]), group, queue_id, number) for number in had]
    for queue_id, number in itertools.product(range(QUEUES), range(runs)):
        broker.write(run_of(history, number, queue_id=queue_id)[0])
    for _, group, queue_id, number in sorted(turns):
        _, deliver, result = run_of(history, number, group=group, queue_id=queue_id)
        consumers[group].write(deliver)
        consumers[group].write(result)
    history.end()


def write_remade(history: History) -> None:
    """A topic that was deleted and made again: its first run was another one before, and not everybody had that."""
    broker = history.broker(level=Level.AUDIT)
    for group, runs in {"remade-a": [(0, 0), (1, 0), (0, 1)], "remade-b": [(0, 1), (1, 0)]}.items():
        consumer = history.consumer(group, level=Level.AUDIT)
        consumer.write(opening(history, group, 0))
        for number, age in runs:
            stored, delivered, done = run_of(history, number, group=group)
            for event in (stored, delivered):
                event.log_offsets = [age << 20 | one for one in event.log_offsets]
                event.unique_keys = [f"{one}-{age}" for one in event.unique_keys]
            delivered.delivery_ids = done.delivery_ids = [age << 20 | one for one in delivered.delivery_ids]
            if group == "remade-a":
                broker.write(stored)
            consumer.write(delivered)
            consumer.write(done)
    history.end()


def write_runs(
    history: History, unseen: int | None = None, again: int | None = None, brokers: bool = True, runs: int = RUNS
) -> None:
    """Twelve runs; one may never come to the consumer, and one may come to it a second time."""
    broker, consumer = history.broker(level=Level.AUDIT), history.consumer(level=Level.AUDIT)
    consumer.write(opening(history, history.group, 0))
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
