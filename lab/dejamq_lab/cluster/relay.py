"""A TCP relay between two processes, whose connections can be cut, delayed, or lose what they carry."""

import asyncio
import contextlib
from collections.abc import Callable

from dejamq_proto.serving.listening import bound, end_listening

PIECE = 1 << 16
UP, DOWN = "up", "down"
"""From who dialled to who listens, and back."""


class Relay:
    """Listens for one side and dials the other. ``target`` says where that is at the moment of each connection."""

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._pipes: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._lost: frozenset[str] = frozenset()
        self._delay_s = 0.0
        self.address = ""

    async def start(self, host: str, port: int = 0) -> str:
        """Listen at this address of ours, port 0: a free one; ``host:port``. Raises OSError."""
        self._held = await bound(host, port)
        for held in self._held:
            await asyncio.start_server(self._accept, sock=held)
        self.address = f"{host}:{self._held[0].getsockname()[1]}"
        return self.address

    @property
    def refusing(self) -> bool:
        """Whether it was cut."""
        return self._refusing

    def cut(self) -> None:
        """Break all connections, and every new one."""
        self._refusing = True
        self._break()

    def allow(self) -> None:
        """Connections come up again after ``cut``; what they lose or wait for stays as it was."""
        self._refusing = False

    def lose(self, *ways: str) -> None:
        """Throw away everything that connections bring in these directions from now on, new connections too."""
        self._lost = frozenset(ways)

    def delay(self, ms: float) -> None:
        """Everything arrives ``ms`` later."""
        self._delay_s = ms / 1000

    def heal(self) -> None:
        """As at the beginning. Connections that lost something are broken: their ends would not understand the rest."""
        if self._lost:
            self._break()
        self._refusing, self._lost, self._delay_s = False, frozenset(), 0.0

    async def close(self) -> None:
        end_listening(self._held)
        self.cut()
        for pipe in self._pipes:
            pipe.cancel()
        if self._pipes:
            await asyncio.wait(self._pipes)

    def _break(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        self._writers.add(writer)  # so that whatever breaks connections finds it while the other side is dialled
        host, _, port = self._target().rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except (OSError, ValueError):
            self._drop(writer)
            return
        if writer.transport.is_closing():
            self._drop(writer)
            far_writer.transport.abort()
            return
        self._writers.add(far_writer)
        for source, sink, way in ((reader, far_writer, UP), (far_reader, writer, DOWN)):
            pipe = asyncio.create_task(self._pipe(source, sink, way))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(PIECE):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if way not in self._lost:
                    sink.write(data)
                    await sink.drain()
        self._writers.discard(sink)
        sink.close()
