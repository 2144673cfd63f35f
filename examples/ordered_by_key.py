"""The entries of each account in their order: one ``sharding_key`` an account, one consumer with ``ordered=True``.

Messages with one sharding key go to one queue, an ordered consumer hands out one message of a queue at a time, and a
failure rests the queue instead of letting others pass. Other accounts in other queues go on meanwhile.

    python examples/ordered_by_key.py

talks to the cluster in DEJAMQ_NAMESRV, books 5 accounts with 20 entries each, and ends when all are booked.
"""

import asyncio
import json
import uuid
from collections import defaultdict

from dejamq import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage, SuspendQueue

TOPIC, GROUP = "account-entries", "bookkeeping"
ACCOUNTS, ENTRIES = 5, 20


class Books:
    """Balances, and the number of the last entry of each account.

    Delivery is at least once. In order, a repeated entry is known by its number: nothing else has to be kept.
    """

    def __init__(self) -> None:
        self.balances: dict[str, int] = defaultdict(int)
        self.last: dict[str, int] = defaultdict(int)
        self.rested = 0

    async def book(self, message: ReceivedMessage) -> None:
        entry = json.loads(message.body)
        account, number = entry["account"], entry["number"]
        if number <= self.last[account]:
            return
        if number == ENTRIES // 2 and self.rested == 0:
            self.rested += 1
            raise SuspendQueue(100)  # not now: this entry again in 100 ms, and nothing of its queue before it
        self.balances[account] += entry["cents"]
        self.last[account] = number


async def send_entries(producer: Producer, account: str) -> None:
    """One after the other: the next is sent when its predecessor is stored."""
    for number in range(1, ENTRIES + 1):
        entry = {"account": account, "number": number, "cents": 100 * number}
        await producer.send(Message(TOPIC, json.dumps(entry).encode(), sharding_key=account))


async def main() -> None:
    books = Books()
    accounts = [f"{uuid.uuid4().hex[:8]}" for _ in range(ACCOUNTS)]
    consumer = PushConsumer(GROUP, ordered=True, consume_from=ConsumeFrom.FIRST_OFFSET)

    async def book(message: ReceivedMessage) -> None:
        await books.book(message)
        if all(books.last[account] == ENTRIES for account in accounts):
            consumer.stop()

    consumer.subscribe(TOPIC, book)
    async with Producer("tellers") as producer:
        await asyncio.gather(*(send_entries(producer, account) for account in accounts))
    await consumer.run_until_stopped()
    for account in accounts:
        print(f"account {account}: {books.last[account]} entries in order, balance {books.balances[account]} cents")
    print(f"a queue was rested {books.rested} time")


if __name__ == "__main__":
    asyncio.run(main())
