"""The health probe of the containers, against servers that are ready, not ready, and not there."""

from __future__ import annotations

import pytest
from dejamq_proto import probe
from dejamq_proto.serving.server import Server


async def test_a_server_is_healthy_only_between_ready_and_stop(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server([])
    address = await server.start("127.0.0.1:0")
    assert not await probe.probe([address])
    await server.ready()
    assert await probe.probe([address])
    await server.stop(0)
    assert not await probe.probe([address])
    states = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert states == ["NOT_SERVING", "SERVING", "UNAVAILABLE"]


async def test_of_several_named_servers_every_one_must_serve(unused_tcp_port: int) -> None:
    server = Server([])
    address = await server.start("127.0.0.1:0")
    await server.ready()
    assert not await probe.probe([address, f"127.0.0.1:{unused_tcp_port}"])
    await server.stop(0)


async def test_without_a_name_one_of_the_default_ports_is_enough(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    server = Server([])
    address = await server.start("127.0.0.1:0")
    await server.ready()
    monkeypatch.setattr(probe, "DEFAULT_ADDRESSES", (f"127.0.0.1:{unused_tcp_port}", address))
    assert await probe.probe([])
    await server.stop(0)


@pytest.mark.parametrize("argument", ["--help", "localhost", ":9876", "host:port"])
def test_what_is_no_address_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argument: str
) -> None:
    monkeypatch.setattr("sys.argv", ["probe", argument])
    assert probe.main() == 2
    assert capsys.readouterr().err == f"dejamq-probe: {argument!r} is not HOST:PORT\n"
