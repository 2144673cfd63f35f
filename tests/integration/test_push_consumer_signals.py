import asyncio
import os
import signal
from pathlib import Path

import dejamq
import pytest
from consumer_cluster import servers, until
from dejamq import ClientClosed, ConfigError, ReceivedMessage


async def test_a_signal_drains_and_earlier_handlers_come_back(tmp_path: Path) -> None:
    started, ended = asyncio.Event(), []

    async def handler(message: ReceivedMessage) -> None:
        started.set()
        await asyncio.sleep(0.1)
        ended.append(message)

    before = signal.getsignal(signal.SIGTERM)
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        serving = asyncio.ensure_future(consumer.run_until_stopped())
        await started.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        assert ended
        assert consumer.closed
        assert signal.getsignal(signal.SIGTERM) == before


async def test_a_second_signal_ends_the_wait_for_handlers(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def endless(message: ReceivedMessage) -> None:
        started.set()
        await asyncio.Event().wait()

    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer(await_termination_ms=600_000)
        consumer.subscribe("orders", endless)
        serving = asyncio.ensure_future(dejamq.run(consumer))
        await started.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await until(lambda: consumer.closed)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        assert [line["status"] for line in here.lines("RESULT")] == ["cancelled"]


async def test_stop_ends_it_without_signals(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        consumer = here.consumer()

        async def handler(message: ReceivedMessage) -> None:
            consumer.stop()

        consumer.subscribe("orders", handler)
        serving = asyncio.ensure_future(consumer.run_until_stopped(signals=()))
        await here.send("x")
        await serving
        assert consumer.closed


async def test_who_waits_for_the_end_of_a_consumer_hears_of_a_close_from_elsewhere(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        for waits in (lambda one: one.run_until_stopped(signals=()), lambda one: one.wait_stopped(), dejamq.run):
            consumer = here.consumer()
            consumer.subscribe("orders", print)
            await consumer.start()
            waiting = asyncio.ensure_future(waits(consumer))
            await asyncio.sleep(0)
            await consumer.close()
            async with asyncio.timeout(10):
                await waiting


async def test_who_waits_for_queues_hears_of_a_close_from_elsewhere(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        consumer = here.consumer()
        consumer.subscribe("nothing-here", print)
        await consumer.start()
        waiting = asyncio.ensure_future(consumer.wait_assigned())
        await asyncio.sleep(0)
        await consumer.close()
        async with asyncio.timeout(10):
            with pytest.raises(ClientClosed):
                await waiting


async def test_signals_outside_the_main_thread_are_refused_with_the_way_out() -> None:
    def elsewhere() -> None:
        asyncio.run(dejamq.run())

    with pytest.raises(ConfigError, match=r"signals=\(\)"):
        await asyncio.to_thread(elsewhere)
