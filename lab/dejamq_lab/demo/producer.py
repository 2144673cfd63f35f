"""``python -m dejamq_lab.demo.producer``: sends the orders and exits when every one is acknowledged."""

import argparse
import asyncio
from collections import deque

from dejamq import Message, Producer, SendResult

from dejamq_lab.demo import orders

IN_FLIGHT = 2_000
SEND_TIMEOUT_MS = 30_000
"""An order waits for a broker that comes back or a machine that is busy: with the default of 3 s the demo would end."""


async def send_orders(count: int, rate: int) -> None:
    """Send ``count`` orders, at most ``rate`` a second (0: as fast as they are acknowledged)."""
    loop = asyncio.get_running_loop()
    pending: deque[asyncio.Future[SendResult]] = deque()
    async with Producer(orders.PRODUCER_GROUP, send_msg_timeout_ms=SEND_TIMEOUT_MS) as producer:
        began = loop.time()
        for number in range(count):
            pending.append(producer.submit(order_message(number)))
            if len(pending) >= IN_FLIGHT:
                await pending.popleft()
            if rate and number % 100 == 99:
                await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
        while pending:
            await pending.popleft()


def order_message(number: int) -> Message:
    return Message(
        orders.TOPIC, orders.order_body(number), tags=orders.order_tag(number), keys=[f"order-{number:06d}"]
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo-producer", description=__doc__)
    parser.add_argument("--orders", type=int, default=20_000, help="how many to send")
    parser.add_argument("--rate", type=int, default=0, help="at most so many a second; 0: no limit")
    arguments = parser.parse_args()
    asyncio.run(send_orders(arguments.orders, arguments.rate))
    print(f"sent {arguments.orders} orders, all acknowledged", flush=True)


if __name__ == "__main__":
    main()
