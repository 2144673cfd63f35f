"""Orders that are charged once, whatever dies in between: an outbox at the shop, an inbox at billing, both in SQLite.

The shop writes an order and the news of it in one transaction. A relay sends the news and then forgets it: when it
dies between the two, it sends again. Billing writes a charge and the mark "done" in one transaction: what comes again
changes nothing. Delivery stays at least once; the effect happens once.

    python examples/order_service.py

talks to the cluster in DEJAMQ_NAMESRV. Ten orders are taken, the relay dies once in the wrong moment, and billing is
told of one order twice. In life shop, relay and billing are three processes.
"""

import asyncio
import sqlite3
import tempfile
import uuid
from pathlib import Path

from dejamq import ConsumeFrom, Inbox, Message, Producer, PushConsumer, ReceivedMessage

TOPIC, GROUP, ORDERS = "orders-placed", "billing", 10
SHOP = """
CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER);
CREATE TABLE outbox (number INTEGER PRIMARY KEY, order_id TEXT, body BLOB);
"""
BILLING = "CREATE TABLE charges (order_id TEXT, cents INTEGER)"


class RelayDied(Exception):
    """What a power cut is to this example."""


def place_order(shop: sqlite3.Connection, order_id: str, cents: int) -> None:
    """Order and news, or neither. No broker is asked, so none has to be there."""
    with shop:
        shop.execute("INSERT INTO orders VALUES (?, ?)", (order_id, cents))
        shop.execute("INSERT INTO outbox (order_id, body) VALUES (?, ?)", (order_id, str(cents).encode()))


async def relay(shop: sqlite3.Connection, producer: Producer, *, dies_at: int = 0) -> None:
    """Send the oldest news first, and forget it when it is stored. The order's id is the key that repeats share."""
    for number, order_id, body in shop.execute("SELECT number, order_id, body FROM outbox ORDER BY number").fetchall():
        await producer.send(Message(TOPIC, body, keys=order_id, sharding_key=order_id))
        if number == dies_at:
            raise RelayDied
        with shop:
            shop.execute("DELETE FROM outbox WHERE number = ?", (number,))


async def charge_all(billing: sqlite3.Connection, orders: set[str]) -> int:
    """Until every order is charged and a repeat has come. Returns how many messages changed nothing."""
    inbox = Inbox(billing, business_key="KEYS")
    consumer = PushConsumer(GROUP, consume_from=ConsumeFrom.FIRST_OFFSET)
    left, repeats = set(orders), 0

    async def charge(message: ReceivedMessage) -> None:
        nonlocal repeats
        (order_id,) = message.keys
        async with inbox.once(message) as first:
            if first:
                billing.execute("INSERT INTO charges VALUES (?, ?)", (order_id, int(message.body)))
        repeats += not first
        left.discard(order_id)
        if repeats and not left:
            consumer.stop()

    consumer.subscribe(TOPIC, charge)
    await consumer.run_until_stopped()
    return repeats


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop, billing = (sqlite3.connect(Path(folder) / name) for name in ("shop.db", "billing.db"))
        shop.executescript(SHOP)
        billing.execute(BILLING)
        orders = {uuid.uuid4().hex: 1000 + number for number in range(ORDERS)}
        for order_id, cents in orders.items():
            place_order(shop, order_id, cents)
        async with Producer("shop") as producer:
            try:
                await relay(shop, producer, dies_at=4)
            except RelayDied:
                print("the relay died after it had sent order 4 and before it forgot it; it starts again")
            await relay(shop, producer)
        repeats = await charge_all(billing, set(orders))
        charges = [row for row in billing.execute("SELECT order_id, cents FROM charges") if row[0] in orders]
        charged_right = sorted(charges) == sorted(orders.items())
        print(f"{ORDERS} orders, {repeats} told twice, {len(charges)} charges: {'right' if charged_right else 'WRONG'}")
        shop.close()
        billing.close()


if __name__ == "__main__":
    asyncio.run(main())
