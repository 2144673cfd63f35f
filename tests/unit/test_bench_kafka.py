"""What `dejamq bench --peer kafka` does with librdkafka; its Python client is an extra, so it is stood in for here."""

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

MODULE = "dejamq_lab.bench.peers.kafka_clients"


class FullQueue:
    """Takes one message, then none until it was asked for results ``polls`` times; then it has room for one again."""

    def __init__(self, polls: int) -> None:
        self._polls = polls
        self._until_room = 0
        self.taken: list[bytes] = []

    def produce(self, _topic: str, body: bytes, on_delivery: Callable[..., None]) -> None:
        del on_delivery
        if self._until_room:
            raise BufferError("Local: Queue full")
        self.taken.append(body)
        self._until_room = self._polls

    def poll(self, seconds: float) -> None:
        if seconds:
            self._until_room -= 1

    def flush(self) -> None:
        """All that was taken is told."""


@pytest.fixture
def kafka_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    library, admin = MagicMock(), MagicMock()
    monkeypatch.setitem(sys.modules, "confluent_kafka", library)
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", admin)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    module: ModuleType = importlib.import_module(MODULE)
    yield module
    sys.modules.pop(MODULE, None)


def test_a_flood_waits_for_as_long_as_the_queue_of_librdkafka_is_full(kafka_clients: Any) -> None:
    queue = FullQueue(polls=3)
    kafka_clients.Producer.return_value = queue
    bodies = [b"first", b"second", b"third"]

    asyncio.run(kafka_clients.TopicSender("127.0.0.1:1", "orders", 5).send_all(bodies))

    assert queue.taken == bodies
