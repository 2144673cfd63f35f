"""Receipt handles that are none, of others, old, or of deleted topics: all doors refuse them, and nothing changes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from broker_wire import Wire, dialled, running, until
from dejamq_broker.app import Broker
from dejamq_proto import pop_pb2 as pb
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.pop_pb2_grpc import PopStub
from dejamq_proto.remoting import pop_requests as r
from dejamq_proto.v2 import messages_pb2 as v2
from remoting_wire import RemotingClient, remoting
from test_remoting_broker import sent
from test_remoting_pop import a_pop, an_ack, handle
from v2_wire import V2Client
from v2_wire import v2 as v2_client

FORGED = (
    "x", "1 2 3", "9" * 5_000, "0 0 0 0 0 broker-a 0 0", "0 1 2 0 0 broker-a 0 " + "9" * 40,
    "-1 -1 -1 -1 0 broker-a -1 -1", "0 1 2 0 7 broker-a 0 0", "0 1 2 999 0 broker-a 0 0", "\n" * 8,
)  # fmt: skip
REFUSED = (Code.MESSAGE_ILLEGAL, Code.NO_MESSAGE)
GONE = (Code.TOPIC_NOT_EXIST, *REFUSED)


class Door(Protocol):
    """A way in for consumers that pop topic ``t``."""

    async def pop(self, group: str = "g", invisible_ms: int = 60_000) -> str:
        """The handle of the one message that is there; '' without any."""

    async def ack(self, text: str, group: str = "g") -> int: ...

    async def change(self, text: str, group: str = "g") -> int:
        """Give it back. The code."""


class OurDoor:
    def __init__(self, wire: Wire) -> None:
        self._wire, self._pops = wire, PopStub(wire.channel)

    async def pop(self, group: str = "g", invisible_ms: int = 60_000) -> str:
        asked = pb.ReceiveRequest(
            caller=self._wire.caller(), group=group, topic="t", max_messages=1, invisible_ms=invisible_ms, from_min=True
        )
        batches = (await self._wire.call(self._pops.Receive, asked)).batches
        return str(batches[0].handles[0]) if batches else ""

    async def ack(self, text: str, group: str = "g") -> int:
        asked = pb.AckRequest(caller=self._wire.caller(), group=group, topic="t", handles=[text])
        try:
            outcomes = (await self._wire.call(self._pops.Ack, asked)).outcomes
        except DejamqError as error:
            return int(error.code)
        return outcomes[0].code if outcomes else 0

    async def change(self, text: str, group: str = "g") -> int:
        asked = pb.ChangeInvisibleRequest(
            caller=self._wire.caller(), group=group, topic="t", handle=text, invisible_ms=0
        )
        try:
            await self._wire.call(self._pops.ChangeInvisible, asked)
        except DejamqError as error:
            return int(error.code)
        return 0


class RemotingDoor:
    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def pop(self, group: str = "g", invisible_ms: int = 60_000) -> str:
        asked = a_pop(consumerGroup=group, maxMsgNums=1, invisibleTime=invisible_ms)
        answer = await self._client.ask(r.POP_MESSAGE, **asked)
        if answer.code:
            return ""
        return handle(answer, int(answer.ext["msgOffsetInfo"].rpartition(" ")[2]))

    async def ack(self, text: str, group: str = "g") -> int:
        return (await self._client.ask(r.ACK_MESSAGE, **self._named(text, group))).code

    async def change(self, text: str, group: str = "g") -> int:
        return (await self._client.ask(r.CHANGE_INVISIBLE, **self._named(text, group), invisibleTime=0)).code

    def _named(self, text: str, group: str) -> dict[str, Any]:
        fields = text.split(" ")
        offset = int(fields[7]) if len(fields) > 7 and fields[7].isdecimal() and len(fields[7]) < 19 else 0
        topic = f"%RETRY%{group}_t" if len(fields) > 4 and fields[4] == "1" else "t"
        return an_ack(text, offset, consumerGroup=group, topic=topic)


class V2Door:
    """Its one refusal of a handle is INVALID_RECEIPT_HANDLE; with any other status push consumers ask for ever."""

    def __init__(self, client: V2Client) -> None:
        self._client = client

    async def pop(self, group: str = "g", invisible_ms: int = 60_000) -> str:
        _, found = await self._client.receive("t", group, invisible_s=invisible_ms / 1000, wait_s=0, batch=1)
        return str(found[0].system_properties.receipt_handle) if found else ""

    async def ack(self, text: str, group: str = "g") -> int:
        return _code_of(await self._client.ack(self._named(text), group=group))

    async def change(self, text: str, group: str = "g") -> int:
        """Also said as a consumer in order gives up a message."""
        changed = _code_of(await self._client.change(self._named(text), 0, group=group))
        if changed:
            assert _code_of(await self._client.bury(self._named(text), group=group)) == changed
        return changed

    def _named(self, text: str) -> v2.Message:
        return v2.Message(topic=v2.Resource(name="t"), system_properties=v2.SystemProperties(receipt_handle=text))


def _code_of(answer: Any) -> int:
    assert answer.status.code in (v2.OK, v2.INVALID_RECEIPT_HANDLE), answer.status
    return 0 if answer.status.code == v2.OK else Code.NO_MESSAGE


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


@pytest.fixture(params=["ours", "remoting", "v2"])
async def door(request: pytest.FixtureRequest, broker: Broker) -> AsyncIterator[Door]:
    async with remoting(broker.address) as client, Wire(dialled(broker)) as wire, v2_client(broker.address) as official:
        await sent(client, b"x")
        doors: dict[str, Door] = {"ours": OurDoor(wire), "remoting": RemotingDoor(client), "v2": V2Door(official)}
        yield doors[request.param]


async def still_held(door: Door, text: str) -> None:
    """The message is in flight as it was, and its own handle is good."""
    assert await door.pop() == ""
    assert await door.ack(text) == 0


async def test_forged_handles_are_refused(door: Door) -> None:
    given = await door.pop()
    for text in FORGED:
        assert await door.ack(text) in REFUSED, text[:60]
        assert await door.change(text) in REFUSED, text[:60]
    await still_held(door, given)


async def test_a_handle_whose_fields_are_changed_one_by_one_is_refused(door: Door) -> None:
    given = await door.pop()
    fields = given.split(" ")
    changes = {0: "1", 1: str(int(fields[1]) + 1), 3: "999", 4: "1", 5: "broker-b", 6: "1", 7: "1"}
    for number, value in changes.items():
        text = " ".join([*fields[:number], value, *fields[number + 1 :]])
        if number == 6 and isinstance(door, RemotingDoor):
            continue  # there the request names the queue, and the handle's does not count
        assert await door.ack(text) in REFUSED, text
        assert await door.change(text) in REFUSED, text
    await still_held(door, given)


async def test_a_handle_of_another_group_is_refused(door: Door) -> None:
    given = await door.pop()
    assert await door.pop("other") != ""
    for group in ("nobody", "other"):
        assert (await door.ack(given, group), await door.change(given, group)) != (0, 0)
    await still_held(door, given)


async def test_an_old_handle_is_refused_when_its_message_was_given_again(door: Door) -> None:
    old = await door.pop(invisible_ms=0)
    async with asyncio.timeout(10):
        while not (new := await door.pop()):
            await asyncio.sleep(0.02)
    assert (await door.ack(old), await door.change(old)) == (Code.NO_MESSAGE, Code.NO_MESSAGE)
    await still_held(door, new)


async def test_a_handle_of_a_deleted_topic_is_refused_also_when_there_is_a_new_one_of_its_name(
    door: Door, broker: Broker
) -> None:
    given = await door.pop()
    await broker.domain.services.lives.delete_topic("t")
    await until(lambda: broker.domain.tables.topics.get("t") is None)
    assert await door.ack(given) in GONE
    assert await door.change(given) in GONE
    async with remoting(broker.address) as client:
        await sent(client, b"new")
    assert await door.ack(given) in REFUSED
    assert await door.pop() != ""
