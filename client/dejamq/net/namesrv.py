"""Asking name servers for routes: one at a time, kept until it fails, then the next (RocketMQ: NettyRemotingClient)."""

import logging
import random
from collections.abc import Sequence
from typing import Any

import grpc.aio
from dejamq_proto.account import Account
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, RouteNotFound, error_for
from dejamq_proto.namesrv_pb2 import GetRouteRequest, GetRouteResponse, GetRoutesRequest, RouteAnswer
from dejamq_proto.namesrv_pb2_grpc import NameServerStub
from dejamq_proto.wire.calling import call, dial
from dejamq_proto.wire.tls import ClientTls

from dejamq.net.coalescing import OneCall
from dejamq.net.identity import Identity

log = logging.getLogger("dejamq")

ANSWERS = frozenset({Code.TOPIC_NOT_EXIST, Code.NOT_FOUND_TOPIC, Code.NO_PERMISSION, Code.INVALID_PARAMETER})
"""Codes that a name server decided on: another one is not asked."""


class NameServerLink:
    """Several name servers that know nothing of each other; this client believes one of them.

    The order is shuffled once at each start (RocketMQ begins at a random index), so that clients spread over
    the name servers. Two clients may believe different ones for as long as those disagree: that is one way to
    two owners (R2).
    """

    def __init__(
        self, addresses: Sequence[str], identity: Identity, *, timeout_ms: float, tls: ClientTls | None = None,
        account: Account | None = None,
    ) -> None:  # fmt: skip
        """``tls``: None for plain connections. ``account`` signs calls."""
        self._account = account
        self._addresses = tuple(random.sample(addresses, len(addresses)))
        self._identity, self._timeout_ms, self._tls = identity, timeout_ms, tls
        self._current = 0
        self._channels: dict[str, tuple[grpc.aio.Channel, Any]] = {}
        self._questions: OneCall[str, GetRouteResponse] = OneCall(self._routes, self._route)

    @property
    def address(self) -> str:
        """The name server that is believed at the moment."""
        return self._addresses[self._current]

    async def get_route(self, topic: str) -> GetRouteResponse:
        """The topic's route. Raises RouteNotFound when it knows none, BrokerUnavailable when none answers.

        Questions of one turn of the loop are one call. A client reads the routes of all its topics every 30 s, and a
        call on a silent connection costs both ends as much as a hundred routes.
        """
        return await self._questions.ask(topic)

    async def _route(self, topic: str) -> GetRouteResponse:
        (answer,) = await self._routes([topic])
        if isinstance(answer, DejamqError):
            raise answer
        return answer

    async def _routes(self, topics: Sequence[str]) -> list[GetRouteResponse | DejamqError]:
        """The answer for each topic by the first name server that answers at all."""
        reasons = []
        for _ in self._addresses:
            address = self.address
            try:
                return await self._ask(topics, address)
            except DejamqError as error:
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

    async def _ask(self, topics: Sequence[str], address: str) -> list[GetRouteResponse | DejamqError]:
        """Raises what says that it is not able to answer; another name server may be."""
        if len(topics) == 1:
            return [await self._ask_for_one(topics[0], address)]
        listener = address.rpartition(":")[0].strip("[]")
        request = GetRoutesRequest(caller=self._identity.caller(), topics=topics, listener=listener)
        try:
            told = (await self._call(self._stub(address).GetRoutes, request, address)).answers
        except DejamqError as error:
            if error.code not in (Code.REQUEST_CODE_NOT_SUPPORTED, Code.NO_PERMISSION):
                raise
            # it is older than this client, or one of the topics is not for this user
            return [await self._ask_for_one(topic, address) for topic in topics]
        if len(told) != len(topics):
            raise DejamqError(f"{address} gave {len(told)} answers to {len(topics)} questions", definite=True)
        return [_answer(topic, address, each) for topic, each in zip(topics, told, strict=True)]

    async def _ask_for_one(self, topic: str, address: str) -> GetRouteResponse | DejamqError:
        listener = address.rpartition(":")[0].strip("[]")
        request = GetRouteRequest(caller=self._identity.caller(), topic=topic, listener=listener)
        try:
            route: GetRouteResponse = await self._call(self._stub(address).GetRoute, request, address)
        except DejamqError as error:
            if error.code in ANSWERS:
                return _explained(topic, address, error)
            raise
        return route

    async def _call(self, method: Any, request: Any, address: str) -> Any:
        return await call(method, request, address=address, timeout_ms=self._timeout_ms)

    def _stub(self, address: str) -> Any:
        if address not in self._channels:
            channel = dial(address, self._tls, self._account)
            self._channels[address] = channel, NameServerStub(channel)
        return self._channels[address][1]

    async def close(self) -> None:
        """End the connections; a question under way is cancelled. May be called twice."""
        await self._questions.close()
        channels, self._channels = self._channels, {}
        for channel, _ in channels.values():
            await channel.close(None)


def _answer(topic: str, address: str, told: RouteAnswer) -> GetRouteResponse | DejamqError:
    """One of several; a code that no name server decides on is a failure of this question alone."""
    if told.code == Code.SUCCESS:
        return told.route
    return _explained(topic, address, error_for(told.code, told.remark))


def _explained(topic: str, address: str, error: DejamqError) -> DejamqError:
    if error.code not in (Code.TOPIC_NOT_EXIST, Code.NOT_FOUND_TOPIC):
        return error
    return RouteNotFound(
        f"name server {address} knows no broker for topic {topic!r}; create the topic, or start a broker that "
        "may create topics (auto_create_topic_enable) and registers there"
    )
