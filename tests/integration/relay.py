"""A connection between a client and a broker whose other end can be lost without a word."""

import asyncio

import pytest
from dejamq_proto.wire import calling

KEEPALIVE_MS = 300


def quick_keepalive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients made from now on find out in some 600 ms that nobody answers, and not in 40 s."""
    quick = [(name, KEEPALIVE_MS if value in (30_000, 10_000) else value) for name, value in calling.CHANNEL_OPTIONS]
    monkeypatch.setattr(calling, "CHANNEL_OPTIONS", quick)


class Relay:
    """A TCP relay whose connections can lose their other end without a word."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._writers: list[asyncio.StreamWriter] = []
        self._pipes: list[asyncio.Task[None]] = []
        self._deaf = asyncio.Event()
        self.accepted = 0

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def go_deaf(self) -> None:
        """What the connections of now bring is thrown away; new ones are well."""
        self._deaf.set()
        self._deaf = asyncio.Event()

    async def close(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        for pipe in self._pipes:
            pipe.cancel()
        if self._pipes:
            await asyncio.wait(self._pipes)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        self._writers += [writer, far_writer]
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self._pipes.append(asyncio.create_task(self._pipe(source, target, self._deaf)))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deaf: asyncio.Event) -> None:
        try:
            while data := await reader.read(1 << 16):
                if not deaf.is_set():
                    writer.write(data)
        except OSError:
            pass
        if not deaf.is_set():
            writer.close()
