"""A server under test: faults over HTTP strike clients of every protocol, and repeats are told with their causes."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from dejamq_broker.base.config import BrokerConfig
from dejamq_lab.broker_duplicates import RepeatedHandOut
from dejamq_lab.control.app import openapi
from dejamq_lab.control.client import Control
from dejamq_lab.control.serving import serve
from dejamq_lab.control.started import DejamqServer
from dejamq_lab.errors import ClusterFailed
from dejamq_proto.codes import Code, ConfigError
from dejamq_proto.remoting import requests as r
from dejamq_proto.v2 import messages_pb2 as pb
from remoting_wire import RemotingClient, a_heartbeat, a_pull, a_send, remoting
from v2_wire import V2Client, v2

pytestmark = [pytest.mark.process, pytest.mark.slow]
WAIT_S = 20
HOUSE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def running() -> Iterator[DejamqServer]:
    with DejamqServer() as server:
        yield server


@pytest.fixture
def server(running: DejamqServer) -> Iterator[DejamqServer]:
    yield running
    running.clear()


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


async def send(client: RemotingClient, topic: str, key: str, queue_id: int = 0) -> Code:
    answer = await client.ask(r.SEND_MESSAGE_V2, b"x", **a_send(topic, queue_id, i=f"UNIQ_KEY\x01{key}\x02"))
    return Code(answer.code)


async def pull(client: RemotingClient, topic: str, group: str, offset: int = 0, queue_id: int = 0) -> int:
    answer = await client.ask(
        r.PULL_MESSAGE, **a_pull(topic, queue_id, consumerGroup=group, queueOffset=offset)
    )  # fmt: skip
    return answer.code


async def join(client: RemotingClient, client_id: str, group: str, topic: str) -> None:
    beat = a_heartbeat(client_id, group, topic)
    assert (await client.ask(r.HEART_BEAT, beat)).code == 0
    asked = {"consumerGroup": group, "topic": topic, "queueId": 0}
    assert (await client.ask(r.QUERY_CONSUMER_OFFSET, **asked)).code in (0, Code.QUERY_NOT_FOUND)


async def commit(client: RemotingClient, topic: str, group: str, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
    await client.ask(r.UPDATE_CONSUMER_OFFSET, **fields)


async def never_answered(server: DejamqServer, act: str, call: Coroutine[Any, Any, object], struck: int = 1) -> None:
    """The fault strikes the call, and no answer comes then."""
    calling = asyncio.create_task(call)
    async with asyncio.timeout(WAIT_S):
        while await asyncio.to_thread(server.struck, act) < struck:
            await asyncio.sleep(0.02)
    done, _ = await asyncio.wait((calling,), timeout=0.3)
    assert not done
    calling.cancel()


def only(repeats: list[RepeatedHandOut]) -> RepeatedHandOut:
    (one,) = repeats
    return one


# --- single calls


async def test_a_send_whose_answer_is_lost_is_stored_and_the_same_message_again_is_a_repeat(
    server: DejamqServer, topic: str
) -> None:
    server.answer_lost("send")
    async with remoting(server.namesrv) as client:
        await never_answered(server, "send", send(client, topic, "K1"))
        assert server.struck("send") == 1
        assert await send(client, topic, "K1") == 0
        assert await pull(client, topic, "g") == 0
    repeat = only(server.duplicates("g"))
    assert (repeat.identity, repeat.message_id, repeat.cause) == ("I2", "K1", "P1")
    assert (repeat.first.queue_offset, repeat.second.queue_offset) == (0, 1)
    assert any(line.endswith(" APPEND") for line in repeat.evidence)


async def test_without_a_lost_answer_a_message_that_was_sent_twice_has_no_cause_but_what_is_missing(
    server: DejamqServer, topic: str
) -> None:
    async with remoting(server.namesrv) as client:
        assert [await send(client, topic, "K1"), await send(client, topic, "K1")] == [0, 0]
        assert await pull(client, topic, "g0") == 0
    repeat = only(server.duplicates("g0"))
    assert repeat.cause == "undetermined"
    assert "producer" in repeat.missing


async def test_one_fault_strikes_as_many_calls_as_it_counts_whatever_protocol_they_come_by(
    server: DejamqServer, topic: str
) -> None:
    server.request_lost("send", count=2)
    async with remoting(server.namesrv) as client, v2(server.endpoints) as other:
        await never_answered(server, "send", send(client, topic, "K1"))
        await never_answered(server, "send", send_v2(other, topic), 2)
        assert server.struck("send") == 2
        assert await send(client, topic, "K2") == 0
        assert await send_v2(other, topic) == pb.OK


async def test_a_fault_that_is_asked_for_again_counts_anew(server: DejamqServer, topic: str) -> None:
    async with remoting(server.namesrv) as client:
        for _ in range(2):
            server.request_lost("send")
            await never_answered(server, "send", send(client, topic, "K1"))
            assert server.struck("send") == 1
            assert await send(client, topic, "K1") == 0


async def test_a_late_answer_comes(server: DejamqServer, topic: str) -> None:
    server.answer_late("send", ms=300)
    async with remoting(server.namesrv) as client:
        assert await send(client, topic, "K1") == 0
    assert server.struck("send") == 1


async def send_v2(client: V2Client, topic: str) -> "pb.Code.ValueType":
    message = pb.Message(topic=pb.Resource(name=topic), body=b"x")
    message.system_properties.message_id = uuid.uuid4().hex
    return (await client.send(message)).status.code


# --- what was handed out twice


async def test_a_consumer_that_ends_before_its_offset_is_named_as_the_cause(server: DejamqServer, topic: str) -> None:
    async with remoting(server.namesrv) as client:
        assert await send(client, topic, "K1") == 0
        async with remoting(server.namesrv) as first:
            await join(first, "c1", "g1", topic)
            assert await pull(first, topic, "g1") == 0
        await join(client, "c2", "g1", topic)
        assert await pull(client, topic, "g1") == 0
    repeat = only(server.duplicates("g1"))
    assert (repeat.cause, repeat.first.client_id, repeat.second.client_id) == ("O1", "c1", "c2")


async def test_a_new_owner_that_begins_before_the_old_one_told_its_offset(server: DejamqServer, topic: str) -> None:
    async with remoting(server.namesrv) as first, remoting(server.namesrv) as second:
        assert await send(first, topic, "K1") == 0
        await join(first, "c1", "g2", topic)
        assert await pull(first, topic, "g2") == 0
        await join(second, "c2", "g2", topic)
        assert await pull(second, topic, "g2") == 0
        await commit(first, topic, "g2", 1)
    assert only(server.duplicates("g2")).cause == "O8"


async def test_a_lost_commit_is_the_cause(server: DejamqServer, topic: str) -> None:
    async with remoting(server.namesrv) as first, remoting(server.namesrv) as second:
        assert await send(first, topic, "K1") == 0
        await join(first, "c1", "g3", topic)
        assert await pull(first, topic, "g3") == 0
        server.request_lost("commit")
        await never_answered(server, "commit", commit(first, topic, "g3", 1))
        await join(second, "c2", "g3", topic)
        assert await pull(second, topic, "g3") == 0
    assert only(server.duplicates("g3")).cause == "O2"


async def test_a_broker_that_is_killed_before_it_wrote_the_offset_is_the_cause(
    server: DejamqServer, topic: str
) -> None:
    async with remoting(server.namesrv) as client:
        assert await send(client, topic, "K1") == 0
        await join(client, "c1", "g4", topic)
        assert await pull(client, topic, "g4") == 0
        await commit(client, topic, "g4", 1)
    server.kill()
    server.restart()
    async with remoting(server.namesrv) as client:
        await join(client, "c1", "g4", topic)
        assert await pull(client, topic, "g4") == 0
    assert only(server.duplicates("g4")).cause == "O3"


async def test_a_popped_message_that_nobody_acknowledged_comes_again_and_says_why(
    server: DejamqServer, topic: str
) -> None:
    async with v2(server.endpoints) as client:
        assert await send_v2(client, topic) == pb.OK
        _, first = await client.receive(topic, "g5", invisible_s=1)
        _, again = await client.receive(topic, "g5", wait_s=WAIT_S / 2)
        await client.ack(*again, group="g5")
        assert [len(first), len(again)] == [1, 1]
    assert only(server.duplicates("g5")).cause == "B6"


async def test_an_acknowledgement_that_is_lost_is_the_cause(server: DejamqServer, topic: str) -> None:
    async with v2(server.endpoints) as client:
        assert await send_v2(client, topic) == pb.OK
        _, first = await client.receive(topic, "g6", invisible_s=2)
        server.request_lost("ack")
        await never_answered(server, "ack", client.ack(*first, group="g6"))
        _, again = await client.receive(topic, "g6", wait_s=WAIT_S / 2)
        assert len(again) == 1
    assert only(server.duplicates("g6")).cause == "B7"


async def test_messages_that_were_lost_on_their_way_to_the_consumer_are_no_repeat_when_they_come(
    server: DejamqServer, topic: str
) -> None:
    async with remoting(server.namesrv) as client:
        assert await send(client, topic, "K1") == 0
        server.answer_lost("receive")
        await never_answered(server, "receive", pull(client, topic, "g7"))
        assert await pull(client, topic, "g7") == 0
    assert server.duplicates("g7") == []


async def test_a_retry_that_the_consumer_asked_for_is_no_repeat(server: DejamqServer, topic: str) -> None:
    async with v2(server.endpoints) as client:
        assert await send_v2(client, topic) == pb.OK
        _, (first,) = await client.receive(topic, "g8", invisible_s=60)
        await client.change(first, 0.5, "g8")
        _, again = await client.receive(topic, "g8", wait_s=WAIT_S / 2)
        assert len(again) == 1
    assert server.duplicates("g8") == []


# --- the way to the server, and its process


async def test_nobody_reaches_a_server_that_is_cut_off_until_it_is_healed(server: DejamqServer, topic: str) -> None:
    async with remoting(server.namesrv) as client:
        server.cut()
        async with asyncio.timeout(WAIT_S):
            await client.closed.wait()
        with pytest.raises(HTTPError, match="503"):
            asked(server, "/health")
        server.heal()
    async with remoting(server.namesrv) as client:
        assert await send(client, topic, "K1") == 0


async def test_a_silent_cut_keeps_connections_and_loses_what_they_carry(server: DejamqServer, topic: str) -> None:
    async with remoting(server.namesrv) as client:
        server.cut("silent")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await send(client, topic, "K1")
        assert not client.closed.is_set()


async def test_a_paused_server_answers_when_it_goes_on(server: DejamqServer, topic: str) -> None:
    async with remoting(server.namesrv) as client:
        server.pause()
        sending = asyncio.create_task(send(client, topic, "K1"))
        done, _ = await asyncio.wait((sending,), timeout=0.5)
        assert not done
        assert server.faults() == [{"fault": "pause"}]
        server.resume()
        assert await sending == 0


async def test_a_killed_server_keeps_its_messages_the_address_it_tells_and_what_a_fault_has_left(
    server: DejamqServer, topic: str
) -> None:
    async with remoting(server.namesrv) as client:
        assert await send(client, topic, "K1") == 0
        server.request_lost("send", count=2)
        await never_answered(server, "send", send(client, topic, "K2"))
    server.advertise("localhost:32771")
    server.kill()
    server.restart()
    async with remoting(server.namesrv) as client:
        assert await pull(client, topic, "g9") == 0
        route = json.loads((await client.ask(r.GET_ROUTE, topic=topic)).body)
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "localhost:32771"}
        await never_answered(server, "send", send(client, topic, "K2"), 2)
        assert server.struck("send") == 2
        assert await send(client, topic, "K2") == 0
    server.advertise(server.namesrv)


def test_an_end_of_all_faults_leaves_a_server_that_serves(server: DejamqServer) -> None:
    server.cut()
    server.request_lost("send")
    server.kill()
    server.clear()
    assert server.faults() == []
    assert asked(server, "/health")["status"] == "SERVING"


def test_a_fault_that_cannot_be_now_says_what_to_do(server: DejamqServer) -> None:
    server.pause()
    with pytest.raises(ClusterFailed, match="resume it first"):
        server.advertise("localhost:1")


# --- HTTP


def asked(control: Control, path: str, **request: Any) -> Any:
    """The answer to a GET."""
    with urlopen(Request(control.url + path, **request)) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "hint"),
    [
        ("POST", "/faults", b'{"fault": "answr_lost"}', 400, "fault is one of answer_lost, request_lost"),
        ("POST", "/faults", b'{"fault": "answer_lost", "operation": "snd"}', 400, "operation is one of send, receive"),
        ("POST", "/faults", b'{"fault": "answer_lost", "operation": "send", "count": 0}', 400, "fault is one of"),
        ("POST", "/faults", b"nonsense", 400, "fault is one of"),
        ("POST", "/faults", b" " * 70_000, 413, "/openapi.json"),
        ("PUT", "/faults", b"", 405, "/openapi.json"),
        ("GET", "/duplicates", None, 400, "/duplicates?group=GROUP"),
        ("GET", "/nothing", None, 404, "/openapi.json"),
        ("POST", "/advertise", b'{"address": "a=b:1"}', 400, "/openapi.json"),
        ("POST", "/advertise", b'{"address": "nonsense"}', 400, "/openapi.json"),
        ("POST", "/advertise", b'{"port": 1}', 400, "address"),
    ],
)
def test_a_request_that_cannot_be_done_is_refused_with_what_to_do(
    server: DejamqServer, method: str, path: str, body: bytes | None, status: int, hint: str
) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(Request(server.url + path, body, method=method))
    problem = json.loads(refused.value.read())
    assert refused.value.code == status
    assert problem["error"]
    assert hint in problem["hint"]
    assert server.faults() == []


def test_a_web_page_of_another_site_strikes_nothing(server: DejamqServer) -> None:
    with pytest.raises(HTTPError, match="403"):
        asked(server, "/faults", data=b'{"fault": "kill"}', headers={"Origin": "http://evil.example"})
    assert server.faults() == []


def test_the_description_names_every_request_and_every_fault(server: DejamqServer) -> None:
    described = asked(server, "/openapi.json")
    assert described == json.loads(json.dumps(openapi()))
    assert set(described["paths"]) == {"/faults", "/duplicates", "/advertise", "/health"}
    assert {"AnswerLost", "RequestLost", "AnswerLate", "CutFault", "KillFault", "RepeatedHandOut"} <= set(
        described["components"]["schemas"]
    )


def test_the_requests_of_the_page_are_answered(server: DejamqServer) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", (HOUSE / "docs" / "control.md").read_text(), re.DOTALL)
    _, *commands = block.splitlines()
    assert len(commands) == 5
    for command in commands:
        asked = command.replace("127.0.0.1:9877", server.url.removeprefix("http://"))
        done = subprocess.run(["bash", "-ec", asked], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.startswith("{"), (command, done.stdout, done.stderr)
        assert '"error"' not in done.stdout


def test_an_unknown_operation_is_an_error_that_names_all(server: DejamqServer) -> None:
    with pytest.raises(ConfigError, match="send, receive, ack"):
        server.answer_lost("snd")


def test_a_server_that_is_not_there_is_said(unused_tcp_port: int) -> None:
    with pytest.raises(ClusterFailed, match="nothing answers at"):
        Control(f"http://127.0.0.1:{unused_tcp_port}").kill()


# --- the command


def dev(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dejamq_lab.dev", "--listen", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip


def test_a_signal_ends_both_processes_and_a_wide_door_is_warned_of() -> None:
    process = dev("--control", "0.0.0.0:0")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready dev 127.0.0.1:")
    assert process.stdout.readline().startswith("control http://0.0.0.0:")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.count("\n") == 1
    assert "lets everybody who reaches it kill this server" in said
    assert children
    assert not any(Path("/proc", pid).exists() for pid in children)


@pytest.mark.parametrize(
    ("listen", "control", "said"),
    [
        ("127.0.0.1:0", "nonsense", "--control takes HOST:PORT"),
        ("127.0.0.1:0", "192.0.2.1:1", "cannot listen on 192.0.2.1:1"),
        ("192.0.2.1:1", "127.0.0.1:0", "cannot listen on 192.0.2.1:1"),
    ],
)
async def test_an_address_that_cannot_be_is_refused(listen: str, control: str, said: str, tmp_path: Path) -> None:
    config = BrokerConfig(listen=listen, namesrv="", store_directory=str(tmp_path / "store"))
    with pytest.raises(ConfigError, match=said):
        await serve(config, control, tmp_path / "control")
