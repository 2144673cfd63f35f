"""A stream on which nothing is said any more keeps nothing of what was said last, which may be a run of a MiB."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from sys import getrefcount
from typing import Any
from weakref import ref

import pytest
from broker_parts import Parts, parts_in
from broker_wire import a_run
from consumer_fakes import Seen, until
from dejamq_broker.base.config import LimitSettings
from dejamq_broker.base.streams import Streams
from dejamq_broker.doors.v1.pull import PullService
from dejamq_broker.doors.v1.send import SendService
from dejamq_broker.paths.confirmation import Confirmation
from dejamq_broker.paths.long_poll import LongPoll
from dejamq_broker.writing.fast_failure import FastFailure
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.serving.acceptor import Acceptor
from dejamq_proto.wire.framed import Pieces, joined
from dejamq_proto.wire.messages import PullAnswer


class Client:
    """Says what it has to say, then nothing, and keeps the lengths of the answers. Without ``reads`` none arrives."""

    def __init__(self, *said: Any, reads: bool = True) -> None:
        self._said, self.silent, self.heard, self._reads = list(said), False, list[int](), reads

    async def asks(self) -> AsyncIterator[Any]:
        while self._said:
            yield self._said.pop()
        self.silent = True
        await asyncio.Event().wait()

    async def write(self, answer: Pieces) -> None:
        self.heard.append(len(joined(answer)))
        del answer
        if not self._reads:
            await asyncio.Event().wait()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:4711"


async def ended(stream: "asyncio.Task[None]") -> None:
    stream.cancel()
    await asyncio.wait((stream,))


async def test_an_idle_producer_costs_the_broker_no_copy_of_its_last_run(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        frame = a_run("orders", [b"x" * 1000]).encode()
        alone, client = getrefcount(frame), Client(frame)
        confirmation = Confirmation(parts.sender, parts.retries, 1000, lambda: True)
        service = SendService(
            parts.sender, confirmation, parts.recalls, Streams(), FastFailure(LimitSettings()), Acceptor()
        )
        stream = asyncio.create_task(service.SendStream(client.asks(), client))  # type: ignore[arg-type]
        await until(lambda: client.silent and client.heard)
        assert getrefcount(frame) == alone
        await ended(stream)


@pytest.mark.parametrize("reads", [True, False])
async def test_a_consumer_that_is_idle_or_does_not_read_keeps_no_log_file_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    given: list[ref[PullAnswer]] = []

    def look(parts: Parts) -> Any:
        inner = parts.puller.look

        def seen(*args: Any, **more: Any) -> PullAnswer | None:
            found = inner(*args, **more)
            if found is None:
                return None
            answer = Seen.of(found)
            given.append(ref(answer))
            return answer

        return seen

    with parts_in(tmp_path) as parts:
        parts.send("orders", b"x" * 1000)
        parts.settle()
        monkeypatch.setattr(parts.puller, "look", look(parts))
        request = PullRequest(group="g", topic="orders", max_messages=10, max_bytes=10_000, expression="*")
        request.caller.seq = 1
        client = Client(request, reads=reads)
        service = PullService(parts.puller, parts.rules.filters, LongPoll(), Streams(), None)
        stream = asyncio.create_task(service.PullStream(client.asks(), client))  # type: ignore[arg-type]
        await until(lambda: client.silent and client.heard)
        assert client.heard[0] > 1000
        assert [answer() for answer in given] == [None]
        await ended(stream)
