"""``dejamq send`` and ``consume`` between other programs: pipes that are slow or closed, Ctrl-C, SIGTERM."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cli_cluster import dejamq, make
from dejamq import Admin, DejamqError, Message
from dejamq_lab import Cluster

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]
PATIENCE_S = 40


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(time_scale=0.1, journal_level="off") as cluster:
        yield cluster


async def started(cluster: Cluster, *arguments: str, stdout: int = PIPE) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_cli", *arguments, "--namesrv", cluster.namesrv,
        stdin=PIPE, stdout=stdout, stderr=PIPE,
    )  # fmt: skip


async def line_of(process: Process) -> bytes:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
    assert line, await ended(process)
    return line


async def ended(process: Process, number: signal.Signals | None = None) -> tuple[int | None, str]:
    """Its exit status, and what it said on standard error."""
    if number is not None:
        process.send_signal(number)
    _, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return process.returncode, errors.decode()


async def send(cluster: Cluster, topic: str, *bodies: str) -> None:
    async with cluster.producer("shop") as producer:
        for body in bodies:
            await producer.send(Message(topic, body.encode()))


async def known(cluster: Cluster, topic: str) -> None:
    async with Admin(cluster.namesrv) as admin, asyncio.timeout(PATIENCE_S):
        while any(isinstance(route, DejamqError) for route in (await admin.routes(topic)).values()):
            await asyncio.sleep(0.02)


async def test_each_line_of_a_slow_pipe_is_sent_and_told_before_the_next_one_comes(cluster: Cluster) -> None:
    await make(cluster, "slow", queues=1)
    process = await started(cluster, "send", "slow", "-", "--lines", "-o", "json")
    assert process.stdin is not None
    for number, text in enumerate((b"one\n", b"two\n")):
        process.stdin.write(text)
        assert json.loads(await line_of(process))["queue_offset"] == number
    process.stdin.write(b"three")
    process.stdin.close()
    assert json.loads(await line_of(process))["queue_offset"] == 2
    assert await ended(process) == (0, "")
    assert (await dejamq(cluster, "consume", "slow", "--body")).output == "one\ntwo\nthree\n"


async def test_a_signal_ends_the_sending_after_what_is_under_way_and_says_how_far_it_came(cluster: Cluster) -> None:
    await make(cluster, "signalled", queues=1)
    process = await started(cluster, "send", "signalled", "-", "--lines", "-o", "json")
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\n")
    for _ in range(2):
        await line_of(process)
    assert await ended(process, signal.SIGTERM) == (130, "dejamq: stopped; of 2 messages 2 stored\n")


async def test_a_follower_whose_reader_goes_away_ends_quietly(cluster: Cluster) -> None:
    await make(cluster, "read-a-little", queues=1)
    await send(cluster, "read-a-little", "first")
    reading, writing = os.pipe()
    process = await started(
        cluster, "consume", "read-a-little", "--from", "begin", "--follow", "--body", stdout=writing
    )
    os.close(writing)
    assert await asyncio.to_thread(os.read, reading, 100) == b"first\n"
    os.close(reading)
    await send(cluster, "read-a-little", "second")
    assert await ended(process) == (141, "")


async def test_what_a_group_was_not_shown_it_has_not_consumed(cluster: Cluster) -> None:
    """The reader is away from the beginning: the message is neither lost nor counted as a try."""
    await make(cluster, "unread", queues=1)
    await send(cluster, "unread", "only")
    reading, writing = os.pipe()
    os.close(reading)
    take = ("consume", "unread", "--group", "readers", "--from", "begin")
    process = await started(cluster, *take, "--follow", stdout=writing)
    os.close(writing)
    assert await ended(process) == (141, "")
    taken = await dejamq(cluster, *take, "--count", "1", "-o", "json")
    assert [(row["body"], row["reconsume_times"]) for row in taken.objects()] == [("only", 0)]


async def test_ctrl_c_commits_what_a_group_was_shown(cluster: Cluster) -> None:
    await make(cluster, "ordered", queues=1)
    await send(cluster, "ordered", "one", "two")
    take = ("consume", "ordered", "--group", "stoppers", "--from", "begin", "--body")
    process = await started(cluster, *take, "--follow")
    assert [await line_of(process), await line_of(process)] == [b"one\n", b"two\n"]
    assert await ended(process, signal.SIGINT) == (130, "")
    await send(cluster, "ordered", "three")
    assert (await dejamq(cluster, *take, "--count", "1")).output == "three\n"


async def test_a_follower_waits_for_a_broker_that_comes_back(cluster: Cluster) -> None:
    async with Cluster(time_scale=0.1, journal_level="off", processes=True) as own:
        await make(own, "outage", queues=1)
        await send(own, "outage", "before")
        process = await started(own, "consume", "outage", "--from", "begin", "--follow", "--body")
        assert await line_of(process) == b"before\n"
        broker = own.broker("broker-a")
        broker.kill()
        broker.restart()
        await known(own, "outage")
        await send(own, "outage", "after")
        assert await line_of(process) == b"after\n"
        status, errors = await ended(process, signal.SIGINT)
    assert status == 130
    assert all("broker-a" in line for line in errors.splitlines()), errors
