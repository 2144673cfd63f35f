"""The life of topics, as operators lead it: made, changed, deleted, at brokers and at name servers."""

import asyncio
from collections.abc import Awaitable, Callable

from dejamq_proto.codes import Code, ConfigError, DejamqError, error_for
from dejamq_proto.common_pb2 import TopicConfig
from dejamq_proto.names import PERM_READ, PERM_WRITE, check_sendable, check_topic

from dejamq.admin.calls import NameServerAdminLink
from dejamq.admin.messages import StoredMessages, TopicQueues

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The name servers' namespace of topics whose messages have an order (RocketMQ: ``NamesrvUtil``)."""


class TopicLife(StoredMessages):
    """The part of ``Admin`` that is about topics."""

    async def topics(self) -> list[str]:
        """Topics with a live broker, sorted."""
        return sorted(await self._open().ask_any(lambda namesrv: namesrv.topics()))

    async def create_topic(
        self, topic: str, *, queues: int = 8, perm: int = PERM_READ | PERM_WRITE, order: bool = False,
        brokers: list[str] | None = None,
    ) -> list[str]:  # fmt: skip
        """Make the topic, or change it, at these masters (all by default); their names.

        ``perm`` adds 4 read and 2 write. With 4 alone consumers finish, and producers choose no queue of it once they
        have read the route again. A send that names a queue is not refused, as in RocketMQ. ``order``: every name
        server is told the queues too, and keeps the route as it is when a broker is away (its ``orderMessageEnable``).
        Raises InvalidName, and ConfigError for an unknown broker.
        """
        check_sendable(topic)
        config = TopicConfig(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm, order=order)
        masters = await self._open().masters(brokers)
        for address in masters.values():
            await self._open().admin(address).create_topic(config)
        if order:
            await self._tell_order(topic)
        return sorted(masters)

    async def update_topic(
        self, topic: str, *, read_queues: int | None = None, write_queues: int | None = None, perm: int | None = None,
        order: bool | None = None, brokers: list[str] | None = None,
    ) -> list[str]:  # fmt: skip
        """Change what is given, at these masters (all that have the topic by default); their names.

        To take queues out of use, lower ``write_queues`` first and ``read_queues`` once they are consumed. A queue that
        cannot be read is given up by its consumer; its messages wait until it can be read again. Raises
        RouteNotFound when nobody has the topic, ConfigError for an unknown broker and for no change.
        """
        given = {"read_queue_nums": read_queues, "write_queue_nums": write_queues, "perm": perm, "order": order}
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            raise ConfigError("give what is to change: read_queues, write_queues, perm or order")
        masters = await self._open().masters(brokers)
        names = sorted(await self._having(topic)) if brokers is None else sorted(masters)
        if order is False:
            await self._forget_order(topic)
        for name in names:
            await self._open().admin(masters[name]).update_topic(topic, changes)
        if order or (order is None and write_queues is not None and await self._ordered(topic)):
            await self._tell_order(topic)
        return names

    async def delete_topic(self, topic: str, *, brokers: list[str] | None = None) -> list[str]:
        """Delete the topic at these masters (all by default), with its queues and everybody's offsets of it, and at all
        name servers; the names of those that had it.

        Its messages stay in the log until they expire, and are found by id. Producers and consumers learn of it when
        they read the route again; a producer's next send may make the topic again, where brokers make topics on first
        use. Raises DejamqError with INVALID_PARAMETER for topics of the brokers themselves, ConfigError for an unknown
        broker, and what a name server failed with after all were told.
        """
        check_topic(topic)
        masters = await self._open().masters(brokers)
        had = [name for name, at in masters.items() if await self._open().admin(at).delete_topic(topic)]
        routed = () if brokers is None else sorted(masters)
        await self._everywhere(lambda namesrv: namesrv.delete_topic(topic, routed))
        if brokers is None:
            await self._forget_order(topic)
        elif await self._ordered(topic):
            await self._tell_order(topic)
        return sorted(had)

    async def routes(self, topic: str) -> dict[str, list[TopicQueues] | DejamqError]:
        """The answer of each name server on the topic, by its address: its queues, or why it gives none.

        Name servers do not know of one another; while they differ, consumers of one group may too.
        """
        namesrvs = self._open().namesrvs
        answers = await asyncio.gather(*(one.route(topic) for one in namesrvs), return_exceptions=True)
        told: dict[str, list[TopicQueues] | DejamqError] = {}
        for namesrv, answer in zip(namesrvs, answers, strict=True):
            if isinstance(answer, DejamqError):
                told[namesrv.address] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                told[namesrv.address] = [
                    TopicQueues(one.broker_name, one.read_queue_nums, one.write_queue_nums, one.perm)
                    for one in sorted(answer.queues, key=lambda one: one.broker_name)
                ]
        return told

    async def _having(self, topic: str) -> dict[str, TopicQueues]:
        """The topic at each master that has it. Raises RouteNotFound for none."""
        found = {one.broker_name: one for one in await self.topic(topic)}
        if not found:
            raise error_for(Code.TOPIC_NOT_EXIST, f"no broker has a topic {topic!r}")
        return found

    async def _ordered(self, topic: str) -> bool:
        """Whether a name server that answers keeps an order of the topic's queues."""
        questions = (one.get_config(ORDER_TOPICS, topic) for one in self._open().namesrvs)
        kept = await asyncio.gather(*questions, return_exceptions=True)
        return any(isinstance(one, str) and one for one in kept)

    async def _tell_order(self, topic: str) -> None:
        """Every name server is told which queues there are, as RocketMQ's ``updateTopic -o true``."""
        having = await self.topic(topic)
        value = ";".join(sorted(f"{one.broker_name}:{one.write_queues}" for one in having))
        await self._everywhere(lambda namesrv: namesrv.put_config(ORDER_TOPICS, topic, value))

    async def _forget_order(self, topic: str) -> None:
        if await self._ordered(topic):
            await self._everywhere(lambda namesrv: namesrv.delete_config(ORDER_TOPICS, topic))

    async def _everywhere(self, tell: Callable[[NameServerAdminLink], Awaitable[object]]) -> None:
        """Tell every name server; raises what one failed with after all were told: it may say something else now."""
        namesrvs = self._open().namesrvs
        answers = await asyncio.gather(*map(tell, namesrvs), return_exceptions=True)
        for namesrv, answer in zip(namesrvs, answers, strict=True):
            if isinstance(answer, DejamqError):
                text = f"done, but the name server {namesrv.address} could not be told: {answer}"
                raise error_for(answer.code, text, definite=False) from None
            if isinstance(answer, BaseException):
                raise answer
