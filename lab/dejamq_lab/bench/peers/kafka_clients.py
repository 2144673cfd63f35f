"""Kafka by confluent-kafka, which is librdkafka in C: batches by themselves, polls of 500."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from dejamq_lab.bench.client.result import Job, Span
from dejamq_lab.bench.client.stopwatch import Gate
from dejamq_lab.bench.peers import client_loops

POLLED, WAIT_S, READY_S = 500, 1.0, 60.0
SERVED = 256
"""Messages that are handed to librdkafka before their results are asked for."""


class TopicSender:
    def __init__(self, address: str, topic: str, linger_ms: float) -> None:
        self._topic = topic
        self._failed: KafkaError | None = None
        self._producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": linger_ms})

    async def send_all(self, bodies: Iterable[bytes]) -> None:
        produce, told, topic = self._producer.produce, self._told, self._topic
        for number, body in enumerate(bodies):
            while True:
                try:
                    produce(topic, body, on_delivery=told)
                    break
                except BufferError:  # a broker that stands still; what waits too long fails, and so makes room
                    self._producer.poll(0.1)
            if number % SERVED == 0:
                self._producer.poll(0)
        self._producer.flush()
        self._check()

    async def send(self, body: bytes) -> None:
        self._producer.produce(self._topic, body, on_delivery=self._told)
        self._producer.flush()
        self._check()

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        self._failed = self._failed or error

    def _check(self) -> None:
        if self._failed is not None:
            raise KafkaException(self._failed)


class TopicReceiver:
    """Assigned when it is made; reads body and offset of each message, commits as librdkafka does by itself."""

    def __init__(self, address: str, topic: str, polled: int) -> None:
        self._polled = polled
        self._consumer = Consumer({
            "bootstrap.servers": address, "group.id": "bench", "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        })  # fmt: skip
        self._size = 0
        self._consumer.subscribe([topic])
        self._first: list[Message] = []
        deadline = time.monotonic() + READY_S
        while not self._consumer.assignment() and time.monotonic() < deadline:
            self._first += self._consumer.consume(1, 0.05)

    async def receive(self) -> Sequence[bytes]:
        messages, self._first = self._first or self._consumer.consume(self._polled, WAIT_S), []
        bodies = []
        for message in messages:
            if error := message.error():
                raise KafkaException(error)
            self._size += message.offset() or 0
            body: Any = message.value()
            bodies.append(body)
        return bodies

    async def acknowledge(self) -> None:
        """The positions that are committed every five seconds have moved already."""

    def close(self) -> None:
        self._consumer.close()


async def run(job: Job, gate: Gate) -> Span:
    topic = job.topics[0]
    if job.role == "produce":
        # alone it is faster without waiting for company; at a rate, and in a flood, as librdkafka does by default
        sender = TopicSender(job.address, topic, 0 if job.load.mode == "single" or job.what == "latency" else 5)
        return await client_loops.produce(job, sender, gate)
    _make(job)
    # a poll returns when it is full: where each message must be early it is one
    receiver = TopicReceiver(job.address, topic, 1 if job.what == "latency" else POLLED)
    try:
        return await client_loops.consume(job, receiver, gate)
    finally:
        receiver.close()


def _make(job: Job) -> None:
    """The topic, unless the producer has made it."""
    admin = AdminClient({"bootstrap.servers": job.address})  # must live until its answers are there
    for done in admin.create_topics([NewTopic(job.topics[0], job.load.queues, 1)]).values():
        try:
            done.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


async def drop(job: Job) -> None:
    admin = AdminClient({"bootstrap.servers": job.address})
    for done in admin.delete_topics([job.topics[0]]).values():
        done.result()
