"""The life of consumer groups, as operators lead it."""

import asyncio
from typing import Any

import msgspec
from dejamq_proto.admin_pb2 import GroupConfig
from dejamq_proto.codes import Code, ConfigError, DejamqError
from dejamq_proto.names import check_group, check_topic, dlq_topic, retry_topic

from dejamq.admin.calls import AdminLink
from dejamq.admin.topics import TopicLife


class GroupSettings(msgspec.Struct, frozen=True):
    """A group at one broker. ``retry_max_times`` tries come before dead letters; ``forbidden_topics`` it may not read.
    ``group_retry_policy`` says how long tries wait, as RocketMQ's JSON; without a policy in it, delay level 3 + tries.

    Without ``consume_from_min_enable`` and with ``broker_id``, ``which_broker_when_consume_slowly``, ``group_sys_flag``
    and ``consume_timeout_minute`` nothing changes here: they are kept for a RocketMQ that reads the file.
    """

    broker_name: str
    group: str
    consume_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int
    consume_from_min_enable: bool = True
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    group_retry_policy: str = '{"type":"CUSTOMIZED"}'
    forbidden_topics: list[str] = []


CHANGEABLE = tuple(field for field in GroupSettings.__struct_fields__[2:] if field != "forbidden_topics")


class GroupLife(TopicLife):
    """The part of ``Admin`` that is about groups."""

    async def groups(self) -> list[GroupSettings]:
        """Every group that a master keeps, with members or without, by name and broker."""
        told = await self._open().each(AdminLink.groups)
        found = [
            GroupSettings(
                name, one.group, **{field: getattr(one, field) for field in CHANGEABLE},
                forbidden_topics=list(one.forbidden_topics),
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
        return await self.update_group(
            group, consume_enable=consume_enable, consume_broadcast_enable=True, consume_message_orderly=ordered,
            retry_queue_nums=retry_queues, retry_max_times=retry_max_times,
        )  # fmt: skip

    async def update_group(self, group: str, *, brokers: list[str] | None = None, **fields: Any) -> list[str]:
        """Change these fields of ``GroupSettings`` and leave the others, at these masters (all by default); their
        names. A broker that does not have the group makes it, as RocketMQ's ``updateSubGroup`` does: a mistyped name is
        no error but a new group. Without ``fields`` that is all that happens.

        Raises InvalidName, ConfigError for a field that there is not and one of the wrong kind.
        """
        check_group(group)
        if unknown := sorted(fields.keys() - set(CHANGEABLE)):
            raise ConfigError(f"a group has no setting {unknown[0]!r}; there are {', '.join(CHANGEABLE)}")
        try:
            config = GroupConfig(group=group, **fields)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"settings of group {group!r}: {error}") from None
        masters = await self._open().masters(brokers)
        for address in masters.values():
            await self._open().admin(address).update_group(config)
        return sorted(masters)

    async def delete_group(self, group: str, *, remove_offsets: bool = True) -> list[str]:
        """Delete the group at all masters, with its offsets, its retry topic and its dead letters; the names of those
        that had it.

        Members that are still there make it again with their next heartbeat, where brokers make groups on first use.
        Raises DejamqError with INVALID_PARAMETER for a built-in group, and what a name server failed with after all
        were told. Source: RocketMQ ``deleteSubGroup``.
        """
        check_group(group)
        masters = await self._open().masters()
        links = {name: self._open().admin(address) for name, address in masters.items()}
        had = [name for name, link in links.items() if await link.delete_group(group, remove_offsets)]
        topics = retry_topic(group), dlq_topic(group)
        for done in await asyncio.gather(*map(self.delete_topic, topics), return_exceptions=True):
            if isinstance(done, BaseException):
                raise done
        return sorted(had)

    async def forbid(self, group: str, topic: str, *, forbidden: bool = True) -> list[str]:
        """Take the topic from the group's readers, or give it back, at all masters that know the group; their names.

        Raises DejamqError when none does.
        """
        check_group(group)
        check_topic(topic)
        masters = await self._open().masters()
        done, unknown = [], None
        for name, address in masters.items():
            try:
                await self._open().admin(address).forbid(group, topic, forbidden)
            except DejamqError as error:
                if error.code != Code.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                unknown = error
            else:
                done.append(name)
        if unknown is not None and not done:
            raise unknown
        return sorted(done)

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
