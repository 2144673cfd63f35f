"""Clients and fork. Each test forks a process of its own: one where gRPC has threads should not be forked."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

FORK = """
import os
def in_child(action):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            text = str(action())
        except BaseException as error:
            text = type(error).__name__
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    return os.read(read, 1000).decode()
"""


def run(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", FORK + script], capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.split()


def test_a_forked_child_makes_other_ids() -> None:
    before, theirs, mine = run("""
from dejamq.values.unique_id import next_unique_id
print(next_unique_id(), in_child(next_unique_id), next_unique_id())
""")
    assert before[12:20] == mine[12:20]
    assert theirs[12:20] != mine[12:20]


def test_a_producer_used_after_fork_raises_forked_process() -> None:
    assert (
        run("""
import asyncio
from dejamq import Message, Producer
async def main():
    unstarted = Producer("g")
    async with Producer("g") as producer:
        print(in_child(lambda: producer.submit(Message("t", b"x"))))
        print(in_child(lambda: producer.close().send(None)))
        print(in_child(lambda: unstarted.start().send(None)))
asyncio.run(main())
""")
        == ["ForkedProcess"] * 3
    )


def test_consumers_and_an_admin_used_after_fork_raise_forked_process() -> None:
    assert (
        run("""
import asyncio
from dejamq import Admin, LitePullConsumer, PushConsumer
async def main():
    push, lite, unstarted = PushConsumer("g"), LitePullConsumer("g"), Admin()
    async with Admin() as admin:
        for client in (push, lite, unstarted, admin):
            print(in_child(lambda: client.start().send(None)))
            print(in_child(lambda: client.close().send(None)))
        print(in_child(lambda: push.subscribe("orders", print)))
        print(in_child(lambda: lite.subscribe("orders")))
        print(in_child(lambda: unstarted.topics().send(None)))
        print(in_child(lambda: admin.topics().send(None)))
asyncio.run(main())
""")
        == ["ForkedProcess"] * 12
    )
