"""A cluster that is asked by plain code: routes, ends of queues, messages. No group is joined.

RocketMQ makes a group that pulls and is unknown, so pulls name the group of its own tools, which every broker has.
A pull outside of a queue makes a broker store an event about it (``OFFSET_MOVED_EVENT``): ask for the ends first.

Source: RocketMQ ``PullMessageProcessor``, ``AdminBrokerProcessor``.
"""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, RouteNotFound, SendTimeout
from dejamq_proto.names import MASTER_ID, PERM_READ, TOOLS_GROUP
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import Fields, RequestKind
from dejamq_proto.remoting_client import RemotingClient, connect
from dejamq_proto.wire.tls import ClientTls

from dejamq_analytics.topics.options import ReadOptions
from dejamq_analytics.topics.places import TopicQueue

AGAIN_S = 0.2
BUSY = (Code.SYSTEM_BUSY, Code.SERVICE_NOT_AVAILABLE, Code.FLOW_CONTROL)
"""Codes by which a server asks to come again, and a slave of RocketMQ 5 refuses pulls."""
PULLED = (Code.SUCCESS, Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY, Code.PULL_OFFSET_MOVED)
Answer = TypeVar("Answer")


class OffsetRange(NamedTuple):
    """``low`` is the first offset that is still there, ``high`` the one that the next message gets.

    A slave may not know of the newest messages: then ``of_master`` is false.
    """

    low: int
    high: int
    of_master: bool


class Pulled(NamedTuple):
    """``records`` one after the other; none where ``found`` is false. The broker would go on at ``next``."""

    found: bool
    next: int
    records: bytes


class ServerConnections:
    """One connection to each server, made when it is first asked. Used inside of a ``with``, by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._brokers: dict[str, dict[int, str]] = {}
        self._connections: dict[str, RemotingClient] = {}
        self._connecting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections. A second call does nothing."""
        connections, self._connections = list(self._connections.values()), {}
        if connections:
            self._runner.run(_closed(connections))
        self._runner.close()

    def queues(self) -> list[TopicQueue]:
        """All queues that may be read. Raises RouteNotFound for a topic that no name server knows."""
        routes = self._all(self._route(topic) for topic in self._options.topics)
        return sorted(
            TopicQueue(topic, data.broker_name, queue_id)
            for topic, route in zip(self._options.topics, routes, strict=True)
            for data in route.queue_datas
            if data.perm & PERM_READ and data.broker_name in self._brokers
            for queue_id in range(data.read_queue_nums)
        )

    def ends(self, queues: Sequence[TopicQueue]) -> dict[TopicQueue, OffsetRange]:
        return dict(zip(queues, self._all(map(self._ends, queues)), strict=True))

    def at_time(self, queues: Sequence[TopicQueue], timestamp_ms: int) -> dict[TopicQueue, int]:
        """The offset of the first message that was stored then or later; the end of a queue without one."""
        return dict(zip(queues, self._all(self._at_time(one, timestamp_ms) for one in queues), strict=True))

    def pull(self, queue: TopicQueue, offset: int, most: int) -> Pulled:
        """Raises DejamqError where the broker refuses."""
        fields = requests.PullMessage(
            consumer_group=TOOLS_GROUP, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
            max_msg_nums=min(most, self._options.messages_a_pull), sys_flag=requests.HAS_SUBSCRIPTION,
            subscription="*", expression_type="TAG",
        )  # fmt: skip
        answer, _ = self._runner.run(self._of_broker(queue, requests.PULL_MESSAGE, fields, PULLED))
        found = answer.code == Code.SUCCESS
        return Pulled(found, int(answer.ext.get("nextBeginOffset", offset)), answer.body if found else b"")

    def commit(self, group: str, offsets: Iterable[tuple[TopicQueue, int]]) -> None:
        """Tell brokers that the group has read up to there."""
        self._all(self._commit(group, queue, offset) for queue, offset in offsets)

    def wait(self, seconds: float) -> None:
        """Connections live on meanwhile."""
        self._runner.run(asyncio.sleep(seconds))

    # --- inside of the loop

    def _all(self, questions: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer]:
        async def together() -> list[Answer]:
            return list(await asyncio.gather(*questions))

        return self._runner.run(together())

    async def _route(self, topic: str) -> bodies.TopicRouteData:
        answer, _ = await self._asked(self._options.namesrvs, requests.GET_ROUTE, requests.OfTopic(topic=topic))
        if answer.code == Code.TOPIC_NOT_EXIST:
            raise RouteNotFound(f"no name server has a route of the topic {topic}: make it, or send to it, first")
        _refuse(answer, "the route", self._options.namesrvs[0])
        route = bodies.read(answer.body, bodies.TopicRouteData)
        for data in route.broker_datas:
            if data.broker_addrs:
                self._brokers[data.broker_name] = {int(number): at for number, at in data.broker_addrs.items()}
        return route

    async def _ends(self, queue: TopicQueue) -> OffsetRange:
        question = requests.QueueQuestion(topic=queue.topic, queue_id=queue.queue_id)
        low, _ = await self._of_broker(queue, requests.GET_MIN_OFFSET, question)
        high, address = await self._of_broker(queue, requests.GET_MAX_OFFSET, question)
        master = self._brokers[queue.broker_name].get(MASTER_ID)
        return OffsetRange(int(low.ext["offset"]), int(high.ext["offset"]), address == master)

    async def _at_time(self, queue: TopicQueue, timestamp_ms: int) -> int:
        question = requests.TimeQuestion(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms)
        answer, _ = await self._of_broker(queue, requests.SEARCH_OFFSET, question)
        return int(answer.ext["offset"])

    async def _commit(self, group: str, queue: TopicQueue, offset: int) -> None:
        commit = requests.OffsetCommit(
            topic=queue.topic, queue_id=queue.queue_id, consumer_group=group, commit_offset=offset
        )
        await self._of_broker(queue, requests.UPDATE_CONSUMER_OFFSET, commit)

    async def _of_broker(
        self, queue: TopicQueue, request: RequestKind[Any], fields: Fields, wanted: Sequence[int] = (Code.SUCCESS,)
    ) -> tuple[Command, str]:
        """The answer of the master, or of a slave where there is none, and who gave it. Raises DejamqError."""
        if queue.broker_name not in self._brokers:
            await self._route(queue.topic)
        addresses = [at for _, at in sorted(self._brokers.get(queue.broker_name, {}).items())]
        if not addresses:
            raise BrokerUnavailable(f"no name server knows the broker of {queue}", definite=True)
        answer, address = await self._asked(addresses, request, fields)
        _refuse(answer, str(queue), address, wanted)
        return answer, address

    async def _asked(self, addresses: Sequence[str], request: RequestKind[Any], fields: Fields) -> tuple[Command, str]:
        """By the first of these that answers, again and again until patience is over. Raises BrokerUnavailable."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.patience_s
        while True:
            silent = []
            for address in addresses:
                try:
                    answer = await (await self._connected(address)).ask(request, fields)
                    if answer.code not in BUSY:
                        return answer, address
                    silent.append(f"{address} is busy: {answer.remark or answer.code}")
                except (BrokerUnavailable, SendTimeout) as error:
                    silent.append(str(error))
            if loop.time() > deadline_s:
                text = f"{request.name} had no answer for {self._options.patience_s:g} s: {'; '.join(silent)}"
                raise BrokerUnavailable(text, definite=False)
            await asyncio.sleep(AGAIN_S)

    async def _connected(self, address: str) -> RemotingClient:
        async with self._connecting[address]:
            client = self._connections.get(address)
            if client is None or client.closed.is_set():
                client = self._connections[address] = await connect(
                    address, _pass_over, account=self._options.account, tls=ClientTls.from_environment()
                )
            return client


def _refuse(answer: Command, what: str, address: str, wanted: Sequence[int] = (Code.SUCCESS,)) -> None:
    if answer.code not in wanted:
        text = f"{address} refuses {what}: {answer.remark or 'it says no more'} (code {answer.code})"
        raise DejamqError(text, code=answer.code)


def _pass_over(command: Command) -> None:
    """A server asks members of groups only, and this is none."""


async def _closed(connections: Iterable[RemotingClient]) -> None:
    await asyncio.gather(*(one.close() for one in connections))
