"""What tests of the remoting doors speak: RocketMQ's own frames over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from dejamq_proto import remoting_client
from dejamq_proto.remoting import requests
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command
from dejamq_proto.wire.tls import ClientTls

PATIENCE_S = 10


class RemotingClient:
    """One connection. Requests of the server wait in ``pushed``."""

    def __init__(self, connection: remoting_client.RemotingClient, pushed: "asyncio.Queue[Command]") -> None:
        self._connection, self.pushed = connection, pushed
        self.writer, self.closed = connection.transport, connection.closed

    @property
    def form(self) -> int:
        """That of the headers, as ``version`` is written into them."""
        return self._connection.form

    @form.setter
    def form(self, form: int) -> None:
        self._connection.form = form

    @property
    def version(self) -> int:
        return self._connection.version

    @version.setter
    def version(self, version: int) -> None:
        self._connection.version = version

    async def ask(self, request: Any, body: Any = b"", /, **ext: Any) -> Command:
        """The answer, whatever its code. ``request`` may be a bare number."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._connection.send(a_command(request, body, ext))

    def ask_without_waiting(self, code: int) -> None:
        """Nobody wants the answer."""
        self._connection.send(a_command(code, b"", {})).add_done_callback(lambda answer: answer.exception())

    def stop_reading(self) -> None:
        """What the server sends stays where it is."""
        self.writer.pause_reading()

    def read_again(self) -> None:
        self.writer.resume_reading()

    def tell(self, request: Any, body: Any = b"", /, **ext: Any) -> None:
        """Oneway."""
        self._connection.tell(a_command(request, body, ext))

    def reply(self, to: Command, body: bytes = b"", code: int = 0, remark: str | None = None) -> None:
        """Answer a request of the server."""
        self._connection.reply(answer(to, code, remark, body=body))

    async def push(self) -> Command:
        """The next request of the server."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.pushed.get()

    async def close(self) -> None:
        await self._connection.close()


def a_command(request: Any, body: Any, ext: dict[str, Any]) -> Command:
    """``request`` may be a bare number."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    code = request if isinstance(request, int) else request.code
    return Command(code=code, ext={key: str(value) for key, value in ext.items()}, body=raw)


@asynccontextmanager
async def remoting(address: str, tls: ClientTls | None = None) -> AsyncIterator[RemotingClient]:
    pushed: asyncio.Queue[Command] = asyncio.Queue()
    client = RemotingClient(await remoting_client.connect(address, pushed.put_nowait, tls=tls), pushed)
    try:
        yield client
    finally:
        await client.close()


def a_send(topic: str = "t", queue_id: int = 0, **more: Any) -> dict[str, Any]:
    """The fields of SEND_MESSAGE_V2."""
    fields = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1_700_000_000_000, "h": 0}
    return fields | {"i": "UNIQ_KEY\x01K1\x02TAGS\x01a\x02", "j": 0, "k": "false", "m": "false"} | more


def a_pull(topic: str = "t", queue_id: int = 0, **more: Any) -> dict[str, Any]:
    """The fields of PULL_MESSAGE, with a subscription to everything and no wait."""
    fields = {
        "consumerGroup": "cg", "topic": topic, "queueId": queue_id, "queueOffset": 0, "maxMsgNums": 32,
        "sysFlag": requests.HAS_SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
        "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    return fields | more


def a_heartbeat(client_id: str = "c1", group: str = "cg", topic: str = "t", **more: Any) -> dict[str, Any]:
    subscription = {"topic": topic, "subString": "*", "expressionType": "TAG", "subVersion": 1} | more
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    return {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "pg"}]}
