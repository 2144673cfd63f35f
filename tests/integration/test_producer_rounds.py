"""Starting and stopping many times, and in several loops: nothing is left behind, nothing is shared."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest
from consumer_cluster import held, until_no_more_is_held_than
from dejamq import Message, Producer
from scripted_broker import ScriptedBroker, ScriptedNamesrv

ROUNDS = 200
WARM_UP = 10  # gRPC makes its threads and descriptors once


async def one_round(namesrv: str, number: int) -> None:
    """Every third producer is closed without having sent, every third with a send under way."""
    producer = Producer("g", namesrv=namesrv)
    await producer.start()
    if number % 3 == 1:
        await producer.send(Message("t", b"%d" % number))
    if number % 3 == 2:
        producer.submit(Message("t", b"%d" % number))
    await producer.close()


@pytest.mark.timeout(180)
async def test_two_hundred_rounds_leave_no_task_thread_file_or_socket_behind() -> None:
    async with AsyncExitStack() as stack:
        broker = ScriptedBroker("a")  # type: ignore[abstract]  # answers only what is asked here
        namesrv = ScriptedNamesrv({"t": [broker]})  # type: ignore[abstract]  # answers only what is asked here
        for server in (broker, namesrv):
            await server.start()
            stack.push_async_callback(server.close)
        for number in range(WARM_UP):
            await one_round(namesrv.address, number)
        before = held()
        for number in range(ROUNDS):
            await one_round(namesrv.address, number)
        await until_no_more_is_held_than(before, deadline_s=60)
        assert len(broker.bodies) == len([n for n in range(ROUNDS) if n % 3]) + len(
            [n for n in range(WARM_UP) if n % 3]
        )


async def test_producers_in_loops_of_their_own_do_not_know_of_each_other() -> None:
    async with AsyncExitStack() as stack:
        broker = ScriptedBroker("a")  # type: ignore[abstract]  # answers only what is asked here
        namesrv = ScriptedNamesrv({"t": [broker]})  # type: ignore[abstract]  # answers only what is asked here
        for server in (broker, namesrv):
            await server.start()
            stack.push_async_callback(server.close)

        async def work(name: int) -> int:
            async with Producer("g", namesrv=namesrv.address) as producer:
                bodies = (b"%d-%d" % (name, number) for number in range(50))
                return len(await asyncio.gather(*(producer.send(Message("t", body)) for body in bodies)))

        def alone(name: int) -> int:
            return asyncio.run(work(name))

        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(3) as pool:
            threads = [loop.run_in_executor(pool, alone, name) for name in range(3)]
            assert await asyncio.gather(*threads, work(3)) == [50] * 4
        assert len(set(broker.bodies)) == 200
