"""The client's side of a remoting connection, against a server that answers as a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from dejamq_proto.codes import BrokerUnavailable, SendTimeout
from dejamq_proto.remoting import requests as r
from dejamq_proto.remoting.frames import FrameReader, answer, encode
from dejamq_proto.remoting.header import ROCKETMQ, Command
from dejamq_proto.remoting_client import Account, RemotingClient, connect

Serve = Callable[[Command, asyncio.StreamWriter], Awaitable[None]]
NOBODY = "127.0.0.1:1"


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[tuple[RemotingClient, list[Command]]]:
    """A client of such a server, and the server's own requests to it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        while data := await reader.read(1 << 16):
            frames.receive(data)
            while (command := frames.next_command()) is not None:
                await serve(command, writer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    asked: list[Command] = []
    client = await connect(f"{host}:{port}", asked.append)
    try:
        yield client, asked
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


async def echo(command: Command, writer: asyncio.StreamWriter) -> None:
    writer.write(encode(answer(command, body=str(sorted(command.ext.items())).encode())))


@pytest.mark.parametrize("form", [0, ROCKETMQ])
async def test_a_request_has_its_fields_by_rocketmqs_names_and_gets_its_answer(form: int) -> None:
    async with served(echo) as (client, _):
        client.form = form
        told = await client.ask(r.GET_MAX_OFFSET, r.QueueQuestion(topic="orders", queue_id=3))
        assert told.body == b"[('queueId', '3'), ('topic', 'orders')]"
        assert (await client.ask(r.GET_ALL_CONSUMER_OFFSET)).body == b"[]"


async def test_an_account_signs_its_requests_as_rocketmqs_clients_do() -> None:
    """The proof was made with openssl."""
    ext = {"topic": "orders", "queueId": "3"}
    command = Command(code=r.GET_MAX_OFFSET.code, ext=ext, body=b"body")
    Account("auditor", "quiet").sign(command)
    assert command.ext == ext | {"AccessKey": "auditor", "Signature": "d1tVapxH7LeWR2Fu8cQBmpG8Okg="}


async def test_answers_find_their_requests_in_any_order() -> None:
    held: list[Command] = []

    async def backwards(command: Command, writer: asyncio.StreamWriter) -> None:
        held.append(command)
        if len(held) == 3:
            for each in reversed(held):
                await echo(each, writer)

    async with served(backwards) as (client, _):
        told = await asyncio.gather(*(client.ask(r.GET_ROUTE, r.OfTopic(topic=name)) for name in "abc"))
        assert [one.body for one in told] == [b"[('topic', '%s')]" % name for name in (b"a", b"b", b"c")]


async def test_a_request_without_an_answer_ends_by_its_time_and_a_late_answer_is_passed_over() -> None:
    held: list[tuple[Command, asyncio.StreamWriter]] = []

    async def late(command: Command, writer: asyncio.StreamWriter) -> None:
        held.append((command, writer))
        if len(held) == 2:
            for each in held:
                await echo(*each)

    async with served(late) as (client, _):
        with pytest.raises(SendTimeout, match=r"did not answer GET_ROUTEINFO_BY_TOPIC within 0\.05 s"):
            await client.ask(r.GET_ROUTE, r.OfTopic(topic="first"), timeout_s=0.05)
        assert b"second" in (await client.ask(r.GET_ROUTE, r.OfTopic(topic="second"))).body


async def test_a_connection_that_ends_fails_what_waits_and_what_comes_later() -> None:
    async def hang_up(command: Command, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with served(hang_up) as (client, _):
        for _ in range(2):
            with pytest.raises(BrokerUnavailable, match="the connection ended"):
                await client.ask(r.GET_ALL_TOPICS)
        assert client.closed.is_set()


async def test_a_server_of_another_protocol_is_said_to_be_one() -> None:
    async def web(command: Command, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with served(web) as (client, _):
        with pytest.raises(BrokerUnavailable, match="no remoting server: a frame of"):
            await client.ask(r.GET_ALL_TOPICS)


async def test_the_servers_own_requests_are_handed_on_and_can_be_answered() -> None:
    replied = asyncio.Event()

    async def ask_back(command: Command, writer: asyncio.StreamWriter) -> None:
        if command.is_answer:
            assert (command.opaque, command.body) == (77, b"me")
            replied.set()
            return
        writer.write(encode(Command(code=r.GET_RUNNING_INFO.code, opaque=77)))
        await echo(command, writer)

    async with served(ask_back) as (client, asked):
        await client.ask(r.GET_ALL_TOPICS)
        client.reply(answer(asked[0], body=b"me"))
        async with asyncio.timeout(10):
            await replied.wait()


async def test_nobody_at_the_address_is_said_and_nothing_was_sent() -> None:
    with pytest.raises(BrokerUnavailable, match=NOBODY) as refused:
        await connect(NOBODY, lambda command: None)
    assert refused.value.definite
