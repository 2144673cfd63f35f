"""Every name, text and number at doors for RocketMQ's clients and for HTTP is answered, or refused in words."""

import asyncio
import http.client
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dejamq_proto.remoting import pop_requests, requests
from dejamq_proto.v2 import messages_pb2 as pb
from hostile_bytes import NUMBERS, TEXTS
from hostile_servers import CRASHES, Process
from remoting_wire import remoting
from v2_wire import V2Client

pytestmark = pytest.mark.process

VALUES = [value.decode("utf-8", "replace") for value in (*NUMBERS, *TEXTS)]
NAMES = [value for value in VALUES if "\ufffd" not in value]
ASKED = 400
LONGEST_ANSWER = 2100
WAITING = {pop_requests.NOTIFICATION.code, pop_requests.POP_MESSAGE.code, requests.PULL_MESSAGE.code}
"""They wait for messages as long as they are told to."""


def every_field() -> Iterator[tuple[requests.RequestKind[Any], str, str]]:
    """Each field of each request with each value."""
    for request in requests.REQUESTS.values():
        if request.code not in WAITING:
            for field in msgspec.structs.fields(request.fields):
                yield from ((request, field.encode_name, value) for value in VALUES)


def usual(request: requests.RequestKind[Any]) -> dict[str, str]:
    """Fields that a client could send."""
    found = {}
    for field in msgspec.structs.fields(request.fields):
        name, kind = field.encode_name, str(field.type)
        text = "t" if "topic" in name.lower() else "g"
        found[name] = "0" if "int" in kind else "false" if "bool" in kind else text
    return found


async def ask_by_remoting(address: str, seed: int) -> None:
    chosen = random.Random(seed).sample(list(every_field()), ASKED)
    async with remoting(address) as client:
        for request, name, value in chosen:
            told = await client.ask(request, b"", **(usual(request) | {name: value}))
            assert len(told.remark or "") < LONGEST_ANSWER, (request.name, name, value[:50])


async def ask_by_v2(address: str) -> None:
    client = V2Client(address)
    try:
        for name in NAMES:
            resource = pb.Resource(name=name[:5000])
            assert len((await client.route(name[:5000])).status.message) < LONGEST_ANSWER
            message = pb.Message(topic=pb.Resource(name="t"), body=b"x")
            message.system_properties.message_id, message.system_properties.tag = name[:5000], name[:5000]
            message.user_properties[name[:5000]] = name[:5000]
            told = await client.send(message)
            assert len(told.status.message) < LONGEST_ANSWER
            asked = pb.QueryAssignmentRequest(topic=resource, group=resource)
            assert (await client.call("QueryAssignment", asked)).status.code
    finally:
        await client.channel.close()


def ask_by_http(address: str) -> None:
    for value in (*NUMBERS, *TEXTS):
        for path, body in (
            ("/faults", b'{"fault":"%s"}' % value), ("/advertise", b'{"address":%s}' % value), ("/faults", value),
            ("/faults", b'{"fault":"drop","operation":"send","count":%s}' % value),
        ):  # fmt: skip
            connection = http.client.HTTPConnection(address, timeout=30)
            connection.request("POST", path, body)
            answer = connection.getresponse()
            said = answer.read()
            connection.close()
            assert answer.status in (400, 413), (answer.status, said)
            assert len(said) < LONGEST_ANSWER


async def test_every_name_and_number_is_answered_and_what_is_logged_of_it_drives_no_terminal(
    tmp_path: Path, seed: int
) -> None:
    server = Process(tmp_path / "dev", "dejamq_lab.dev", "--store", "store")
    try:
        address = (await server.ready()).rpartition("=")[2]
        await ask_by_remoting(address, seed)
        await ask_by_v2(address)
        assert await server.stop() == 0, server.err.read_text()[-2000:]
    finally:
        server.kill()
    log = server.err.read_text()
    assert not [crash for crash in CRASHES if crash in log], f"seed {seed}: {log[:3000]}"
    assert all(line.isprintable() for line in log.splitlines())


async def test_every_body_of_the_control_page_that_is_no_fault_is_refused_in_a_few_words(tmp_path: Path) -> None:
    server = Process(tmp_path / "dev", "dejamq_lab.dev", "--control", "127.0.0.1:0")
    try:
        async with asyncio.timeout(50):
            while "control http://" not in (said := (tmp_path / "dev" / "out").read_text()):
                assert server.popen.poll() is None, server.err.read_text()
                await asyncio.sleep(0.05)
        await asyncio.to_thread(ask_by_http, said.rpartition("control http://")[2].strip())
        assert await server.stop() == 0, server.err.read_text()[-2000:]
    finally:
        server.kill()
    assert "Traceback" not in server.err.read_text()
