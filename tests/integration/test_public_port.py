"""One public port for gRPC, remoting and fast frames: the first bytes tell, and everybody is known by his address."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from broker_wire import Wire, a_run, running, until
from dejamq import Message, Producer
from dejamq_broker.app import Broker
from dejamq_lab.cluster.ports import held_block, held_ports
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import ConfigError
from dejamq_proto.fast_pb2 import Hello, Welcome
from dejamq_proto.names import DIRECT
from dejamq_proto.probe import state_of
from dejamq_proto.records.record import decode
from dejamq_proto.remoting import requests as r
from dejamq_proto.remoting.frames import ONEWAY, encode
from dejamq_proto.remoting.header import Command
from dejamq_proto.serving import acceptor
from dejamq_proto.serving.server import Server
from dejamq_proto.wire.frame_stream import FrameStream
from remoting_wire import a_send, remoting


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


def address_of(broker: Broker, port: int) -> str:
    return f"{broker.address.rpartition(':')[0]}:{port}"


async def test_all_protocols_are_spoken_at_the_public_port_and_two_below_it(broker: Broker) -> None:
    for address in (broker.address, address_of(broker, broker.fast.port)):
        async with Wire(address) as wire:
            assert (await wire.send(a_run("t", [b"grpc"]))).code == 0
        async with remoting(address) as client:
            assert (await client.ask(r.SEND_MESSAGE_V2, b"remoting", **a_send())).code == 0
        host, _, port = address.rpartition(":")
        _, stream = await asyncio.get_running_loop().create_connection(FrameStream, host, int(port))
        stream.write(Hello(boot_id=broker.boot_id, method="/dejamq.v1.Send/SendStream").SerializeToString())
        assert Welcome.FromString(bytes(await stream.read())).code == 0
        stream.fail("enough")


async def test_a_grpc_client_of_the_public_port_is_known_by_its_own_address(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        assert (await wire.send(a_run("t", [b"x"]))).code == 0
        (through,) = broker.fast.acceptor.relayed.values()
        (raw,) = [broker.domain.store.record_at(0)]
        assert raw is not None
        host, port = decode(raw).born_host
        assert f"ipv4:{host}:{port}" == through
    await until(lambda: not broker.fast.acceptor.relayed)


async def test_a_client_that_has_gone_is_never_taken_for_this_machine() -> None:
    """gRPC begins calls that lie in its socket when their client has gone already."""
    door = acceptor.Acceptor()
    door.relay_began("ipv4:127.0.0.1:7", "ipv4:10.0.0.9:1")
    door.relay_ended("ipv4:127.0.0.1:7")
    assert door.true_peer("ipv4:127.0.0.1:7") == "ipv4:10.0.0.9:1"
    assert not door.was_relayed("ipv4:127.0.0.1:7")
    door.relay_began("ipv4:127.0.0.1:7", "ipv4:10.0.0.8:1")
    assert door.true_peer("ipv4:127.0.0.1:7") == "ipv4:10.0.0.8:1"


async def test_our_own_clients_dial_grpc_without_the_detour(tmp_path: Path) -> None:
    namesrv = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    address = await namesrv.start()
    with held_block(2, 0) as port:
        async with running(tmp_path, namesrv=address, listen=f"127.0.0.1:{port}") as broker:
            assert broker.site.advertised[DIRECT] == f"127.0.0.1:{port - 1}"
            async with Producer("pg", namesrv=address) as producer:
                await producer.send(Message("t", b"x"))
                assert broker.domain.store.record_at(0) is not None
                assert not broker.fast.acceptor.relayed
    await namesrv.close()


async def test_where_the_port_below_is_taken_clients_dial_the_public_one_which_a_later_start_has_again(
    tmp_path: Path,
) -> None:
    """gRPC's own listener is then at any port, and the next start's is at another one."""
    with held_block(2, 0) as port, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port - 1))
        other.listen()
        async with running(tmp_path, listen=f"127.0.0.1:{port}") as broker, Wire(broker.address) as wire:
            assert DIRECT not in broker.site.advertised
            assert (await wire.send(a_run("t", [b"x"]))).code == 0


@pytest.mark.parametrize("advertise", ["127.0.0.1:5", "127.0.0.1:5;inside=127.0.0.1:6"])
async def test_a_broker_that_is_reached_by_another_address_names_no_direct_one(tmp_path: Path, advertise: str) -> None:
    async with running(tmp_path, advertise=advertise) as broker:
        assert DIRECT not in broker.site.advertised


async def test_an_operator_says_where_grpc_is_reached_without_the_detour(tmp_path: Path) -> None:
    async with running(tmp_path, advertise="127.0.0.1:5;grpc:=127.0.0.1:6") as broker:
        assert (broker.address, broker.site.advertised) == ("127.0.0.1:5", {DIRECT: "127.0.0.1:6"})


async def test_bytes_may_come_one_at_a_time(broker: Broker) -> None:
    async with remoting(broker.address) as client:
        ext = {key: str(value) for key, value in a_send().items()}
        frame = encode(Command(code=r.SEND_MESSAGE_V2.code, flag=ONEWAY, ext=ext, body=b"x"))
        for at in range(len(frame)):
            client.writer.write(frame[at : at + 1])
            await asyncio.sleep(0)
            if at < 10:
                await asyncio.sleep(0.01)
        assert (await client.ask(r.SEND_MESSAGE_V2, b"y", **a_send())).ext["queueOffset"] == "1"


async def test_a_connection_that_says_nothing_is_ended(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "SILENT_S", 0.05)
    reader, writer = await asyncio.open_connection(*broker.address.split(":"))
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_health_is_asked_at_the_public_port_and_its_end_is_the_servers(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        assert await state_of(broker.address) == "SERVING"
        address = broker.address
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address.split(":"))


async def test_a_client_of_ipv4_at_a_listener_for_both_families_is_known_by_its_ipv4_address(tmp_path: Path) -> None:
    async with running(tmp_path, listen="[::]:0", advertise="127.0.0.1:0") as broker:
        async with Wire(broker.address) as wire, remoting(broker.address) as client:
            assert (await wire.send(a_run("t", [b"grpc"]))).code == 0
            assert (await client.ask(r.SEND_MESSAGE_V2, b"remoting", **a_send())).code == 0
            own = client.writer.get_extra_info("sockname")[:2]
        first = broker.domain.store.record_at(0)
        assert first is not None
        second = broker.domain.store.record_at(len(first))
        assert second is not None
        assert decode(first).born_host[0] == "127.0.0.1"
        assert decode(first).born_host[1] > 0
        assert decode(second).born_host == own


class Silent:
    """A gRPC server that answers a connection with more than anybody reads, and ends it."""

    def __init__(self, size: int, *, ends: bool) -> None:
        self._size, self._ends = size, ends
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        await reader.read(100)
        writer.write(b"x" * self._size)
        if self._ends:
            writer.close()

    async def close(self) -> None:
        self._server.close()
        for writer in self.writers:
            if not writer.is_closing():
                writer.transport.abort()


@pytest.mark.parametrize("ends", [True, False], ids=["gone", "alive"])
async def test_bytes_that_a_client_never_reads_end_its_connection(monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    monkeypatch.setattr(acceptor, "STUCK_S", 0.1)
    grpc, public = Silent(64 << 20, ends=ends), acceptor.Acceptor()
    port = await public.bind("127.0.0.1", 0)
    public.pass_to_grpc("127.0.0.1", await grpc.start())
    await public.listen()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"PRI * HTTP/2.0")
        await until(lambda: public.relayed)
        await until(lambda: not public.connections)
    assert not public.relayed
    public.close()
    await grpc.close()


async def test_a_client_that_reads_slowly_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "STUCK_S", 1.0)
    grpc, public, size = Silent(16 << 20, ends=True), acceptor.Acceptor(), 16 << 20
    port = await public.bind("127.0.0.1", 0)
    public.pass_to_grpc("127.0.0.1", await grpc.start())
    await public.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    writer.write(b"PRI * HTTP/2.0")
    got = 0
    async with asyncio.timeout(20):
        while chunk := await reader.read(1 << 16):
            got += len(chunk)
            await asyncio.sleep(0.01)
    assert got == size
    writer.close()
    public.close()
    await grpc.close()


@pytest.mark.parametrize("steps", range(5))
@pytest.mark.parametrize("said", [b"", b"PRI * HTTP/2.0"], ids=["silent", "gRPC"])
async def test_a_connection_that_is_just_arriving_ends_with_the_port(steps: int, said: bytes) -> None:
    """Accepting one takes the loop some steps, and the port may be closed between any two of them."""
    public = acceptor.Acceptor()
    port = await public.bind("127.0.0.1", 0)
    await public.listen()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(said)
        client.setblocking(False)
        for _ in range(steps):
            await asyncio.sleep(0)
        public.close()
        with suppress(ConnectionResetError):
            async with asyncio.timeout(5):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
    assert not public.connections


async def test_a_port_that_another_process_has_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot listen on {address}"):
            async with running(tmp_path, listen=address):
                pass


async def test_of_two_servers_that_start_at_one_port_at_one_moment_the_second_is_refused_in_one_line() -> None:
    with held_ports(1) as (port,):
        address, servers = f"127.0.0.1:{port}", (Server(()), Server(()))
        started = await asyncio.gather(*(one.start(address) for one in servers), return_exceptions=True)
        for one in servers:
            await one.stop(0)
    refused = [str(each) for each in started if isinstance(each, ConfigError)]
    assert (address in started, len(refused)) == (True, 1), started
    assert refused[0].startswith(f"cannot listen on {address}")
