"""A group whose members are RocketMQ's Java client and ours: they share the queues, and go on where the other was."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from broker_wire import until
from dejamq import Admin, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from java_clients import VERSIONS, java_member

TOPIC, GROUP = "mixed_member", "mixed_member_group"
pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(300)]


async def send(producer: Producer, begin: int, count: int) -> None:
    for number in range(begin, begin + count):
        await producer.send(Message(TOPIC, f"body {number}".encode()))


@pytest.mark.parametrize("version", VERSIONS)
async def test_members_of_both_kinds_share_a_group_without_overlap_or_hole(
    namesrv: str, version: str, tmp_path: Path
) -> None:
    ours: list[str] = []

    async def take(message: ReceivedMessage) -> None:
        ours.append(message.body.decode())

    consumer = PushConsumer(GROUP, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC, take)
    async with Producer("pg", namesrv=namesrv) as producer, Admin(namesrv=namesrv) as admin, AsyncExitStack() as stack:
        await send(producer, 0, 20)
        async with java_member(version, namesrv, tmp_path) as theirs:
            await until(lambda: len(theirs) == 20, 60)
            await stack.enter_async_context(consumer)

            async def shared() -> bool:
                before = len(ours), len(theirs)
                await send(producer, 100, 8)
                await asyncio.sleep(0.5)
                return len(ours) > before[0] and len(theirs) > before[1]

            await until(shared, 90)
            found = await admin.connections(GROUP)
            assert {one.language for one in found} == {"JAVA", "PYTHON"}
            ours.clear()
            theirs.clear()
            await send(producer, 1000, 200)
            await until(lambda: len(ours) + len(theirs) >= 200, 60)
            assert ours
            assert theirs
            assert sorted(ours + theirs) == sorted(f"body {number}" for number in range(1000, 1200))
        ours.clear()
        await send(producer, 2000, 40)
        await until(lambda: set(ours) >= {f"body {number}" for number in range(2000, 2040)}, 60)
