"""Hostile inputs over HTTP: requests with absurd paths, headers and bodies, and requests that are none."""

import asyncio
import random
from collections.abc import Callable
from urllib.parse import quote

from hostile import EXPRESSIONS, GROUPS, NUMBERS, PLACES, TOPICS, WORDS
from hostile_attack import ANSWER_S, Told, by_workers

CONNECTIONS, REQUESTS = 8, (1, 8, 32)
LONGEST_REFUSAL = 3000
METHODS = ("GET", "GET", "GET", "POST", "HEAD", "DELETE", "PUT", "OPTIONS", "TRACE", "get", "G\x01T", "x" * 300)
HEADERS = (
    "", "Accept: application/openmetrics-text\r\n", "Accept: " + "x" * 3000 + "\r\n", "Origin: http://evil.example\r\n",
    "Content-Type: application/json\r\n", "Cookie: " + "a=b; " * 500 + "\r\n", "X-Dejamq-Token: x\r\n",
    "Sec-Fetch-Site: cross-site\r\n", "If-Modified-Since: never\r\n", "Range: bytes=0-99999999999\r\n",
    "Expect: 100-continue\r\n", "Upgrade: websocket\r\nConnection: Upgrade\r\n", "x" * 200 + ": y\r\n", "a:b\r\n" * 50,
)  # fmt: skip
BROKEN = (
    "Content-Length: -1\r\n", "Content-Length: 99999999999999999999\r\n", "Transfer-Encoding: chunked\r\n",
    "no colon\r\n",
    "\x00: \x00\r\n", "Host: a\r\nHost: b\r\n", "X: " + "y" * 70_000 + "\r\n",
)  # fmt: skip
"""With these the server may wait for more, or end the connection: they are the last of theirs."""
BODIES = (
    "", "{}", "[]", "null", "x", "[" * 3000, '{"fault":"%s"}', '{"fault":"drop","operation":"send","count":%s}',
    '{"fault":"answer_lost","operation":"%s","count":%s}', '{"fault":"delay","ms":"%s"}', '{"address":%s}',
    "x" * 70_000,
    '{"fault":"answer_late","operation":"send","count":1,"ms":-%s}', "token=%s&a=b", "\ud83e\udd86" * 500,
)  # fmt: skip
ABSURD = [*WORDS, *EXPRESSIONS, *PLACES, *map(str, NUMBERS), "<script>", "{{7*7}}", "2026-11-28T00:00:00", "-1d"]


def _one_of(source: random.Random) -> str:
    text = source.choice(ABSURD if source.random() < 0.6 else TOPICS + GROUPS)[:2000]
    return quote(text, safe=source.choice(("", "/", "/.%"))) if source.random() < 0.95 else text.replace(" ", "_")


def metrics_path(source: random.Random) -> str:
    """Most are none, as the page itself is long."""
    return source.choice(("/metrics?", "/", "/metrics/", "//metrics")) + _one_of(source)


def control_path(source: random.Random) -> str:
    kinds = (
        "/faults",
        "/faults?x=",
        "/duplicates?group=",
        "/duplicates?",
        "/advertise",
        "/health",
        "/openapi.json",
        "/",
    )
    return source.choice(kinds) + (_one_of(source) if source.random() < 0.5 else "")


def console_path(source: random.Random) -> str:
    kinds = (
        "/", "/overview", "/topics/", "/messages/", "/groups/", "/duplicates/", "/duplicates/compare",
        "/causes", "/static/",
        "/groups/g-0/replay", "/groups/g-0/dead-letters", "/topics/t-0",
    )  # fmt: skip
    asked = ("key", "id", "from", "to", "topic", "cause", "group", "message", "asked_for", "most", "offset", "queue")
    path = source.choice(kinds) + (_one_of(source) if source.random() < 0.6 else "")
    path += ".json" if source.random() < 0.4 else ""
    questions = "&".join(f"{source.choice(asked)}={_one_of(source)}" for _ in range(source.choice((0, 0, 1, 3))))
    return f"{path}?{questions}" if questions else path


class HttpAttack:
    """Many requests on a connection where the server keeps it."""

    def __init__(self, addresses: list[str], path: Callable[[random.Random], str], seed: int) -> None:
        self._addresses, self._path, self._random = addresses, path, random.Random(seed)
        self.told = Told()

    async def run(self, inputs: int) -> None:
        await by_workers(self.told, inputs, CONNECTIONS, self._connection)

    async def _connection(self) -> None:
        host, _, port = self._random.choice(self._addresses).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=32 << 20)
        try:
            for _ in range(self._random.choice(REQUESTS)):
                request, last = self._request(f"{host}:{port}")
                writer.write(request)
                if last:
                    writer.write_eof()
                async with asyncio.timeout(ANSWER_S):
                    kept = await self._answer(reader, request)
                if last or not kept:
                    break
        except TimeoutError:
            self.told.wrong.append(f"no answer within {ANSWER_S} s to {request[:3000]!r}")
        except (OSError, asyncio.IncompleteReadError):
            self.told.reached("connection ended")
        finally:
            writer.close()

    def _request(self, host: str) -> tuple[bytes, bool]:
        """And whether nothing can follow on its connection."""
        source = self._random
        method, path = source.choice(METHODS), self._path(source)
        body = source.choice(BODIES) if method not in ("GET", "HEAD") else ""
        if "%s" in body:
            body = body.replace("%s", source.choice(ABSURD)[:2000])
        raw = body.encode("utf-8", "surrogatepass")
        headers = "".join(source.choice(HEADERS) for _ in range(source.choice((0, 1, 3))))
        last = source.random() < 0.1
        headers += source.choice(BROKEN) if last else ""
        length = f"Content-Length: {len(raw)}\r\n" if raw else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}{length}\r\n"
        request = bytearray(head.encode("utf-8", "surrogatepass") + raw)
        if source.random() < 0.1:
            last = True
            for _ in range(source.choice((1, 2, 8))):
                request[source.randrange(len(request))] = source.randrange(256)
        return bytes(request), last

    async def _answer(self, reader: asyncio.StreamReader, request: bytes) -> bool:
        """Whether the connection goes on. Raises IncompleteReadError where it ended."""
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status == 100:
            return await self._answer(reader, request)
        said = {
            name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
        }
        length = 0 if request.startswith(b"HEAD") or status in (204, 304) else int(said.get(b"content-length", b"-1"))
        body = await reader.readexactly(length) if length >= 0 else await _rest(reader, said)
        self.told.reached(f"{status}")
        if status >= 500 and status != 503:
            self.told.wrong.append(f"{status} {body[:300]!r} to {request[:3000]!r}")
        if status >= 400 and length > LONGEST_REFUSAL and b"<html" not in body:
            self.told.wrong.append(f"{status} with {length} bytes to {request[:3000]!r}")
        return said.get(b"connection", b"").lower() != b"close"


async def _rest(reader: asyncio.StreamReader, said: dict[bytes, bytes]) -> bytes:
    """Of an answer that does not tell its length: its chunks, or all until the end of the connection."""
    if said.get(b"transfer-encoding", b"").lower() != b"chunked":
        return await reader.read()
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
