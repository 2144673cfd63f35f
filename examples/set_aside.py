"""Set aside after three tries and acknowledge: the group goes on, and a person decides about the rest.

Sixteen retries over hours, and dead letters nobody reads, suit few programs. Here a message that failed three times
goes to a topic of the program's own, with the reason and where it came from, and is acknowledged.

    python examples/set_aside.py

talks to the cluster in DEJAMQ_NAMESRV, sends four addresses, one of them bad, and ends when all are dealt with.
"""

import asyncio
import uuid

from dejamq import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage, RetryLater

TOPIC, ASIDE, GROUP = "addresses", "addresses-set-aside", "geocoding"
ADDRESSES = ["High Street 7", "Mill Lane", "Park Road 12", "Station Road 3"]
TRIES = 3


def locate(address: str) -> str:
    """Stands for the real work. Raises ValueError for what it cannot place."""
    street, _, number = address.rpartition(" ")
    if not (street and number.isdigit()):
        raise ValueError(f"no house number in {address!r}")
    return f"{street}, house {number}"


async def set_aside(producer: Producer, message: ReceivedMessage, why: Exception) -> None:
    """Only when this send succeeded may the handler return: until then the broker keeps the message for the group.

    The copy is a new message with an id of its own. It may come twice, like any message; ``original`` tells.
    """
    about = {"why": str(why), "original": message.message_id, "tries": str(message.reconsume_times + 1)}
    await producer.send(Message(ASIDE, message.body, keys=message.keys, properties=about))


async def locate_all(producer: Producer, keys: set[str]) -> None:
    """Until each of the addresses is located or set aside."""
    consumer, left = PushConsumer(GROUP, consume_from=ConsumeFrom.FIRST_OFFSET), set(keys)

    async def handle(message: ReceivedMessage) -> None:
        try:
            print(f"located: {locate(message.body.decode())}", flush=True)
        except ValueError as error:
            if message.reconsume_times + 1 < TRIES:
                raise RetryLater(delay_level=1) from error
            await set_aside(producer, message, error)
        left.difference_update(message.keys)
        if not left:
            consumer.stop()

    consumer.subscribe(TOPIC, handle)
    await consumer.run_until_stopped()


async def read_set_aside(key: str) -> None:
    """What the person sees: another group, whenever it suits."""
    consumer = PushConsumer(f"{GROUP}-clerk", consume_from=ConsumeFrom.FIRST_OFFSET)

    async def read(message: ReceivedMessage) -> None:
        about = message.properties
        print(f"set aside after {about['tries']} tries: {about['why']}", flush=True)
        if key in message.keys:
            consumer.stop()

    consumer.subscribe(ASIDE, read)
    await consumer.run_until_stopped()


async def main() -> None:
    run = uuid.uuid4().hex[:8]
    keys = {f"{run}-{address.replace(' ', '-')}": address for address in ADDRESSES}
    async with Producer("address-book") as producer:
        for key, address in keys.items():
            await producer.send(Message(TOPIC, address.encode(), keys=key))
        await locate_all(producer, set(keys))
    await read_set_aside(f"{run}-Mill-Lane")


if __name__ == "__main__":
    asyncio.run(main())
