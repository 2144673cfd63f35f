"""Admin: what an operator, a test or a dashboard asks of a cluster, and the few things they change."""

import asyncio
from typing import Any

import msgspec
from dejamq_proto.admin_pb2 import GroupConfig
from dejamq_proto.codes import Code, DejamqError, error_for
from dejamq_proto.common_pb2 import TopicConfig
from dejamq_proto.names import PERM_READ, PERM_WRITE, check_group, check_sendable

from dejamq.admin_cluster import RunningCluster
from dejamq.admin_links import BrokerInfo
from dejamq.admin_messages import TopicQueues
from dejamq.message import MessageQueue
from dejamq.rpc_admin import AdminLink


class QueueProgress(msgspec.Struct, frozen=True):
    """A group's place in one queue. ``committed`` is the next offset to consume."""

    queue: MessageQueue
    committed: int
    min_offset: int
    max_offset: int

    @property
    def lag(self) -> int:
        """Messages that are not committed, in flight or not."""
        return self.max_offset - max(self.committed, self.min_offset)


class GroupSettings(msgspec.Struct, frozen=True):
    """A group at one broker. ``retry_max_times`` tries come before dead letters."""

    broker_name: str
    group: str
    consume_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int


class Admin(RunningCluster):
    """Asks name servers and brokers; ``async with`` starts and closes it. Belongs to one event loop.

    Reading messages commits nothing and joins no group. What a broker refuses or cannot answer is raised, never left
    out: a list is whole or there is none.
    """

    # the cluster

    async def brokers(self) -> list[BrokerInfo]:
        """The brokers that a name server knows, sorted by name."""
        return sorted((await self._open().brokers()).values(), key=lambda broker: broker.broker_name)

    async def runtime_info(self, broker_name: str) -> dict[str, str]:
        """A master's numbers about itself, by RocketMQ's names, as texts. Raises ConfigError for an unknown name."""
        (address,) = (await self._open().masters([broker_name])).values()
        return await self._open().admin(address).runtime_info()

    async def settings(self, broker_name: str) -> dict[str, str]:
        """What a master was started with, by our names, as texts; those without a value are left out."""
        (address,) = (await self._open().masters([broker_name])).values()
        return await self._open().admin(address).settings()

    async def topics(self) -> list[str]:
        """Topics with a live broker, sorted."""
        return sorted(await self._open().ask_any(lambda namesrv: namesrv.topics()))

    async def create_topic(
        self, topic: str, *, queues: int = 8, perm: int = PERM_READ | PERM_WRITE, brokers: list[str] | None = None
    ) -> list[str]:
        """Make the topic, or change it, at these masters (all by default); their names.

        ``perm`` adds 4 read and 2 write: 4 lets consumers finish, and producers choose no queue of it once they have
        read the route again; a broker does not refuse who names one, as RocketMQ's does not. Raises InvalidName, and
        ConfigError for an unknown broker.
        """
        check_sendable(topic)
        config = TopicConfig(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        masters = await self._open().masters(brokers)
        for address in masters.values():
            await self._open().admin(address).create_topic(config)
        return sorted(masters)

    async def routes(self, topic: str) -> dict[str, list[TopicQueues] | DejamqError]:
        """What each name server says of the topic, by its address: its queues, or why it says nothing.

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

    # groups

    async def groups(self) -> list[GroupSettings]:
        """Every group that a master keeps, with members or without, by name and broker."""
        told = await self._open().each(AdminLink.groups)
        found = [
            GroupSettings(
                name, one.group, one.consume_enable, one.consume_broadcast_enable, one.consume_message_orderly,
                one.retry_queue_nums, one.retry_max_times,
            )
            for name, groups in told.items()
            for one in groups
        ]  # fmt: skip
        return sorted(found, key=lambda one: (one.group, one.broker_name))

    async def create_group(
        self, group: str, *, consume_enable: bool = True, ordered: bool = False, retry_queues: int = 1,
        retry_max_times: int = 16,
    ) -> list[str]:  # fmt: skip
        """Make the group, or change these settings of it, at all masters; their names.

        ``consume_enable=False`` makes the brokers refuse its pulls. Raises InvalidName.
        """
        check_group(group)
        config = GroupConfig(
            group=group, consume_enable=consume_enable, consume_broadcast_enable=True, consume_message_orderly=ordered,
            retry_queue_nums=retry_queues, retry_max_times=retry_max_times,
        )  # fmt: skip
        masters = await self._open().masters()
        for address in masters.values():
            await self._open().admin(address).update_group(config)
        return sorted(masters)

    async def members(self, group: str) -> dict[str, list[str]]:
        """Client ids of the group's members as each broker knows them; brokers without any are left out."""
        check_group(group)
        found = {}
        for name, address in (await self._open().masters()).items():
            try:
                found[name] = sorted(await self._open().broker(address).consumer_list(group))
            except DejamqError as error:
                if error.code != Code.SYSTEM_ERROR or "no members" not in str(error):
                    raise
        return found

    async def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """Every queue (of the topic) of which the group has committed an offset, sorted."""
        check_group(group)
        offsets = await self._open().each(lambda link: link.offsets(group))
        found = [
            QueueProgress(
                MessageQueue(one.queue.topic, name, one.queue.queue_id), one.committed, one.min_offset, one.max_offset
            )
            for name, rows in offsets.items()
            for one in rows
            if topic in (None, one.queue.topic)
        ]
        return sorted(found, key=lambda one: one.queue)

    async def reset_offsets(
        self, group: str, topic: str, *, to_time_ms: int | None = None, to_offset: int | None = None
    ) -> list[QueueProgress]:
        """Set where the group goes on in every queue of the topic: the first message stored at this time or later, or
        an offset, kept within what the queue holds (0 is the oldest message). The progress afterwards.

        Only for a group without members: theirs would commit over it. Raises DejamqError while there are some.
        """
        if (to_time_ms is None) == (to_offset is None):
            raise DejamqError("give either to_time_ms or to_offset", code=Code.INVALID_PARAMETER)
        await self._check_offline(group)
        for queue, link in await self._queues(topic):
            low = await link.min_offset(topic, queue.queue_id)
            high = await link.max_offset(topic, queue.queue_id)
            if to_time_ms is not None:
                target = await link.search_offset(topic, queue.queue_id, to_time_ms)
            else:
                target = to_offset or 0
            await link.update_offset(group, topic, queue.queue_id, max(low, min(target, high)))
        return await self.progress(group, topic)

    async def clone_offsets(self, source: str, target: str, topic: str) -> list[QueueProgress]:
        """Let ``target`` go on where ``source`` is in every queue of the topic. Raises as ``reset_offsets``.

        The brokers have to know the group already: ``create_group`` makes it.
        """
        await self._check_offline(target)
        links = dict(await self._queues(topic))
        for one in await self.progress(source, topic):
            await links[one.queue].update_offset(target, topic, one.queue.queue_id, one.committed)
        return await self.progress(target, topic)

    async def _check_offline(self, group: str) -> None:
        members = sorted({one for ids in (await self.members(group)).values() for one in ids})
        if members:
            text = f"group {group!r} has members, which would commit over it; stop them first: {', '.join(members)}"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)

    async def _queues(self, topic: str) -> list[tuple[MessageQueue, Any]]:
        """Every readable queue of the topic with the connection to its master. Raises RouteNotFound."""
        masters = await self._open().masters()
        configs = await self.topic(topic)
        if not configs:
            raise error_for(Code.TOPIC_NOT_EXIST, f"no broker has a topic {topic!r}")
        return [
            (MessageQueue(topic, one.broker_name, queue_id), self._open().broker(masters[one.broker_name]))
            for one in configs
            for queue_id in range(one.read_queues)
        ]
