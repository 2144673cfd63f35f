"""Traffic of one producer while things happen to its servers, and what may be said about it afterwards."""

import asyncio
from collections.abc import Callable, Iterable

from dejamq import DejamqError, Message, Producer, SendResult


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


class Traffic:
    """Sends numbered messages one after the other, each once, until told to stop, and keeps what became of them."""

    def __init__(self, producer: Producer, topic: str = "t") -> None:
        self._producer, self._topic = producer, topic
        self.stored: dict[bytes, SendResult] = {}
        self.failed: dict[bytes, DejamqError] = {}
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        number = 0
        while True:
            body = b"%d" % number
            number += 1
            try:
                self.stored[body] = await self._producer.send(Message(self._topic, body))
            except DejamqError as error:
                self.failed[body] = error
                await asyncio.sleep(0.01)

    async def more(self, count: int = 20) -> None:
        """Until so many further messages are stored."""
        wanted = len(self.stored) + count
        await until(lambda: len(self.stored) >= wanted or self._task.done())
        assert not self._task.done(), self._task

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))


def assert_truthful(traffic: Traffic, found: Iterable[bytes]) -> None:
    """Acknowledged ones are there; those that definitely failed are not."""
    there = set(found)
    assert traffic.stored.keys() <= there
    lied = {body for body, error in traffic.failed.items() if error.definite} & there
    assert lied == set()
