"""How a member looks for its group's retry topic at brokers that have just made it."""

import asyncio

from dejamq.net.routes import Routes
from dejamq.rebalance.membership import PAUSES, RetryRoute
from dejamq_proto.codes import RouteNotFound
from dejamq_proto.namesrv_pb2 import GetRouteResponse

TOPIC = "%RETRY%g"


class Source:
    """A name server that knows more brokers of the topic at each question."""

    def __init__(self, *answers: str) -> None:
        self._answers, self.questions = answers, 0

    async def get_route(self, topic: str) -> GetRouteResponse:
        names = self._answers[min(self.questions, len(self._answers) - 1)]
        self.questions += 1
        if not names:
            raise RouteNotFound("nobody has it")
        answer = GetRouteResponse()
        for name in names:
            answer.queues.add(broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=6)
            answer.brokers.add(broker_name=name).addresses[0] = f"{name}:1"
        return answer


def looking(*answers: str) -> tuple[Source, Routes, RetryRoute]:
    """For the topic at brokers ``a`` and ``b``, both connected."""
    source = Source(*answers)
    routes = Routes(source, refresh_interval_ms=1000)
    found = RetryRoute(routes, TOPIC)
    for address in ("a:1", "b:1"):
        found.connected(address)
    return source, routes, found


async def test_the_route_is_read_until_it_names_every_broker_that_answered_a_heartbeat() -> None:
    source, routes, found = looking("", "a", "ab")
    assert await found.complete(0)
    assert source.questions == 3
    assert found.missing() == set()
    assert {queue.broker_name for queue in await routes.subscribe_queues(TOPIC)} == {"a", "b"}


async def test_a_route_that_names_them_all_is_not_read_again() -> None:
    source, routes, found = looking("ab")
    await routes.refresh(TOPIC)
    assert not await found.complete(0)
    assert source.questions == 1


async def test_a_broker_that_never_makes_the_topic_is_asked_for_a_few_times_only() -> None:
    source, _, found = looking("a")
    assert await found.complete(0)
    assert source.questions == len(PAUSES)
    assert found.missing() == {"b:1"}


async def test_members_that_look_at_one_time_ask_once_at_a_time() -> None:
    source, _, found = looking("", "ab")
    await asyncio.gather(found.complete(0), found.complete(0))
    assert source.questions == 2
