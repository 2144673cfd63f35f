"""Connections to brokers that no route names any more."""

import asyncio
from typing import Any

from dejamq.net.instance import BrokerLinks, Instance
from dejamq.net.routes import TopicRoute
from dejamq.values.config import ClientConfig


class SlowLink:
    """A connection that takes its time to close."""

    def __init__(self) -> None:
        self.closing, self.end, self.heartbeats = 0, asyncio.Event(), Closed()

    async def close(self) -> None:
        self.closing += 1
        await self.end.wait()

    def break_sends(self, reason: str) -> None:
        pass


class Closed:
    open = False


async def test_a_connection_that_is_closing_is_not_closed_again_by_the_next_change() -> None:
    instance = Instance(ClientConfig(poll_name_server_interval_ms=1), role="producer")
    link: Any = SlowLink()
    instance.inspect().links["h:1"] = link
    instance._route_changed(TopicRoute("t"))
    while not link.closing:
        await asyncio.sleep(0.001)
    instance._route_changed(TopicRoute("t"))
    for _ in range(5):
        await asyncio.sleep(0.002)
    link.end.set()
    while instance.inspect().tasks:
        await asyncio.sleep(0.001)
    assert link.closing == 1
    assert instance.fatal is None
    assert not instance.inspect().links
    await instance.close()


async def test_a_connection_that_is_given_up_while_it_is_retired_harms_nobody() -> None:
    instance = Instance(ClientConfig(poll_name_server_interval_ms=1), role="producer")
    early, late = SlowLink(), SlowLink()
    links: dict[str, Any] = instance.inspect().links
    links |= {"h:1": early, "h:2": late}
    instance._route_changed(TopicRoute("t"))
    instance.reconnect("h:1", "it did not answer")  # before its time has come
    while not late.closing:
        await asyncio.sleep(0.001)
    instance.reconnect("h:2", "it did not answer")  # while it is being closed
    early.end.set()
    late.end.set()
    while instance.inspect().tasks:
        await asyncio.sleep(0.001)
    assert instance.fatal is None
    assert not instance.inspect().links
    await instance.close()


async def test_an_address_has_one_connection_until_it_is_given_up() -> None:
    dialed: list[str] = []

    def dial(address: str) -> Any:
        dialed.append(address)
        return SlowLink()

    spawned: list[Any] = []
    links: Any = BrokerLinks(dial, named=set, spawn=lambda work, name: spawned.append(work), idle_ms=1)
    first = links["h:1"]
    assert links["h:1"] is first
    assert links["h:2"] is not first
    assert links.give_up("h:1", "it did not answer")
    assert not links.give_up("h:3", "nobody ever called it")
    assert links["h:1"] is not first
    assert dialed == ["h:1", "h:2", "h:1"]
    for link in (first, *links.values()):
        link.end.set()
    await asyncio.gather(*spawned)
    await links.close()
    assert first.closing == 1  # it was closed when it was given up
