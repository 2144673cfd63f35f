"""A batch job: everything that was sent since its last run, in batches, each committed when its result is written.

A ``LitePullConsumer`` gives messages when it is asked. The job looks where each queue ends when it begins, polls up to
there, and commits each batch after it has written what it found. A job that dies repeats at most one batch.

    python examples/batch_job.py

talks to the cluster in DEJAMQ_NAMESRV, sends 1,000 sales, and sums up those of each shop.
"""

import asyncio
import json
import time
from collections import Counter

from dejamq import ConsumeFrom, LitePullConsumer, Message, MessageQueue, Producer, ReceivedMessage

TOPIC, GROUP, SALES, SHOPS = "sales", "daily-report", 1000, 4


async def send_sales() -> None:
    """A day of business."""
    async with Producer("tills") as producer:
        sales = ({"shop": f"shop-{number % SHOPS}", "cents": number} for number in range(SALES))
        await asyncio.gather(*(producer.submit(Message(TOPIC, json.dumps(sale).encode())) for sale in sales))


def write(totals: Counter[str], messages: list[ReceivedMessage]) -> None:
    """Stands for a table of results. One that stores the offsets too, in the same transaction, repeats nothing."""
    for message in messages:
        sale = json.loads(message.body)
        totals[sale["shop"]] += sale["cents"]


async def ends_now(consumer: LitePullConsumer) -> dict[MessageQueue, int]:
    """Where each queue that holds something new ends at this moment."""
    queues = await consumer.queues(TOPIC)
    consumer.assign(queues)
    await consumer.wait_assigned()
    now_ms = time.time_ns() // 1_000_000 + 1
    ends = {queue: await consumer.offset_for_timestamp(queue, now_ms) for queue in queues}
    return {queue: end for queue, end in ends.items() if (await consumer.committed(queue) or 0) < end}


async def report() -> None:
    """One run of the job."""
    totals, batches, count = Counter[str](), 0, 0
    async with LitePullConsumer(GROUP, auto_commit=False, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        ends = await ends_now(consumer)
        while ends and (messages := await consumer.poll(5_000, 200)):  # nothing in 5 s: what is missing has expired
            batch = [message for message in messages if message.queue_offset < ends.get(message.queue, 0)]
            write(totals, batch)
            progress = {message.queue: message.queue_offset + 1 for message in batch}
            await consumer.commit(progress)
            ends = {queue: end for queue, end in ends.items() if progress.get(queue, 0) < end}
            batches, count = batches + 1, count + len(batch)
    print(f"{count} sales in {batches} batches")
    for shop, cents in sorted(totals.items()):
        print(f"{shop}: {cents} cents")


async def main() -> None:
    await send_sales()
    await report()


if __name__ == "__main__":
    asyncio.run(main())
