"""Sends that wait for the route of their topic, and those that come while it is being learnt."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from dejamq import Message
from dejamq.net.routes import Routes, TopicRoute
from dejamq.sending.destinations import Destinations
from dejamq.sending.encoding import template
from dejamq.sending.sends import ONEWAY, Sends
from dejamq_proto.namesrv_pb2 import BrokerData, GetRouteResponse, QueueData


class OneBroker:
    """A name server that knows every topic."""

    async def get_route(self, topic: str) -> GetRouteResponse:
        queue = QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6)
        return GetRouteResponse(queues=[queue], brokers=[BrokerData(broker_name="a", addresses={0: "h:1"})])


def single(number: int) -> Sends:
    message, common = Message("t", b"x"), template("t", 0, None)
    return Sends(ONEWAY, 0.0, [message], [common], [100], [None], [], range(number, number + 1), [1e9])


async def test_a_send_that_comes_while_the_route_arrives_goes_behind_those_that_waited_for_it() -> None:
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
        tasks.append(asyncio.create_task(work, name=name))

    went: list[int] = []
    routes = Routes(OneBroker(), refresh_interval_ms=1000)
    instance: Any = SimpleNamespace(routes=routes, spawn=spawn)
    destinations = Destinations(
        instance,
        routed=lambda sends: went.extend(sends.call_ids),
        failed=lambda sends, error: went.append(-1),
    )

    def submit(number: int) -> None:
        went.extend(destinations.place(single(number)).call_ids)

    def at_the_change(route: TopicRoute) -> None:
        submit(2)

    routes.on_change.append(at_the_change)
    submit(1)
    await asyncio.gather(*tasks)
    submit(3)
    assert went == [1, 2, 3]
