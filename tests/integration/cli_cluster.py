"""What tests of the command line do with the cluster that they run it against."""

import asyncio

from cli_runner import Ran, run_beside
from dejamq import Admin, ConsumeFrom, DejamqError, Message, ReceivedMessage
from dejamq_lab import Cluster


async def dejamq(cluster: Cluster, *arguments: str) -> Ran:
    """The command, about this cluster."""
    return await run_beside(*arguments, "--namesrv", cluster.namesrv)


async def ignore(message: ReceivedMessage) -> None: ...


async def make(cluster: Cluster, topic: str, queues: int = 2) -> None:
    """At every broker, and known to every name server."""
    async with Admin(cluster.namesrv) as admin, asyncio.timeout(20):
        made = await admin.create_topic(topic, queues=queues)
        while True:
            routes = (await admin.routes(topic)).values()
            if not any(isinstance(route, DejamqError) or len(route) < len(made) for route in routes):
                return
            await asyncio.sleep(0.01)


async def fill(cluster: Cluster, topic: str, messages: int, *, queues: int = 2) -> None:
    """So many messages in each queue of a new topic."""
    await make(cluster, topic, queues)
    async with cluster.producer("shop") as producer:
        for queue in await producer.publish_queues(topic):
            for number in range(messages):
                await producer.send(Message(topic, b"%d" % number), queue=queue)


async def consume(cluster: Cluster, group: str, topic: str, count: int) -> None:
    """A member that comes, takes so many messages from the oldest on, commits them, and goes."""
    got: list[ReceivedMessage] = []
    done = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        got.append(message)
        if len(got) >= count:
            done.set()

    consumer = cluster.push_consumer(group, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(topic, handler)
    async with consumer, asyncio.timeout(20):
        await done.wait()
