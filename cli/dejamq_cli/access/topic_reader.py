"""Reading a topic as it lies in its queues, without a group: nothing is committed and nobody is disturbed."""

import asyncio
import heapq
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from dejamq import MessageQueue, ReceivedMessage
from dejamq.net.broker import BrokerLink
from dejamq.net.namesrv import NameServerLink
from dejamq.net.routes import TopicRoute
from dejamq.receiving.received import receive
from dejamq.values.config import parse_addresses
from dejamq_proto.account import account_of_environment
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, error_for
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.journal.writer import new_boot_id
from dejamq_proto.names import TOOLS_GROUP
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.wire.tls import ClientTls

from dejamq_cli.terminal.output import say

TIMEOUT_MS = 3_000
IDLE_S, AWAY_S = 0.2, 2.0
ROUTE_S = 5.0
MESSAGES_A_PULL = 256

Start = Callable[[BrokerLink, MessageQueue], Coroutine[Any, Any, int]]


class AnonymousClient:
    """A client of no group, which asks."""

    def __init__(self) -> None:
        self._boot_id, self._seq = new_boot_id(), 0

    def caller(self, seq: int = 0) -> Caller:
        self._seq += 1
        return Caller(client_id=f"dejamq-cli@{self._boot_id}", boot_id=self._boot_id, seq=seq or self._seq)


@dataclass
class ReadPlace:
    """Where the reading of one queue has come to; ``end`` is where it ends unless it follows."""

    link: BrokerLink
    queue: MessageQueue
    queue_offset: int
    end: int
    pulled: list[ReceivedMessage] = field(default_factory=list)
    away_until: float = 0
    """Monotonic time before which a broker that did not answer is not asked again."""


class TopicReading:
    """``async with``; ``messages`` may be iterated once. ``silent`` are the brokers that did not answer."""

    def __init__(self, namesrv: str, topic: str, start: Start) -> None:
        self.silent: dict[str, DejamqError] = {}
        self._topic, self._start, self._reader = topic, start, AnonymousClient()
        self._tls, self._account = ClientTls.from_environment(), account_of_environment()
        self._names = NameServerLink(
            parse_addresses(namesrv), self._reader, timeout_ms=TIMEOUT_MS, tls=self._tls, account=self._account
        )
        self._links: dict[str, BrokerLink] = {}
        self._places: dict[MessageQueue, ReadPlace] = {}

    async def __aenter__(self) -> "TopicReading":
        """Raises RouteNotFound for a topic that nobody has, BrokerUnavailable without a name server."""
        try:
            await self._look_for_queues()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        for link in self._links.values():
            await link.close()
        await self._names.close()

    async def messages(self, *, follow: bool) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages from the start to the present end, by store time; with ``follow`` for ever.

        While it follows, a broker that goes away is waited for, and queues that are new are read from their beginning.
        """
        async for message in self._stored():
            yield message
        looked = time.monotonic()
        while follow:
            round_ = [message for place in list(self._places.values()) for message in await self._more(place)]
            for message in sorted(round_, key=_when):
                yield message
            if not round_:
                await asyncio.sleep(IDLE_S)
            if time.monotonic() > looked + ROUTE_S:
                looked = time.monotonic()
                await self._look_again()

    async def _stored(self) -> AsyncIterator[ReceivedMessage]:
        """Queue by queue each in its order, all of them merged by time; one pull a queue is in memory."""
        waiting: list[tuple[tuple[int, int], int, ReadPlace]] = []
        for number, place in enumerate(self._places.values()):
            await self._fill(place)
            if place.pulled:
                waiting.append((_when(place.pulled[0]), number, place))
        heapq.heapify(waiting)
        while waiting:
            _, number, place = heapq.heappop(waiting)
            yield place.pulled.pop(0)
            if not place.pulled:
                await self._fill(place)
            if place.pulled:
                heapq.heappush(waiting, (_when(place.pulled[0]), number, place))

    async def _fill(self, place: ReadPlace) -> None:
        """Pull until there is a message or the end; an answer without messages may still move on."""
        while not place.pulled and place.queue_offset < place.end:
            before = place.queue_offset
            try:
                place.pulled = [one for one in await _pull(place) if one.queue_offset < place.end]
            except (ConnectionError, TimeoutError) as error:
                self._missed(place, error)
                return
            if place.queue_offset == before:
                return

    async def _more(self, place: ReadPlace) -> list[ReceivedMessage]:
        if time.monotonic() < place.away_until:
            return []
        try:
            found = await _pull(place)
        except (ConnectionError, TimeoutError) as error:
            self._missed(place, error)
            place.away_until = time.monotonic() + AWAY_S
            return []
        if self.silent.pop(place.queue.broker_name, None):
            say(f"{place.queue.broker_name} answers again")
        return found

    def _missed(self, place: ReadPlace, error: Exception) -> None:
        name = place.queue.broker_name
        if name not in self.silent:
            self.silent[name] = error if isinstance(error, DejamqError) else BrokerUnavailable(f"{name}: {error}")

    async def _look_again(self) -> None:
        try:
            await self._look_for_queues(self._from_beginning)
        except DejamqError:
            pass  # what is known goes on; the next look may find more

    async def _look_for_queues(self, start: Start | None = None) -> None:
        route = TopicRoute.read(self._topic, await self._names.get_route(self._topic))
        new = [queue for queue in route.subscribe_queues() if queue not in self._places]
        for place in await asyncio.gather(*(self._begin(route, queue, start or self._start) for queue in new)):
            if place is not None:
                self._places[place.queue] = place

    async def _begin(self, route: TopicRoute, queue: MessageQueue, start: Start) -> ReadPlace | None:
        address = next(iter(route.addresses[queue.broker_name].values()))
        if address not in self._links:
            self._links[address] = BrokerLink(
                address, self._reader, timeout_ms=TIMEOUT_MS, tls=self._tls, account=self._account
            )
        link = self._links[address]
        try:
            end = await link.max_offset(queue.topic, queue.queue_id)
            return ReadPlace(link, queue, await start(link, queue), end)
        except (ConnectionError, TimeoutError) as error:
            self.silent.setdefault(queue.broker_name, BrokerUnavailable(str(error)))
            return None

    @staticmethod
    async def _from_beginning(link: BrokerLink, queue: MessageQueue) -> int:
        return await link.min_offset(queue.topic, queue.queue_id)


def _when(message: ReceivedMessage) -> tuple[int, int]:
    return message.store_timestamp_ms, message.queue_offset


async def _pull(place: ReadPlace) -> list[ReceivedMessage]:
    """The next messages; moves the place on, also over offsets that retention has removed."""
    request = PullRequest(
        group=TOOLS_GROUP, topic=place.queue.topic, queue_id=place.queue.queue_id, queue_offset=place.queue_offset,
        max_messages=MESSAGES_A_PULL, max_bytes=1 << 20,
    )  # fmt: skip
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            answer = await place.link.pull(request)
    except TimeoutError:
        raise BrokerUnavailable(f"no answer within {TIMEOUT_MS // 1000} s") from None
    if answer.code not in (Code.SUCCESS, Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY, Code.PULL_OFFSET_MOVED):
        raise error_for(answer.code, answer.remark)
    place.queue_offset = max(place.queue_offset, answer.next_offset)
    return receive(answer, place.queue, "")[1] if answer.code == Code.SUCCESS else []
