"""Orders and the news of them, both or neither, without an outbox: transactional messages.

The shop stores the news of an order at the broker, unseen by anybody, writes the order into its database, and only then
lets the broker deliver. Where it dies, or its database fails, in between, the broker asks: the checker looks the order
up. So the news of an order is delivered exactly when the order is in the database. Delivery stays at least once.

    python examples/transactional_orders.py

talks to the cluster in DEJAMQ_NAMESRV. One order is written and announced, one is refused by the shop, and of one the
shop does not know whether it was written. With RocketMQ's times the broker asks about that one after 6 to 36 seconds.
"""

import asyncio
import sqlite3
import tempfile
import uuid
from pathlib import Path

from dejamq import (
    ConsumeFrom,
    Message,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)

TOPIC, GROUP = "orders-in-transactions", "shipping"


class DatabaseWentAway(Exception):
    """What a broken connection is to this example: nobody knows whether the order was written."""


class Shop:
    """A database of orders; the order's id is the message's key."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER)")

    async def write(self, message: Message) -> TransactionState:
        """The local transaction."""
        (order_id,), cents = tuple(message.keys), int(message.body)
        if cents <= 0:
            return TransactionState.ROLLBACK
        with self._database:
            self._database.execute("INSERT INTO orders VALUES (?, ?)", (order_id, cents))
        if cents == 666:
            raise DatabaseWentAway("no answer to COMMIT")
        return TransactionState.COMMIT

    async def look_up(self, message: ReceivedMessage) -> TransactionState:
        """The broker asks. What is not there after a while will never be: then ROLLBACK; until then UNKNOWN."""
        found = self._database.execute("SELECT 1 FROM orders WHERE id = ?", message.keys).fetchone()
        print(f"asked about order of {message.body.decode()} cents: {'written' if found else 'not written'}")
        return TransactionState.COMMIT if found else TransactionState.UNKNOWN

    def close(self) -> None:
        self._database.close()


async def ship(orders: set[str]) -> None:
    """Until the news of all these orders came."""
    consumer = PushConsumer(GROUP, consume_from=ConsumeFrom.FIRST_OFFSET)
    left = set(orders)

    async def handle(message: ReceivedMessage) -> None:
        (order_id,) = message.keys
        if order_id in left:
            print(f"shipping the order of {message.body.decode()} cents")
        left.discard(order_id)
        if not left:
            consumer.stop()

    consumer.subscribe(TOPIC, handle)
    await consumer.run_until_stopped()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder) / "shop.db")
        announced = set()
        async with TransactionProducer("shop", checker=shop.look_up, topics=[TOPIC]) as producer:
            for cents in (1999, -5, 666):
                order_id = uuid.uuid4().hex
                result = await producer.send_in_transaction(Message(TOPIC, b"%d" % cents, keys=order_id), shop.write)
                why = f" ({result.error})" if result.error else ""
                print(f"order of {cents} cents: {result.state.name}{why}")
                if result.state is not TransactionState.ROLLBACK:
                    announced.add(order_id)
            await ship(announced)
        shop.close()


if __name__ == "__main__":
    asyncio.run(main())
