"""Admin: what an operator, a test or a dashboard asks of a cluster, and the few things they change."""

from collections.abc import Mapping

from dejamq.admin.access import RunningAccess
from dejamq.admin.links import BrokerInfo
from dejamq.admin.offsets import Offsets
from dejamq.admin.running import RunningClients


class Admin(RunningAccess, RunningClients, Offsets):
    """Asks name servers and brokers; ``async with`` starts and closes it. Belongs to one event loop.

    Reading messages commits nothing and joins no group. A broker's refusal or missing answer is raised, never left
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
        """The settings in force at a master, by our names, as texts; settings without a value are left out."""
        (address,) = (await self._open().masters([broker_name])).values()
        return await self._open().admin(address).settings()

    async def update_settings(self, broker_name: str, values: Mapping[str, str]) -> dict[str, str]:
        """Change settings of a master that runs, by our names or RocketMQ's; all settings in force afterwards.

        All of them or, when one is refused, none: most are read when a broker starts, and the error says which are not.
        A change made here ends with the process. Raises ConfigError for an unknown broker, DejamqError with
        INVALID_PARAMETER. Source: RocketMQ ``updateBrokerConfig``.
        """
        (address,) = (await self._open().masters([broker_name])).values()
        return await self._open().admin(address).update_settings(values)
