"""Delayed retries, and what becomes of a message that never succeeds.

A handler that raises gets its message again, later each time: after 10 s, 30 s, 1 m, … at last 2 h, 16 times, as in
RocketMQ. This one chooses the delays itself with ``RetryLater`` and allows two retries. After the last one, or at once
with ``DeadLetter``, the message goes to the topic ``%DLQ%`` + group, where somebody looks at it.

    python examples/retries_and_dead_letters.py

talks to the cluster in DEJAMQ_NAMESRV, sends three invoices, and ends when each came to its end (about seven seconds).
"""

import asyncio
import uuid

from dejamq import ConsumeFrom, DeadLetter, Message, Producer, PushConsumer, ReceivedMessage, RetryLater

TOPIC, GROUP, RETRIES = "invoices", "invoicing", 2


async def post(message: ReceivedMessage) -> None:
    """Stands for the real work: "slow" succeeds at its third try, "lost" never, "torn" cannot ever."""
    kind, tries = message.body.decode(), message.reconsume_times + 1
    print(f"try {tries}: {kind}", flush=True)
    if kind == "torn":
        raise DeadLetter("unreadable: trying again will not help")
    if kind == "lost" or tries < 3:
        # Delay levels 1, 2, 3 are 1, 5, 10 s. Any other exception leaves the choice to the broker.
        raise RetryLater(delay_level=tries)
    print(f"posted: {kind}", flush=True)


async def post_all(keys: set[str]) -> None:
    """Until each of the invoices had its last try."""
    worker, left = PushConsumer(GROUP, consume_from=ConsumeFrom.FIRST_OFFSET, max_reconsume_times=RETRIES), set(keys)

    async def work(message: ReceivedMessage) -> None:
        if message.body == b"torn" or message.reconsume_times == RETRIES:
            left.difference_update(message.keys)
        if not left:
            worker.stop()  # this handler still ends, and what it fails is given back, before the consumer has stopped
        await post(message)

    worker.subscribe(TOPIC, work)
    await worker.run_until_stopped()


async def read_dead_letters(keys: set[str]) -> None:
    """Dead letters are an ordinary topic, read by a group of its own."""
    reader, left = PushConsumer(f"{GROUP}-dead-letters", consume_from=ConsumeFrom.FIRST_OFFSET), set(keys)

    async def read(message: ReceivedMessage) -> None:
        print(f"dead letter: {message.body.decode()} after {message.reconsume_times} tries", flush=True)
        left.difference_update(message.keys)
        if not left:
            reader.stop()

    reader.subscribe(f"%DLQ%{GROUP}", read)
    await reader.run_until_stopped()


async def main() -> None:
    run = uuid.uuid4().hex[:8]
    async with Producer("shop") as producer:
        for kind in ("slow", "lost", "torn"):
            await producer.send(Message(TOPIC, kind.encode(), keys=f"{run}-{kind}"))
    await post_all({f"{run}-slow", f"{run}-lost", f"{run}-torn"})
    await read_dead_letters({f"{run}-lost", f"{run}-torn"})


if __name__ == "__main__":
    asyncio.run(main())
