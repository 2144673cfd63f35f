"""Consumers of one cluster whose namespaces differ: equal names, nothing shared."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import Servers, servers, until
from dejamq import Message, MessageQueue, Producer, PushConsumer, ReceivedMessage
from dejamq_proto.allocation import averagely


class Seen(list[ReceivedMessage]):
    """A handler that fails with each message once."""

    def __init__(self) -> None:
        super().__init__()
        self.tries: list[int] = []

    async def handle(self, message: ReceivedMessage) -> None:
        self.append(message)
        self.tries.append(message.reconsume_times)
        if message.reconsume_times == 0:
            raise ValueError("not yet")

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self]


def producer(here: Servers, namespace: str) -> Producer:
    return Producer("p", namesrv=here.namesrv.address, namespace=namespace)


def consuming(here: Servers, seen: Seen, namespace: str, **settings: Any) -> PushConsumer:
    consumer = here.consumer(namespace=namespace, **settings)
    consumer.subscribe("orders", seen.handle)
    return consumer


@pytest.mark.parametrize("ordered", [False, True])
async def test_what_is_sent_in_a_namespace_is_consumed_and_retried_in_it_alone(tmp_path: Path, ordered: bool) -> None:
    eu, us = Seen(), Seen()
    settings = {"ordered": ordered, "suspend_current_queue_time_ms": 10}
    async with servers(tmp_path, schedule_poll_interval_ms=20) as here:
        async with producer(here, "eu") as of_eu, producer(here, "us") as of_us:
            await of_eu.send(Message("orders", b"from eu"))
            await of_us.send(Message("orders", b"from us"))
        async with consuming(here, eu, "eu", **settings) as one, consuming(here, us, "us", **settings) as two:
            assert {queue.topic for queue in await one.wait_assigned()} == {"orders"}
            await until(lambda: len(eu) == len(us) == 2)
            assert (one.group, two.group) == ("g", "g")
    assert (eu.bodies, us.bodies) == (["from eu"] * 2, ["from us"] * 2)
    assert [message.topic for message in eu] == ["orders", "orders"]
    assert eu.tries == us.tries == [0, 1]
    assert {message.queue.topic for message in eu} <= {"orders", "%RETRY%g"}
    assert {message.group for message in eu} == {"g"}
    stored = {topic for line in here.server_lines("APPEND") for topic in line["topics"]}
    assert stored - {"SCHEDULE_TOPIC_XXXX"} <= {"eu%orders", "us%orders", "%RETRY%eu%g", "%RETRY%us%g"}


async def test_a_programs_own_allocation_and_topics_at_run_time_know_nothing_of_the_namespace(tmp_path: Path) -> None:
    seen, topics = Seen(), set[str]()

    def strategy(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
        topics.update(queue.topic for queue in queues)
        return averagely(queues, members, me)

    async with servers(tmp_path) as here, producer(here, "eu") as sending:
        await sending.send(Message("orders", b"x"))
        await sending.send(Message("invoices", b"y"))
        async with consuming(here, seen, "eu", allocation=strategy) as consumer:
            await until(lambda: "x" in seen.bodies)
            consumer.subscribe("invoices", seen.handle)
            await until(lambda: "y" in seen.bodies)
            consumer.unsubscribe("orders")
            await until(lambda: {queue.topic for queue in consumer.assignment} == {"invoices"})
    assert topics == {"orders", "invoices", "%RETRY%g"}
