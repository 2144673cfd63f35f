"""Asking name servers for routes: one at a time, kept until it fails, then the next (RocketMQ: NettyRemotingClient)."""

import logging
import random
from collections.abc import Sequence
from typing import Any

import grpc.aio
from dejamq_proto.calling import call, dial
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, RouteNotFound
from dejamq_proto.namesrv_pb2 import GetRouteRequest, GetRouteResponse
from dejamq_proto.namesrv_pb2_grpc import NameServerStub

from dejamq.identity import Identity

log = logging.getLogger("dejamq")

ANSWERS = frozenset({Code.TOPIC_NOT_EXIST, Code.NOT_FOUND_TOPIC, Code.NO_PERMISSION, Code.INVALID_PARAMETER})
"""Codes that a name server decided on: another one is not asked."""


class NameServerLink:
    """Several name servers that know nothing of each other; this client believes one of them.

    The order is shuffled once at each start (RocketMQ begins at a random index), so that clients spread over
    the name servers. Two clients may believe different ones for as long as those disagree: that is one way to
    two owners (R2).
    """

    def __init__(self, addresses: Sequence[str], identity: Identity, *, timeout_ms: float) -> None:
        self._addresses = tuple(random.sample(addresses, len(addresses)))
        self._identity, self._timeout_ms = identity, timeout_ms
        self._current = 0
        self._channels: dict[str, grpc.aio.Channel] = {}

    @property
    def address(self) -> str:
        """The name server that is believed at the moment."""
        return self._addresses[self._current]

    async def get_route(self, topic: str) -> GetRouteResponse:
        """The topic's route. Raises RouteNotFound when it knows none, BrokerUnavailable when none answers."""
        reasons = []
        for _ in self._addresses:
            address = self.address
            try:
                return await self._ask(topic, address)
            except DejamqError as error:
                if error.code in ANSWERS:
                    raise _explained(topic, address, error) from None
                reasons.append(str(error).rpartition(": ")[2])
                log.warning("namesrv_failed address=%s reason=%s", address, error)
                if address == self.address:  # another question may have moved on already
                    self._current = (self._current + 1) % len(self._addresses)
        raise BrokerUnavailable(
            f"no dejamq name server answers at {';'.join(self._addresses)} ({reasons[0]}); start one there with "
            "`dejamq serve namesrv`, or set namesrv= or DEJAMQ_NAMESRV (RocketMQ's speaks another protocol)",
            code=Code.NO_NAME_SERVER,
            definite=True,
        )

    async def _ask(self, topic: str, address: str) -> GetRouteResponse:
        if address not in self._channels:
            self._channels[address] = dial(address)
        stub: Any = NameServerStub(self._channels[address])
        request = GetRouteRequest(
            caller=self._identity.caller(), topic=topic, listener=address.rpartition(":")[0].strip("[]")
        )
        answer: GetRouteResponse = await call(stub.GetRoute, request, address=address, timeout_ms=self._timeout_ms)
        return answer

    async def close(self) -> None:
        """May be called twice.

        End the connections; a question under way fails.
        """
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close(None)


def _explained(topic: str, address: str, error: DejamqError) -> DejamqError:
    if error.code not in (Code.TOPIC_NOT_EXIST, Code.NOT_FOUND_TOPIC):
        return error
    return RouteNotFound(
        f"name server {address} knows no broker for topic {topic!r}; create the topic, or start a broker that "
        "may create topics (auto_create_topic_enable) and registers there"
    )
