"""``python -m dejamq_lab.demo.consumer``: charges orders until SIGTERM, then drains."""

import argparse
import asyncio
import json
from pathlib import Path

from dejamq import ConsumeFrom, Inbox, PushConsumer, ReceivedMessage

from dejamq_lab.demo import orders
from dejamq_lab.demo.ledger import Charge, ChargeLedger


async def charge_orders(name: str, ledger: ChargeLedger, *, with_inbox: bool) -> None:
    """Consume until told to stop. The charge is the effect: a message handled twice is charged twice.

    With the inbox it is charged once: its mark and the charge are one transaction of the ledger.
    """
    inbox = Inbox(ledger.connection)

    async def charge(message: ReceivedMessage) -> None:
        order = json.loads(message.body)
        delay_ms = orders.charge_delay_ms(order["order_id"])
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
        row = Charge(message.delivery_id, order["order_id"], order["amount_cents"], message.message_id, name)
        if not with_inbox:
            ledger.charge(row)
            return
        async with inbox.once(message) as first:
            if first:
                ledger.charge(row)

    consumer = PushConsumer(
        orders.CONSUMER_GROUP, consume_from=ConsumeFrom.FIRST_OFFSET, journal_business_key="KEYS"
    )  # fmt: skip
    consumer.subscribe(orders.TOPIC, charge)
    async with consumer:
        await consumer.run_until_stopped()


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo-consumer", description=__doc__)
    parser.add_argument("--name", required=True, help="how the ledger calls this process")
    parser.add_argument("--ledger", type=Path, required=True, help="the SQLite file")
    parser.add_argument("--inbox", action="store_true", help="charge each message once")
    arguments = parser.parse_args()
    ledger = ChargeLedger(arguments.ledger)
    try:
        asyncio.run(charge_orders(arguments.name, ledger, with_inbox=arguments.inbox))
    finally:
        ledger.close()


if __name__ == "__main__":
    main()
