"""Ordered consumers with short times, and a log of what their handlers did that can be judged afterwards."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from consumer_cluster import QUICK, Servers
from dejamq import Message, MessageQueue, PushConsumer, ReceivedMessage

TIMES: dict[str, Any] = QUICK | {
    "lock_interval_ms": 400, "lock_max_live_time_ms": 800, "lock_retry_ms": 100, "consume_lock_wait_ms": 50,
    "unlock_delay_time_ms": 400, "suspend_current_queue_time_ms": 20,
}  # fmt: skip
"""A fiftieth of RocketMQ's times of locks; a broker's lock lives 1,200 ms then."""
LOCK_LIFE_MS = 1200
NO_END_MS = 600_000
"""Longer than any test, for locks that must not end however busy the machine is."""


@dataclass
class Ledger:
    """What handlers did: entries as (member, key, number), in the order in which they were entered."""

    entered: list[tuple[str, str, int]] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    running: Counter[MessageQueue] = field(default_factory=Counter)

    async def handle(self, member: str, message: ReceivedMessage, seconds: float = 0) -> None:
        """Note the message and that its queue is busy for so long."""
        key, _, number = message.body.decode().partition(":")
        place = message.queue
        self.entered.append((member, key, int(number)))
        self.running[place] += 1
        if self.running[place] > 1:
            self.overlaps.append(f"{member} entered {key}:{number} while another handler of {place} ran")
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running[place] -= 1

    def numbers(self, key: str) -> list[int]:
        return [number for _, of, number in self.entered if of == key]

    def missing(self, keys: dict[str, int]) -> dict[str, list[int]]:
        """For each key the numbers nobody was given."""
        gaps = {key: sorted(set(range(count)) - set(self.numbers(key))) for key, count in keys.items()}
        return {key: gap for key, gap in gaps.items() if gap}

    def skips(self) -> list[str]:
        """Where a number came before all smaller ones of its key had come: the order was not kept.

        A repeat from further back is none: its successors are then repeated as well, in order.
        """
        highest: dict[str, int] = defaultdict(lambda: -1)
        found = []
        for member, key, number in self.entered:
            if number > highest[key] + 1:
                found.append(f"{member} was given {key}:{number} after {key}:{highest[key]}")
            highest[key] = max(highest[key], number)
        return found

    def backward(self) -> list[str]:
        """Where a member went back within one key: somebody else's progress, or its own, was repeated."""
        last: dict[tuple[str, str], int] = {}
        found = []
        for member, key, number in self.entered:
            if number <= last.get((member, key), -1):
                found.append(f"{member} was given {key}:{number} after {key}:{last[member, key]}")
            last[member, key] = number
        return found


def ordered(
    here: Servers, ledger: Ledger, name: str, *, seconds: float | Callable[[], float] = 0, **settings: Any
) -> PushConsumer:
    """A member whose handler takes so long for each message."""
    consumer = here.consumer(**{**TIMES, "ordered": True, **settings})

    async def handler(message: ReceivedMessage) -> None:
        await ledger.handle(name, message, seconds() if callable(seconds) else seconds)

    consumer.subscribe("orders", handler)
    return consumer


async def send_keys(here: Servers, keys: dict[str, range]) -> None:
    """Numbers of each key, in order, all keys side by side; a key's messages go to one queue."""
    async with here.producer() as producer:
        for number in range(max(numbers.stop for numbers in keys.values())):
            futures = [
                producer.submit(Message("orders", f"{key}:{number}".encode(), sharding_key=key))
                for key, numbers in keys.items()
                if number in numbers
            ]
            await asyncio.gather(*futures)
