"""The heartbeats' channel at the broker, with a client that reads late."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

from dejamq_broker.base.streams import MOST_ASKED, Streams
from dejamq_broker.doors.v1.client import ClientService
from dejamq_proto.client_pb2 import BrokerCommand, ConsumerListRequest, Heartbeat
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.serving.acceptor import Acceptor


class Group:
    """Its members are ``now``."""

    def __init__(self) -> None:
        self.now, self.asked = ["c"], 0
        self.tell: Callable[[str], None] = lambda group: None

    def open(self, tell: Callable[[str], None], *_: Any, **__: Any) -> int:
        self.tell = tell
        return 1

    def members(self, *_: Any) -> list[str]:
        self.asked += 1
        return list(self.now)

    def peer(self, _: int) -> SimpleNamespace:
        return SimpleNamespace()

    def close(self, channel: int) -> None: ...


class Late:
    """A client that takes nothing before ``reads`` is set."""

    def __init__(self) -> None:
        self.reads, self.got = asyncio.Event(), list[BrokerCommand]()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def write(self, command: BrokerCommand) -> None:
        await self.reads.wait()
        self.got.append(command)


async def test_a_list_of_members_that_was_decided_before_a_change_never_leaves_after_the_word_of_it() -> None:
    group, client, service, asked = Group(), Late(), ClientService, MOST_ASKED + 4

    async def questions() -> AsyncIterator[Heartbeat]:
        for seq in range(1, asked + 1):
            yield Heartbeat(consumer_list=ConsumerListRequest(caller=Caller(seq=seq), group="g"))

    rest: Any = (None, None, None, None, None, Acceptor())
    serving = asyncio.create_task(
        service(group, Streams(), *rest, backlog_bytes=1 << 20).ClientChannel(questions(), client)  # type: ignore[arg-type]
    )
    for _ in range(100):
        await asyncio.sleep(0)
    assert MOST_ASKED <= group.asked < asked
    group.now = ["c", "d"]
    group.tell("g")
    client.reads.set()
    await asyncio.wait_for(serving, 10)
    changed = next(number for number, command in enumerate(client.got) if command.HasField("consumer_ids_changed"))
    lists = [list(command.consumer_list.client_ids) for command in client.got[changed + 1 :]]
    assert len(client.got) == asked + 1
    assert lists == [["c", "d"]] * len(lists) != []
