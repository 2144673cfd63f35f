"""A port with TLS as strangers find it: handshakes within bounds, certificates that change, bytes that are none."""

import asyncio
import logging
import os
import random
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from broker_wire import until
from certificates import Authority, Pair
from dejamq_broker.base.config import BrokerConfig
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.live_settings import LiveSettings
from dejamq_proto.config.settings import load
from dejamq_proto.config.tls import TlsServerSettings
from dejamq_proto.serving import tls
from dejamq_proto.serving.acceptor import Acceptor
from dejamq_proto.serving.tls import TlsDoor

pytestmark = pytest.mark.openssl
REMOTING = bytes((0, 0, 0, 100, 0))
"""The first bytes of a remoting frame: they open the door of the tests."""


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ours")


@pytest.fixture(scope="session")
def server(authority: Authority) -> Pair:
    return authority.issue("server")


class Echo(asyncio.Protocol):
    """Says again what it is told; ``lost`` when the connection has ended. It obeys when it shall not write."""

    def __init__(self) -> None:
        self.lost, self.got, self.paused = asyncio.Event(), 0, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.got += len(data)
        self.transport.write(data)

    def pause_writing(self) -> None:
        self.paused += 1
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def eof_received(self) -> bool:
        """It still writes what is left, and ends then."""
        self.transport.close()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Port:
    """A public port whose door of remoting is an echo."""

    def __init__(self, door: TlsDoor, port: int, acceptor: Acceptor) -> None:
        self.door, self.number, self.acceptor = door, port, acceptor
        self.echoes: list[Echo] = []

    def open(self) -> Echo:
        self.echoes.append(Echo())
        return self.echoes[-1]

    async def dial(self, authority: Authority) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cafile=authority.pem)
        async with asyncio.timeout(10):
            return await asyncio.open_connection(
                "127.0.0.1", self.number, ssl=context, server_hostname="localhost", limit=1 << 16
            )

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.number)


@asynccontextmanager
async def port_with(settings: dict[str, Any]) -> AsyncIterator[Port]:
    acceptor, door = Acceptor(), TlsDoor(TlsServerSettings(**settings))
    acceptor.tls = door
    port = Port(door, await acceptor.bind("127.0.0.1", 0), acceptor)
    acceptor.remoting = port.open
    await acceptor.listen()
    try:
        yield port
    finally:
        acceptor.close()


async def ends(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def serial_of(writer: asyncio.StreamWriter) -> str:
    return str(writer.get_extra_info("peercert")["serialNumber"])


async def test_the_first_bytes_of_tls_may_come_one_at_a_time(server: Pair, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.pem)
    come, leave = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(come, leave, server_hostname="localhost")
    async with port_with(server.server()) as port:
        reader, writer = await port.raw()
        async with asyncio.timeout(10):
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    for byte in leave.read():
                        writer.write(bytes((byte,)))
                        await asyncio.sleep(0)
                    come.write(await reader.read(1 << 16))
        client.write(REMOTING)
        writer.write(leave.read())
        await until(lambda: port.echoes and port.echoes[0].got == len(REMOTING))
        await closed(writer)
        await until(port.echoes[0].lost.is_set)


async def test_more_bytes_than_memory_should_hold_pass_both_ways_at_the_readers_pace(
    server: Pair, authority: Authority
) -> None:
    size = 24 << 20
    async with port_with(server.server()) as port:
        reader, writer = await port.dial(authority)

        async def fill() -> None:
            writer.write(REMOTING)
            for _ in range(size // (1 << 16)):
                writer.write(b"x" * (1 << 16))
                await writer.drain()

        filling = asyncio.create_task(fill())
        await until(lambda: port.echoes and port.echoes[0].paused, 20)
        held = port.echoes[0].got
        assert held < size
        got = 0
        async with asyncio.timeout(40):
            while got < size + len(REMOTING):
                got += len(await reader.read(1 << 20))
        await filling
        await closed(writer)


async def test_who_ends_his_direction_still_gets_what_was_on_its_way(server: Pair, authority: Authority) -> None:
    """As Java's and Go's clients do, an end is said in TLS."""
    context = ssl.create_default_context(cafile=authority.pem)
    async with port_with(server.server()) as port:

        def talk() -> bytes:
            with (
                socket.create_connection(("127.0.0.1", port.number), timeout=10) as raw,
                context.wrap_socket(raw, server_hostname="localhost") as client,
            ):
                client.sendall(REMOTING + b"last words")
                answer = client.recv(100)
                client.unwrap().close()
                return answer

        assert await asyncio.to_thread(talk) == REMOTING + b"last words"
        await until(port.echoes[0].lost.is_set)
        await until(lambda: not port.acceptor.connections)


async def test_a_handshake_that_stalls_ends_and_keeps_nobody_waiting(
    server: Pair, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with port_with(server.server()) as port:
        monkeypatch.setattr(tls, "HANDSHAKE_S", 1.0)
        stalled = [await port.raw() for _ in range(50)]
        for _, writer in stalled:
            writer.write(b"\x16\x03\x01")
        await until(lambda: port.door.handshakes == 50)
        _, writer = await port.dial(authority)
        await closed(writer)
        for reader, other in stalled:
            await ends(reader)
            await closed(other)
        assert port.door.handshakes == 0
    assert sum("tls_refused" in line and "longer than 1 s" in line for line in caplog.messages) == 50


async def test_handshakes_beyond_the_most_end_the_oldest_one(
    server: Pair, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(tls, "MOST_HANDSHAKES", 3)
    async with port_with(server.server()) as port:
        stalled = []
        for count in range(1, 4):
            stalled.append(await port.raw())
            stalled[-1][1].write(b"\x16\x03\x01")
            await until(lambda count=count: port.door.handshakes == count)
        _, writer = await port.dial(authority)
        await ends(stalled[0][0])
        assert port.door.handshakes == 2
        await closed(writer)
        for _, other in stalled:
            await closed(other)
    assert any("tls_refused" in line and "3 handshakes are under way" in line for line in caplog.messages)


@pytest.mark.parametrize("bytes_", [b"\x16\x03\x01\x00\x05hello", b"\x16\x03" + b"\xff" * 400], ids=["short", "long"])
async def test_bytes_that_only_begin_as_tls_does_end_the_connection(
    server: Pair, bytes_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with port_with(server.server()) as port:
        reader, writer = await port.raw()
        writer.write(bytes_)
        await ends(reader)
        await closed(writer)
        assert port.door.handshakes == 0
    assert any("tls_refused" in line for line in caplog.messages)


async def test_bytes_that_are_no_tls_behind_the_handshake_end_the_connection(
    server: Pair, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with port_with(server.server()) as port:
        _, writer = await port.dial(authority)
        writer.write(REMOTING)
        await until(lambda: port.echoes)
        os.write(writer.get_extra_info("socket").fileno(), b"this is no record of TLS at all")
        await until(port.echoes[0].lost.is_set)
        await closed(writer)
    assert any("tls_broken" in line for line in caplog.messages)


async def test_damaged_records_of_tls_end_their_connection_and_nothing_else(
    server: Pair, authority: Authority, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's first words, with bytes changed, doubled, cut off or put in. Nothing fails in the server's loop."""
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.5)
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    context = ssl.create_default_context(cafile=authority.pem)
    leave = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), leave, server_hostname="localhost").do_handshake()
    hello = leave.read()
    async with port_with(server.server()) as port:

        async def attack(words: bytes) -> None:
            reader, writer = await port.raw()
            writer.write(words)
            if chance.random() < 0.5:
                writer.write_eof()
            await ends(reader)
            await closed(writer)

        for _ in range(4):
            await asyncio.gather(*(attack(hello[:2] + damaged(hello[2:], chance)) for _ in range(50)))
        assert port.door.handshakes == 0
        _, writer = await port.dial(authority)
        await closed(writer)
    assert failures == []


def damaged(words: bytes, chance: random.Random) -> bytes:
    made = bytearray(words)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made))
        match chance.randrange(4):
            case 0:
                made[at] = chance.randrange(256)
            case 1:
                made[at:at] = chance.randbytes(chance.randint(1, 40))
            case 2:
                made = made[: at + 1]
            case _:
                made += made[at:]
    return bytes(made)


async def test_tls_within_tls_is_refused(server: Pair, authority: Authority) -> None:
    async with port_with(server.server()) as port:
        reader, writer = await port.dial(authority)
        writer.write(b"\x16\x03\x01")
        await ends(reader)
        await closed(writer)


async def test_changed_files_are_taken_by_new_connections_and_old_ones_go_on(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    live = Pair(str(tmp_path / "live.pem"), str(tmp_path / "live.key"))
    first, second = authority.issue("first"), authority.issue("second")

    def put(pair: Pair) -> None:
        shutil.copyfile(pair.cert, live.cert)
        shutil.copyfile(pair.key, live.key)

    put(first)
    async with port_with(live.server(tls_reload_interval_ms=20)) as port:
        watching = asyncio.create_task(port.door.watch())
        reader, writer = await port.dial(authority)
        before = serial_of(writer)
        put(second)
        await until(lambda: any("tls_reloaded" in line for line in caplog.messages))
        _, another = await port.dial(authority)
        assert serial_of(another) != before
        writer.write(REMOTING)
        async with asyncio.timeout(10):
            assert await reader.readexactly(len(REMOTING)) == REMOTING
        for each in (writer, another):
            await closed(each)
        watching.cancel()
        await asyncio.wait((watching,))


def spoil(pair: Pair, how: str, authority: Authority) -> None:
    if how == "gone":
        Path(pair.cert).unlink()
    elif how == "broken":
        Path(pair.cert).write_text("-----BEGIN CERTIFICATE-----\nhalf of it", encoding="utf-8")
    else:
        shutil.copyfile(authority.issue("second").key, pair.key)


@pytest.mark.parametrize("how", ["gone", "broken", "another key"])
async def test_files_that_cannot_be_used_keep_the_certificate_before_and_are_logged_once(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    live = Pair(str(tmp_path / "live.pem"), str(tmp_path / "live.key"))
    first = authority.issue("first")
    shutil.copyfile(first.cert, live.cert)
    shutil.copyfile(first.key, live.key)
    async with port_with(live.server()) as port:
        spoil(live, how, authority)
        for _ in range(3):
            await port.door.look()
        assert sum("tls_reload_failed" in line for line in caplog.messages) == 1
        _, writer = await port.dial(authority)
        await closed(writer)
        shutil.copyfile(first.cert, live.cert)
        shutil.copyfile(first.key, live.key)
        await port.door.look()
        _, writer = await port.dial(authority)
        await closed(writer)


async def test_openssl_says_why_it_was_refused_and_what_was_agreed_on(server: Pair, authority: Authority) -> None:
    """The server's alert reaches the client, and gRPC's protocol is offered in ALPN."""
    settings = server.server(
        "enforcing", tls_server_need_client_auth="require", tls_server_trust_cert_path=authority.pem
    )
    client = authority.issue("client")

    def asked(port: Port, *more: str) -> str:
        command = (
            "s_client", "-connect", f"127.0.0.1:{port.number}", "-CAfile", authority.pem, "-verify_return_error",
            "-alpn", "h2", *more,
        )  # fmt: skip
        done = subprocess.run(
            ["openssl", *command], input=REMOTING, capture_output=True, timeout=20, check=False
        )  # fmt: skip
        return (done.stdout + done.stderr).decode(errors="replace")

    async with port_with(settings) as port:
        without = await asyncio.to_thread(asked, port, "-ign_eof")
        with_one = await asyncio.to_thread(asked, port, "-cert", client.cert, "-key", client.key)
        old = await asyncio.to_thread(asked, port, "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0")
    assert "alert certificate required" in without
    assert "ALPN protocol: h2" in with_one
    assert "TLSv1.3" in with_one
    assert "alert protocol version" in old


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tls_server_mode": "on"}, "tls_server_mode is disabled, permissive, enforcing"),
        ({"tls_server_mode": "enforcing"}, "needs tls_server_cert_path"),
        ({"tls_server_need_client_auth": "yes"}, "tls_server_need_client_auth is none, optional, require"),
        ({"tls_server_cert_path": "c", "tls_server_need_client_auth": "require"}, "needs tls_server_trust_cert_path"),
        (
            {"tls_server_cert_path": "c", "tls_server_need_client_auth": "require", "tls_server_trust_cert_path": "a"},
            "needs tls_server_mode=enforcing",
        ),
        ({"tls_server_key_path": "k"}, "tls_server_key_path needs tls_server_cert_path"),
        ({"tls_reload_interval_ms": 0}, "tls_reload_interval_ms must be more than 0"),
    ],
)
def test_settings_that_cannot_work_together_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        TlsServerSettings(**settings).validate_tls_server()


def test_the_password_of_a_key_is_shown_nowhere() -> None:
    config = BrokerConfig(tls_server_cert_path="c.pem", tls_server_key_password="hidden word")
    lives = LiveSettings(config)
    assert lives.values()["tls_server_key_password"] == "***"
    assert lives.rocketmq_values()["tls.server.keyPassword"] == "***"
    with pytest.raises(ConfigError) as differing:
        load(BrokerConfig, overrides={"tls.server.keyPassword": "hidden", "tls_server_key_password": "word"}, env={})
    assert "hidden" not in str(differing.value)
    with pytest.raises(ConfigError) as wrong:
        load(BrokerConfig, overrides={"tls_server_key_password": 1234}, env={})
    assert "1234" not in str(wrong.value)


@pytest.mark.parametrize("kind", [BrokerConfig, NamesrvConfig])
def test_rocketmqs_names_are_understood_in_its_own_files(tmp_path: Path, kind: Any) -> None:
    file, unused = tmp_path / "server.conf", list[str]()
    file.write_text(
        "tls.server.mode=enforcing\ntls.server.certPath=/c.pem\ntls.server.keyPath=/k.pem\n"
        "tls.server.need.client.auth=require\ntls.server.trustCertPath=/ca.pem\ntls.server.authClient=true\n"
        "tls.test.mode.enable=false\ntls.enable=true\ntls.client.trustCertPath=/ca.pem\n",
        encoding="utf-8",
    )
    config = load(kind, file=file, env={}, unused=unused.append)
    assert (config.only_tls, config.serves_tls, config.dials_tls) == (True, True, True)
    assert config.tls_server_need_client_auth == "require"
    assert (config.tls_server_key_path, config.tls_server_trust_cert_path) == ("/k.pem", "/ca.pem")
    assert unused == ["tls.server.authClient", "tls.test.mode.enable"]
