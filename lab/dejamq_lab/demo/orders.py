"""The orders: what they look like, and which of them are slow to charge."""

import json
import random

TOPIC = "orders"
PRODUCER_GROUP = "order-service"
CONSUMER_GROUP = "billing"
QUEUES_PER_BROKER = 4
SLOW_ONE_IN = 211  # no multiple of the queues: slow orders are in all of them, so a crash always meets some
SLOW_MS = 400


def order_body(number: int) -> bytes:
    """The order as JSON, some 300 bytes; the same number always gives the same order."""
    rng = random.Random(number)
    order = {
        "order_id": f"order-{number:06d}",
        "customer": f"customer-{rng.randrange(5_000):04d}",
        "amount_cents": rng.randrange(100, 50_000),
        "currency": "EUR",
        "items": [{"sku": f"sku-{rng.randrange(900):03d}", "count": rng.randrange(1, 4)} for _ in range(4)],
        "note": "x" * rng.randrange(20, 80),
    }
    return json.dumps(order).encode()


def order_tag(number: int) -> str:
    return ("paid", "prepaid", "invoice")[number % 3]


def charge_delay_ms(order_id: str) -> int:
    """Some payments go through a slow provider: they hold back the queue's offset while later ones are done."""
    return SLOW_MS if int(order_id.rpartition("-")[2]) % SLOW_ONE_IN == 7 else 0
