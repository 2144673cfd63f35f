"""A name server of ours or of RocketMQ: which of them it is shows when this broker registers."""

import logging
from collections.abc import Callable

from dejamq_proto.account import Account
from dejamq_proto.codes import BrokerUnavailable
from dejamq_proto.wire.tls import ClientTls

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.doors.remoting.namesrv import RocketMQRegistration, refuses_grpc
from dejamq_broker.doors.v1.namesrv import NameServerRegistration
from dejamq_broker.registrar import NameServerConnection
from dejamq_broker.tables.topics import TopicTable

log = logging.getLogger(__name__)


class NameServerOfEither:
    """A ``NameServerConnection`` by gRPC, or by remoting to a server that refuses gRPC.

    A server is asked anew what it speaks after each registration by remoting that failed. So one of ours may take the
    place of RocketMQ's, and the other way round.
    """

    def __init__(
        self, address: str, site: Site, topics: TopicTable, config: BrokerConfig,
        on_master: Callable[[str], None] | None, account: Callable[[], Account | None], tls: ClientTls | None = None,
    ) -> None:  # fmt: skip
        """``on_master`` and ``tls`` as in ``NameServerRegistration``. ``account``: whom this broker comes as."""
        self.address, self._tls = address, tls
        self._ours = NameServerRegistration(address, site, topics, config, on_master, account, tls)
        self._theirs = RocketMQRegistration(
            address, site, topics, config.register_broker_timeout_ms, on_master, account, tls
        )
        self._used: NameServerConnection = self._ours

    async def register(self) -> None:
        """Raises DejamqError."""
        if self._used is self._theirs:
            self._used = self._ours  # unless it goes well
            await self._theirs.register()
            self._used = self._theirs
            return
        try:
            await self._ours.register()
        except BrokerUnavailable:
            if not await refuses_grpc(self.address, self._tls):
                raise
            await self._theirs.register()
            self._used = self._theirs
            log.info("namesrv_is_rocketmq namesrv=%s", self.address)

    async def unregister(self, timeout_ms: float) -> None:
        """Raises DejamqError."""
        await self._used.unregister(timeout_ms)

    async def hold(self, on_open: Callable[[], None]) -> None:
        """Raises DejamqError."""
        await self._used.hold(on_open)

    async def close(self) -> None:
        """End both connections."""
        await self._theirs.close()
        await self._ours.close()
