"""An operator's view and control of a running cluster besides its messages: connections, permission to write."""

import asyncio
from collections.abc import Sequence

import msgspec
from dejamq_proto import admin_pb2 as pb
from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.names import MASTER_ID, check_group

from dejamq.admin.calls import AdminLink
from dejamq.admin.dead_letters import DeadLetterOffice
from dejamq.admin.links import only_slaves
from dejamq.admin.queues import QueueRanges


class ClientConnection(msgspec.Struct, frozen=True):
    """One client in one group at one broker. ``role`` is ``producer`` or ``consumer``, ``address`` the client's as the
    broker sees it; the time of the last heartbeat is the broker's wall clock.

    ``version`` and ``language`` are of the client's library; ``boot_id`` names one start of the client. Consumers have
    ``subscriptions``, each a topic and its expression, and their ``message_model``.
    """

    broker_name: str
    role: str
    group: str
    client_id: str
    address: str
    version: str
    last_heartbeat_ms: int
    language: str = ""
    boot_id: str = ""
    subscriptions: list[str] = []
    message_model: str = ""


class Clash(msgspec.Struct, frozen=True):
    """A client id that several processes have used in one group at the same time: both get the same queues.

    ``addresses`` and ``boot_ids`` are theirs, ``brokers`` those that saw it; ``present``: it is so now. Times are
    brokers' wall clocks, of the first and the last heartbeat under such a clash.
    """

    role: str
    group: str
    client_id: str
    addresses: list[str]
    brokers: list[str]
    boot_ids: list[str]
    first_ms: int
    last_ms: int
    present: bool


class RunningCluster(DeadLetterOffice, QueueRanges):
    """The part of ``Admin`` that is about brokers as a whole."""

    async def connections(self, group: str | None = None, *, broker_name: str | None = None) -> list[ClientConnection]:
        """Producers and consumers that are connected (of this group, to this broker), by group, role and client id.

        A producer is connected once it has sent. Raises InvalidName, and ConfigError for an unknown broker.
        """
        if group is not None:
            check_group(group)
        masters = await self._open().masters(None if broker_name is None else [broker_name])
        links = [self._open().admin(address) for address in masters.values()]
        answers = await asyncio.gather(*(link.connections(group or "") for link in links))
        found = [
            ClientConnection(
                name, one.role, one.group, one.client_id, one.address, one.version, one.last_heartbeat_ms,
                one.language, one.boot_id, list(one.subscriptions), one.message_model,
            )
            for name, rows in zip(masters, answers, strict=True)
            for one in rows
        ]  # fmt: skip
        return sorted(found, key=lambda one: (one.group, one.role, one.client_id, one.broker_name))

    async def clashes(self) -> list[Clash]:
        """Client ids that several processes used in one group since the brokers started, by group, role and client id.

        Give each process its own ``client_id``, or leave that to dejamq.
        """
        told = await self._open().each(AdminLink.clashes)
        found: dict[tuple[str, str, str], list[tuple[str, pb.Clash]]] = {}
        for name, rows in told.items():
            for one in rows:
                found.setdefault((one.group, one.role, one.client_id), []).append((name, one))
        return [_clash(seen) for _, seen in sorted(found.items())]

    async def leave_out_silent(self) -> dict[str, DejamqError]:
        """Ask every master whether it answers, and leave brokers whose master does not, or that have none now, out of
        all later lists: which, and why.

        Use it when half an answer is better than none. Without it a list is whole or there is none.
        """
        links = self._open()
        for name, broker in sorted((await links.brokers()).items()):
            if MASTER_ID not in broker.addresses:
                links.left_out.setdefault(name, only_slaves(broker))
        masters = await links.masters()
        questions = (links.admin(address).runtime_info() for address in masters.values())
        for name, answer in zip(masters, await asyncio.gather(*questions, return_exceptions=True), strict=True):
            if isinstance(answer, DejamqError):
                links.left_out[name] = answer
            elif isinstance(answer, BaseException):
                raise answer
        return dict(links.left_out)

    async def stop_writes(self, broker_name: str) -> dict[str, int]:
        """Take the write permission from every route through this broker; how many, by name server.

        Producers stop choosing it when they read the route again; consumers finish what it has, and the broker refuses
        nobody. It holds until ``start_writes``, or until the broker registers a change of its topics or starts again.
        Raises ConfigError for a broker that no name server knows, and what a name server failed with after all were
        told. Source: RocketMQ ``wipeWritePerm``.
        """
        return await self._set_writable(broker_name, False)

    async def start_writes(self, broker_name: str) -> dict[str, int]:
        """Give it back, as RocketMQ also to topics that were for reading only. Raises as ``stop_writes``."""
        return await self._set_writable(broker_name, True)

    async def _set_writable(self, broker_name: str, writable: bool) -> dict[str, int]:
        namesrvs = self._open().namesrvs
        tasks = [namesrv.set_writable(broker_name, writable) for namesrv in namesrvs]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        told: dict[str, int] = {}
        for namesrv, answer in zip(namesrvs, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            told[namesrv.address] = answer
        if not any(told.values()):
            known = ", ".join(sorted(await self._open().brokers())) or "none"
            raise ConfigError(f"no name server knows a broker {broker_name!r}; there are {known}")
        return told


def _clash(seen: Sequence[tuple[str, pb.Clash]]) -> Clash:
    """The reports of several brokers on one clash."""
    rows = [one for _, one in seen]
    return Clash(
        rows[0].role, rows[0].group, rows[0].client_id,
        addresses=sorted({address for one in rows for address in one.addresses}),
        brokers=sorted(name for name, _ in seen),
        boot_ids=sorted({boot_id for one in rows for boot_id in one.boot_ids}),
        first_ms=min(one.first_ms for one in rows), last_ms=max(one.last_ms for one in rows),
        present=any(one.present for one in rows),
    )  # fmt: skip
