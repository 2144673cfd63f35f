"""Relays between RocketMQ's clients and its brokers, which know whose connection it is and which request a frame has.

A frame is 4 bytes of length, 4 of the header's length with its form in the first, the header and the body. Headers are
JSON here. Bit 0 of ``flag`` marks an answer, and ``opaque`` is its request's.
"""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dejamq_proto.serving.listening import bound, end_listening

from dejamq_lab.rocketmq.servers import LINKED, JavaServer

PULL, UPDATE_OFFSET, SEND_BACK, END_TRANSACTION, MEMBERS_CHANGED, SEND = 11, 15, 36, 37, 40, 310
"""Codes of requests."""
REQUEST, ANSWER = "request", "answer"
BODY_MASK = (1 << 24) - 1
START_S = 10


@dataclass(frozen=True)
class Loss:
    """What gets lost: requests or answers to them, by code, of one machine; of sends those to topics that begin so."""

    machine: str
    codes: frozenset[int]
    what: str = REQUEST
    topic: str = ""

    def takes(self, machine: str, what: str, code: int, header: Mapping[str, Any]) -> bool:
        if (machine, what) != (self.machine, self.what) or code not in self.codes:
            return False
        fields = header.get("extFields") or {}
        return code != SEND or str(fields.get("b", "")).startswith(self.topic)


class Links:
    """One relay for each broker, in a thread of their own; closed with the ``with``."""

    def __init__(self, brokers: Sequence[JavaServer], pids: Callable[[], Mapping[int, str]]) -> None:
        """``pids`` tells which machine a process is."""
        self._brokers, self._pids = brokers, pids
        self._losses: list[Loss] = []
        self._cut: set[tuple[str, str]] = set()
        self._closing = False
        self._held: list[socket.socket] = []
        self._open: dict[asyncio.StreamWriter, tuple[str, str]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        for broker in self._brokers:
            asyncio.run_coroutine_threadsafe(self._listen(broker), self._loop).result(START_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)
        self._loop.close()

    def lose(self, machine: str, *codes: int, what: str = REQUEST, topic: str = "") -> None:
        """From now on. The connection stays."""
        self._losses.append(Loss(machine, frozenset(codes), what, topic))

    def deliver(self) -> None:
        """Nothing gets lost any more."""
        self._losses.clear()

    def cut(self, machine: str, broker: str) -> None:
        """Break all connections from the machine to the broker, and every new one."""
        self._cut.add((machine, broker))
        self._loop.call_soon_threadsafe(self._break, machine, broker)

    def heal(self, machine: str, broker: str) -> None:
        """Connections come up again."""
        self._cut.discard((machine, broker))

    async def _listen(self, broker: JavaServer) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._accept(broker, reader, writer)

        for held in await bound(LINKED, broker.port):
            self._held.append(held)
            await asyncio.start_server(accept, sock=held)

    async def _close(self) -> None:
        self._closing = True
        end_listening(self._held)
        for writer in list(self._open):
            writer.transport.abort()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)  # they end with their connections

    def _break(self, machine: str, broker: str) -> None:
        for writer, ends in list(self._open.items()):
            if ends == (machine, broker):
                writer.transport.abort()

    async def _accept(self, broker: JavaServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        machine = machine_of(writer.get_extra_info("peername")[1], self._pids())
        if self._closing or (machine, broker.name) in self._cut:
            await _closed(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*broker.address.split(":"))
        except OSError:
            await _closed(writer)
            return
        asked: dict[tuple[bool, int], int] = {}
        for one in (writer, far_writer):
            self._open[one] = machine, broker.name
        try:
            await asyncio.gather(
                self._carry(machine, reader, far_writer, asked, up=True),
                self._carry(machine, far_reader, writer, asked, up=False),
            )
        finally:
            for one in (writer, far_writer):
                del self._open[one]
                await _closed(one)

    async def _carry(
        self, machine: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter,
        asked: dict[tuple[bool, int], int], *, up: bool,
    ) -> None:  # fmt: skip
        """Frame by frame, until either side ends. ``asked`` has the codes of requests by direction and number."""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                length = await source.readexactly(4)
                frame = await source.readexactly(int.from_bytes(length, "big"))
                if not self._lost(machine, frame, asked, up=up):
                    sink.write(length + frame)
                    await sink.drain()
        sink.close()

    def _lost(self, machine: str, frame: bytes, asked: dict[tuple[bool, int], int], *, up: bool) -> bool:
        header = json.loads(frame[4 : 4 + (int.from_bytes(frame[:4], "big") & BODY_MASK)])
        if header["flag"] & 1:
            what, code = ANSWER, asked.pop((not up, header["opaque"]), -1)
        else:
            what, code = REQUEST, header["code"]
            if not header["flag"] & 2:  # one way: nobody answers
                asked[up, header["opaque"]] = code
        return any(loss.takes(machine, what, code, header) for loss in self._losses)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


def machine_of(port: int, pids: Mapping[int, str]) -> str:
    """Whose process has the connection that begins at this port of the loopback; empty when it is nobody's."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port and fields[9] != "0":
            socket = f"socket:[{fields[9]}]"
            return next((name for pid, name in pids.items() if _has(pid, socket)), "")
    return ""


def _has(pid: int, socket: str) -> bool:
    with suppress(OSError):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(one) == socket:
                    return True
    return False
