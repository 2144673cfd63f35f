"""A group's retry topic, found at every broker soon after it was made there.

Brokers make the topic with the first heartbeat of a group and tell their name servers at once, but members read routes
every 30 s only (RocketMQ: ``pollNameServerInterval``). Whoever read the route in between would leave the retries of a
broker without an owner for so long; RocketMQ's clients do.
"""

import asyncio
import logging

from dejamq_proto.codes import DejamqError

from dejamq.routes import Routes

log = logging.getLogger("dejamq.consumer")

PAUSES = (0.1, 0.3, 1.0, 3.0)
"""Before each further look, in units of ``reconnect_interval_ms``. Then the ordinary reading of routes has to do."""


class RetryRoute:
    """Owned by the event loop. ``addresses`` of brokers that acknowledged a heartbeat gather here."""

    def __init__(self, routes: Routes, topic: str) -> None:
        self._routes, self._topic = routes, topic
        self._addresses: set[str] = set()

    def connected(self, address: str) -> None:
        """This broker has the topic now, or will never make it."""
        self._addresses.add(address)

    def missing(self) -> set[str]:
        """Addresses of such brokers that the topic's route does not name yet."""
        route = self._routes.known(self._topic)
        if route is None:
            return set(self._addresses)
        named = {queues.broker_name for queues in route.queues}
        return self._addresses - {one for name in named for one in route.addresses.get(name, {}).values()}

    async def complete(self, unit_s: float) -> bool:
        """Read the route until it names every broker, a few times. Whether it changed."""
        before = self._routes.known(self._topic)
        for pause in PAUSES:
            if not self.missing():
                break
            await asyncio.sleep(pause * unit_s)
            try:
                await self._routes.refresh(self._topic)
            except DejamqError as error:  # not there yet, or the name server is away: the next look tells
                log.debug("retry_route_unknown topic=%s reason=%s", self._topic, error)
        return self._routes.known(self._topic) != before
