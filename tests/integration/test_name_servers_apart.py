"""Name servers that disagree: a broker cut off from one of them, and clients that believe one or the other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_wire import running, until
from dejamq.net.namesrv import NameServerLink
from dejamq_lab.cluster.relay import DOWN, UP, Relay
from dejamq_lab.cluster.rpc_control import routed_brokers
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import RouteNotFound
from dejamq_proto.common_pb2 import Caller

TOPIC = "TBW102"
"""Every broker that may create topics has it."""


class Somebody:
    def caller(self, seq: int = 0) -> Caller:
        return Caller(client_id="c", boot_id="b", seq=seq)


@asynccontextmanager
async def name_server(**settings: Any) -> AsyncIterator[tuple[NameServer, str]]:
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0", **settings))
    address = await server.start()
    try:
        yield server, address
    finally:
        await server.close()


@asynccontextmanager
async def relayed(address: str) -> AsyncIterator[Relay]:
    relay = Relay(lambda: address)
    await relay.start("127.0.0.1")
    try:
        yield relay
    finally:
        await relay.close()


async def knows(namesrv: str) -> bool:
    return await routed_brokers(namesrv, TOPIC) == {"broker-a"}


async def forgot(namesrv: str) -> bool:
    return not await routed_brokers(namesrv, TOPIC)


async def test_a_broker_whose_link_breaks_is_gone_at_one_name_server_and_kept_at_the_other(tmp_path: Path) -> None:
    async with (
        name_server() as (_, first),
        name_server() as (_, second),
        relayed(first) as link,
        running(tmp_path, namesrv=f"{link.address};{second}", namesrv_reconnect_ms=20),
    ):
        assert await until(lambda: knows(first))
        link.cut()
        assert await until(lambda: forgot(first))
        assert await knows(second)
        link.heal()
        assert await until(lambda: knows(first))


async def test_a_broker_of_which_nothing_is_heard_expires_at_that_name_server_only(tmp_path: Path) -> None:
    quick = {"broker_timeout_ms": 700, "scan_not_active_broker_interval_ms": 50}
    often = {"register_name_server_period_ms": 50, "namesrv_reconnect_ms": 20}
    async with (
        name_server(**quick) as (_, first),
        name_server() as (_, second),
        relayed(first) as link,
        running(tmp_path, namesrv=f"{link.address};{second}", **often),
    ):
        assert await until(lambda: knows(first))
        link.lose(UP, DOWN)
        assert await until(lambda: forgot(first))
        assert await knows(second)
        link.heal()
        assert await until(lambda: knows(first))


async def test_a_client_believes_its_name_server_whatever_others_know_until_that_is_lost(tmp_path: Path) -> None:
    async with name_server() as (server, empty), name_server() as (_, full), running(tmp_path, namesrv=full):
        link = await beginning_at(empty, full)
        for _ in range(3):
            with pytest.raises(RouteNotFound):
                await link.get_route(TOPIC)
        assert link.address == empty
        await server.close()
        answer = await link.get_route(TOPIC)
        assert [broker.broker_name for broker in answer.brokers] == ["broker-a"]
        assert link.address == full
        await link.close()


async def beginning_at(wanted: str, other: str) -> NameServerLink:
    """Clients begin at any of their name servers: one that began at this one."""
    while True:
        link = NameServerLink([wanted, other], Somebody(), timeout_ms=8000)
        if link.address == wanted:
            return link
