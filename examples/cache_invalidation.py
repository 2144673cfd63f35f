"""Drop a changed entry from the cache of every process: a broadcasting consumer in each of them.

With ``MessageModel.BROADCASTING`` every member of the group gets every message and remembers by itself, in a file, how
far it is. A message whose handler fails is not repeated, so the handler does nothing that can fail. A process that
starts has an empty cache: ``LAST_OFFSET`` skips what changed before. So the topic is made at every broker first: at one
that got it from a later send, a consumer would begin after that send.

    python examples/cache_invalidation.py

talks to the cluster in DEJAMQ_NAMESRV. Two shops, here in one process, show an old price, then the price changes.
"""

import asyncio
from contextlib import AsyncExitStack

from dejamq import Admin, ConsumeFrom, Message, MessageModel, Producer, PushConsumer, ReceivedMessage

TOPIC, GROUP = "prices-changed", "price-caches"


class Shop:
    """A process with a cache in front of the common database."""

    def __init__(self, name: str, database: dict[str, int]) -> None:
        self._database, self._cache = database, dict[str, int]()
        self.dropped = asyncio.Event()
        # Processes of one host need ids of their own, the same at each start: the file is named after the id.
        self.consumer = PushConsumer(
            GROUP, model=MessageModel.BROADCASTING, consume_from=ConsumeFrom.LAST_OFFSET, client_id=name
        )
        self.consumer.subscribe(TOPIC, self._drop)

    def price(self, article: str) -> int:
        if article not in self._cache:
            self._cache[article] = self._database[article]
        return self._cache[article]

    async def _drop(self, message: ReceivedMessage) -> None:
        """Twice is as good as once."""
        for article in message.keys:
            if self._cache.pop(article, None) is not None:
                self.dropped.set()


async def main() -> None:
    database = {"lamp": 1900}
    shops = [Shop("shop-1", database), Shop("shop-2", database)]
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("price-list"))
        async with Admin() as admin:
            await admin.create_topic(TOPIC)
        for shop in shops:
            await stack.enter_async_context(shop.consumer)
            await shop.consumer.wait_assigned()
        print("before:", [shop.price("lamp") for shop in shops])

        database["lamp"] = 1500  # first the database, then the news: who reads in between reads the new price
        await producer.send(Message(TOPIC, b"cheaper", keys="lamp"))
        await asyncio.gather(*(shop.dropped.wait() for shop in shops))
        print("after:", [shop.price("lamp") for shop in shops])


if __name__ == "__main__":
    asyncio.run(main())
