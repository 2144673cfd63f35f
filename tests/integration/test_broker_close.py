"""A start or a close that goes wrong half way: nothing goes on listening."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_wire import broker_config, dialled
from dejamq_broker.app import Broker
from dejamq_broker.base.streams import Streams
from dejamq_broker.replication.master import Replication
from dejamq_proto.probe import state_of
from dejamq_proto.serving.acceptor import Acceptor


class Trouble(Exception):
    """Something that nobody expects."""


def failing(*_: Any) -> Callable[..., Any]:
    raise Trouble


@pytest.mark.parametrize("part", [Streams, Replication])
async def test_a_part_that_cannot_be_closed_keeps_no_port_open(
    part: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "close", failing)
    broker = Broker(broker_config(tmp_path))
    await broker.start()
    addresses = sorted({broker.address, dialled(broker)})
    with pytest.raises(Trouble):
        await broker.close()
    assert set(await states(addresses)) == {"UNAVAILABLE"}


async def test_a_start_that_fails_when_grpc_serves_already_lets_go_of_its_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    def refuse(_: Acceptor, host: str, port: int) -> None:
        served.append(f"{host}:{port}")
        raise Trouble

    monkeypatch.setattr(Acceptor, "pass_to_grpc", refuse)
    with pytest.raises(Trouble):
        await Broker(broker_config(tmp_path)).start()
    assert await states(served) == ["UNAVAILABLE"]


async def states(addresses: list[str]) -> list[str]:
    """What a health check of each says."""
    return [await state_of(each, 2_000) for each in addresses]
