"""One client's connection to one broker, where the broker does not do what it should."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from dejamq import SendTimeout
from dejamq.rpc_broker import BrokerLink
from dejamq_proto.client_pb2 import UpdateOffsetRequest, UpdateOffsetResponse
from dejamq_proto.client_pb2_grpc import ClientServicer, add_ClientServicer_to_server
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.send_pb2 import SendBackRequest
from dejamq_proto.send_pb2_grpc import SendServicer, add_SendServicer_to_server
from dejamq_proto.serving import Server

FAR_MS, SOON_MS = 600_000, 50


class Somebody:
    def caller(self, seq: int = 0) -> Caller:
        return Caller(client_id="c", boot_id="b", seq=seq)


async def never(request: Any, context: Any) -> Any:
    await asyncio.Event().wait()


@asynccontextmanager
async def silent_broker(**timeouts: float) -> AsyncIterator[BrokerLink]:
    """A link to a broker that takes every call and answers none."""
    clients = ClientServicer()  # type: ignore[abstract]  # answers only what is asked here
    sends = SendServicer()  # type: ignore[abstract]  # answers only what is asked here
    for name in ("QueryOffset", "UpdateOffset", "ConsumerList", "MaxOffset"):
        setattr(clients, name, never)
    sends.SendBack = never  # type: ignore[method-assign]  # the silence is the test
    server = Server(())
    add_ClientServicer_to_server(clients, server.grpc)
    add_SendServicer_to_server(sends, server.grpc)
    link = BrokerLink(await server.start("127.0.0.1:0"), Somebody(), **timeouts)
    yield link
    await link.close()
    await server.stop(0)


PROGRESS: list[Callable[[BrokerLink], Awaitable[Any]]] = [
    lambda link: link.query_offset("g", "t", 0),
    lambda link: link.update_offset("g", "t", 0, 1),
    lambda link: link.send_back(SendBackRequest(group="g")),
]
OTHERS: list[Callable[[BrokerLink], Awaitable[Any]]] = [
    lambda link: link.consumer_list("g"),
    lambda link: link.max_offset("t", 0),
]


@pytest.mark.parametrize("ask", PROGRESS, ids=("query_offset", "update_offset", "send_back"))
async def test_calls_about_progress_have_a_time_out_of_their_own(ask: Callable[[BrokerLink], Awaitable[Any]]) -> None:
    async with silent_broker(timeout_ms=FAR_MS, progress_timeout_ms=SOON_MS) as link:
        with pytest.raises(SendTimeout):
            await ask(link)


@pytest.mark.parametrize("ask", OTHERS, ids=("consumer_list", "max_offset"))
async def test_other_calls_keep_the_general_time_out(ask: Callable[[BrokerLink], Awaitable[Any]]) -> None:
    async with silent_broker(timeout_ms=SOON_MS, progress_timeout_ms=FAR_MS) as link:
        with pytest.raises(SendTimeout):
            await ask(link)


async def test_commits_of_one_turn_that_nobody_waits_for_are_one_call() -> None:
    came: list[UpdateOffsetRequest] = []
    arrived = asyncio.Event()

    async def take(request: UpdateOffsetRequest, _: Any) -> UpdateOffsetResponse:
        came.append(request)
        arrived.set()
        return UpdateOffsetResponse()

    clients = ClientServicer()  # type: ignore[abstract]  # answers only what is asked here
    clients.UpdateOffset = take  # type: ignore[method-assign,assignment]  # the broker's part is played here
    server = Server(())
    add_ClientServicer_to_server(clients, server.grpc)
    link = BrokerLink(await server.start("127.0.0.1:0"), Somebody(), timeout_ms=FAR_MS)
    for queue_id in range(3):
        link.update_offset_oneway("g", "t", queue_id, 10 + queue_id, seq=queue_id + 1)
    await asyncio.wait_for(arrived.wait(), 10)
    link.update_offset_oneway("g", "t", 0, 20)
    await link.close()
    await server.stop(0)
    first, second = came
    assert [(each.queue.queue_id, each.offset, each.caller.seq) for each in (first, *first.also)] == [
        (0, 10, 1), (1, 11, 2), (2, 12, 3),
    ]  # fmt: skip
    assert (second.offset, len(second.also)) == (20, 0)
