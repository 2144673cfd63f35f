"""A server that ``dejamq collect`` asks: connections that end are made again, absence is told once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from dejamq_cli.collecting.files import LEAST_BYTES, EvidenceFiles
from dejamq_cli.collecting.lines import Source
from dejamq_cli.collecting.servers import AskedServer, Pace
from dejamq_proto.codes import BrokerUnavailable
from dejamq_proto.remoting import requests as r
from dejamq_proto.remoting.frames import FrameReader, answer, encode
from evidence import lines_of


@asynccontextmanager
async def asking(folder: Path, address: str) -> AsyncIterator[AskedServer]:
    written: list[int] = []
    files = EvidenceFiles(folder, LEAST_BYTES, "traces", dict, written.append)
    server = AskedServer(Source(address), Pace(10_000), files, None)
    try:
        yield server
    finally:
        await server.close()
        await files.close()


@asynccontextmanager
async def answering(most: int) -> AsyncIterator[str]:
    """The address of a server that ends each connection after so many answers, as if it had been idle."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames, answered = FrameReader(), 0
        while answered < most and (data := await reader.read(1 << 16)):
            frames.receive(data)
            while answered < most and (command := frames.next_command()) is not None:
                writer.write(encode(answer(command)))
                answered += 1
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    server.close()
    await server.wait_closed()


async def test_a_connection_that_the_server_ended_is_made_again_and_nobody_takes_that_for_absence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with answering(3) as address, asking(tmp_path, address) as server:

        async def ask_some() -> None:
            for _ in range(7):
                assert (await server.ask(r.GET_ALL_TOPICS)).command.code == 0

        await ask_some()
        assert server.connections == 3
        assert server.away is None
    assert lines_of(tmp_path, "session", event="away") == []
    assert len(lines_of(tmp_path, "session", event="connected")) == 3
    assert capsys.readouterr().err == ""


async def test_absence_is_told_once_and_the_server_is_not_tried_at_every_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asking(tmp_path, "127.0.0.1:1") as server:
        for _ in range(5):
            with pytest.raises(BrokerUnavailable):
                await server.ask(r.GET_ALL_TOPICS)
    assert len(lines_of(tmp_path, "session", event="away", source="127.0.0.1:1")) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
