"""``/metrics`` over HTTP, for Prometheus: shared by name server and broker.

The metrics are gathered in the loop that owns them, a piece at a time. The text is made beside the loop, as it may be
long. ``prometheus_client`` is imported when a server has to serve metrics, and not before.
"""

import asyncio
import importlib.util
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dejamq_proto.access.guard import Guard, Unauthenticated
from dejamq_proto.access.http_rights import CHALLENGE
from dejamq_proto.codes import ConfigError, PermissionDenied
from dejamq_proto.serving.listening import bound, end_listening

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)
LONGEST_HEAD, READ_S, WRITE_S = 16 << 10, 5, 30
MOST_CLIENTS = 16
PAGE = "GET /metrics"
Gather = Callable[[], AsyncIterator["Metric"]]


class MetricsServer:
    """``start`` binds, ``close`` ends it; answers ``GET /metrics`` and nothing else. Owned by the event loop."""

    def __init__(self, gather: Gather, guard: Guard | None = None) -> None:
        """``gather`` gives every metric, each time anew; it may let the loop do other work in between.

        ``guard`` is asked for each page; None: everybody may see them.
        """
        self._gather, self._guard = gather, guard
        self._held: list[socket.socket] = []
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""

    async def start(self, listen: str) -> str:
        """Bind ``host:port``, port 0 for any; the bound address. Raises ConfigError."""
        host, _, port = listen.rpartition(":")
        try:
            self._held = await bound(host.strip("[]"), int(port))
            for held in self._held:
                await asyncio.start_server(self._serve, sock=held, limit=LONGEST_HEAD)
        except OSError as error:
            end_listening(self._held)
            raise ConfigError(f"cannot serve metrics on {listen}: {error.strerror}") from None
        self.address = f"{host}:{self._held[0].getsockname()[1]}"
        return self.address

    async def close(self) -> None:
        """Let go of the port and of its readers. May be called twice."""
        self._closed = True
        end_listening(self._held)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self._closed and len(self._tasks) <= MOST_CLIENTS:
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client went away, or never asked
        except Exception:
            log.exception("metrics_failed address=%s", self.address)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(READ_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        more = ""
        try:
            self._admit(headers.get("authorization"), writer)
            status, kind, body = await self._page(request, headers.get("accept", ""))
        except PermissionDenied as error:
            known = not isinstance(error, Unauthenticated)
            status, kind, body = "403 Forbidden" if known else "401 Unauthorized", "text/plain", f"{error}\n".encode()
            more = "" if known else f"WWW-Authenticate: {CHALLENGE}\r\n"
        length = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        length += f"{more}Connection: close\r\n\r\n"
        writer.write(length.encode() + (b"" if request.startswith("HEAD") else body))
        async with asyncio.timeout(WRITE_S):
            await writer.drain()
            with suppress(OSError):
                writer.write_eof()

    def _admit(self, authorization: str | None, writer: asyncio.StreamWriter) -> None:
        """Whatever is asked for. Raises PermissionDenied."""
        if self._guard is not None:
            peer = writer.get_extra_info("peername")
            self._guard.http(PAGE, authorization, peer[0] if peer else "")

    async def _page(self, request: str, accept: str) -> tuple[str, str, bytes]:
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path != "/metrics":
            return "404 Not Found", "text/plain", b"only /metrics is here\n"
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "text/plain", b"only GET is answered\n"
        metrics = [metric async for metric in self._gather()]
        kind, text = await asyncio.to_thread(_text, metrics, accept)
        return "200 OK", kind, text


def check_library() -> None:
    """Raise ConfigError where metrics cannot be made."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigError("metrics need prometheus-client: pip install 'dejamq[broker]', or leave metrics_listen out")


class _Gathered:
    """A collector in the form that the library takes for a registry."""

    def __init__(self, metrics: "list[Metric]") -> None:
        self._metrics = metrics

    def collect(self) -> "list[Metric]":
        return self._metrics


def _text(metrics: "list[Metric]", accept: str) -> tuple[str, bytes]:
    from prometheus_client.exposition import choose_encoder

    encode, kind = choose_encoder(accept)
    registry: Any = _Gathered(metrics)
    return kind, encode(registry)


def process_metrics() -> "list[Metric]":
    """Memory, processor time, descriptors and collections of this process, under the library's usual names."""
    from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR

    return [*PROCESS_COLLECTOR.collect(), *GC_COLLECTOR.collect()]
