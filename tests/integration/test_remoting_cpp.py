"""RocketMQ's C++ client: frames that its own protocol code made, and answers that it can read.

``tests/data/cpp_frames.txt`` has a name and a frame in hex on each line. The C++ client (commit 7c8b7f8) made them with
its ``RemotingCommand``. Its headers are JSON with numbers among the fields, and end with a newline.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from broker_wire import running, until
from dejamq_broker.app import Broker
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.records.record import decode

FRAMES = dict(
    line.split() for line in (Path(__file__).parents[1] / "data" / "cpp_frames.txt").read_text("ascii").splitlines()
)
PATIENCE_S = 10
JSON_HEADER = 0


class Answer(NamedTuple):
    """An answer as the client reads it: it takes fields that are JSON strings, and leaves out all others."""

    code: int
    opaque: int
    fields: dict[str, str]
    body: bytes

    @property
    def bodies(self) -> list[bytes]:
        """Those of the records in the answer to a pull."""
        found, at = [], 0
        while at < len(self.body):
            found.append(decode(self.body, at).body)
            at += int.from_bytes(self.body[at : at + 4])
        return found


class CppClient:
    """One connection that sends recorded frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def tell(self, name: str) -> None:
        """Oneway: nothing comes back."""
        self._writer.write(bytes.fromhex(FRAMES[name]))

    async def ask(self, name: str) -> Answer:
        """The answer to the frame. Requests of the server that come before it are passed over."""
        self.tell(name)
        asked = int.from_bytes(bytes.fromhex(FRAMES[name])[4:8])
        opaque = json.loads(bytes.fromhex(FRAMES[name])[8 : 8 + asked])["opaque"]
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self._read()
                if answer is not None and answer.opaque == opaque:
                    return answer

    async def _read(self) -> Answer | None:
        size = int.from_bytes(await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        assert frame[0] == JSON_HEADER  # the client takes the byte for a part of the length
        end = 4 + int.from_bytes(frame[:4])
        header: dict[str, Any] = json.loads(frame[4:end])
        if not header["flag"] & 1:
            return None
        fields = {key: value for key, value in header.get("extFields", {}).items() if isinstance(value, str)}
        return Answer(header["code"], header["opaque"], fields, frame[end:])


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[CppClient]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield CppClient(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def namesrv() -> AsyncIterator[str]:
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    yield await server.start()
    await server.close()


@pytest.fixture
async def broker(tmp_path: Path, namesrv: str) -> AsyncIterator[Broker]:
    async with running(tmp_path, namesrv=namesrv) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[CppClient]:
    async with connected(broker.address) as client:
        assert (await client.ask("create_topic")).code == 0
        yield client


async def test_a_topic_that_it_makes_is_in_the_route_and_in_the_list(client: CppClient, namesrv: str) -> None:
    async with connected(namesrv) as names:
        route = json.loads((await names.ask("route")).body)
        (queues,) = route["queueDatas"]
        assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (4, 4, 6)
        assert [list(each["brokerAddrs"]) for each in route["brokerDatas"]] == [["0"]]
        assert "orders" in json.loads((await names.ask("topics")).body)["topicList"]


async def test_it_finds_what_it_sent_by_offset_and_by_id(client: CppClient) -> None:
    sent = await client.ask("send")
    assert sent.code == 0
    assert {key: sent.fields[key] for key in ("queueId", "queueOffset")} == {"queueId": "3", "queueOffset": "0"}
    assert {"msgId", "transactionId", "MSG_REGION"} <= sent.fields.keys()  # read without a test
    pulled = await client.ask("pull_3")
    assert (pulled.code, pulled.bodies) == (0, [b"one"])
    positions = {"suggestWhichBrokerId": "0", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}
    assert {key: pulled.fields[key] for key in positions} == positions
    assert decode((await client.ask("view")).body, 0).body == b"one"
    assert (await client.ask("max_offset")).fields["offset"] == "1"
    assert (await client.ask("min_offset")).fields["offset"] == "0"
    assert (await client.ask("search_offset")).fields["offset"] == "0"
    assert int((await client.ask("earliest")).fields["timestamp"]) > 0


async def test_a_batch_comes_as_a_send_with_a_mark(client: CppClient) -> None:
    sent = await client.ask("send_batch")
    assert (sent.code, sent.fields["queueOffset"], len(sent.fields["msgId"].split(","))) == (0, "0", 2)
    assert (await client.ask("pull_1")).bodies == [b"two", b"three"]


async def test_a_pull_without_messages_is_answered_with_all_of_its_fields(client: CppClient) -> None:
    pulled = await client.ask("pull_2")
    assert pulled.code == 19
    assert {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"} <= pulled.fields.keys()


async def test_a_member_with_ordinals_in_its_heartbeat_gets_its_group_and_its_locks(client: CppClient) -> None:
    assert (await client.ask("heartbeat")).code == 0
    assert json.loads((await client.ask("consumers")).body) == {"consumerIdList": ["10.0.0.9@41#1"]}
    locked = json.loads((await client.ask("lock")).body)["lockOKMQSet"]
    assert sorted((each["topic"], each["brokerName"], each["queueId"]) for each in locked) == [
        ("orders", "broker-a", 1), ("orders", "broker-a", 3),
    ]  # fmt: skip
    assert (await client.ask("unlock")).code == 0
    assert (await client.ask("unregister")).code == 0
    assert (await client.ask("consumers")).code == 1


async def test_an_offset_that_it_commits_oneway_is_kept(client: CppClient) -> None:
    await client.ask("send")
    await client.ask("heartbeat")
    assert (await client.ask("query_offset")).fields["offset"] == "0"
    client.tell("update_offset")

    async def kept() -> bool:
        return (await client.ask("query_offset")).fields["offset"] == "1"

    await until(kept)


async def test_a_message_that_it_sends_back_comes_again(client: CppClient) -> None:
    await client.ask("send")
    await client.ask("heartbeat")
    assert (await client.ask("send_back")).code == 0


async def test_a_half_message_is_there_when_it_is_committed(client: CppClient) -> None:
    sent = await client.ask("send_half")
    assert (sent.code, sent.fields["transactionId"]) == (0, "0A00000900000029000000000004")
    assert (await client.ask("pull_2")).code == 19
    client.tell("end_transaction")

    async def there() -> bool:
        return (await client.ask("pull_2")).bodies == [b"half"]

    await until(there)


def header_of(name: str) -> tuple[dict[str, Any], bytes]:
    """The header of a recorded frame, and the bytes behind its JSON."""
    frame = bytes.fromhex(FRAMES[name])
    end = 8 + int.from_bytes(frame[5:8])
    return json.loads(frame[8:end]), frame[end - 1 : end]


@pytest.mark.parametrize("name", FRAMES)
def test_its_recorded_frames_have_what_no_other_client_sends(name: str) -> None:
    header, last = header_of(name)
    assert bytes.fromhex(FRAMES[name])[4] == JSON_HEADER
    assert last == b"\n"
    assert (header["language"], header["version"]) == ("CPP", 333)
    assert "serializeTypeCurrentRPC" not in header
    fields = header["extFields"]
    assert {key: fields[key] for key in ("AccessKey", "Signature", "OnsChannel")} == {
        "AccessKey": "", "Signature": "", "OnsChannel": "",
    }  # fmt: skip


def test_its_numbers_are_numbers_where_others_send_texts() -> None:
    numbers = {"send": ("d", "e", "f", "h", "l"), "pull_1": ("queueId", "maxMsgNums", "sysFlag"),
               "send_back": ("delayLevel", "maxReconsumeTimes"), "create_topic": ("readQueueNums", "perm")}  # fmt: skip
    for name, keys in numbers.items():
        assert [type(header_of(name)[0]["extFields"][key]) for key in keys] == [int] * len(keys)
