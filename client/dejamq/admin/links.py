"""An operator's connections: every name server by its address, every broker that one of them knows."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from dejamq_proto.codes import BrokerUnavailable, ClientClosed, Code, ConfigError, DejamqError, ForkedProcess
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.journal.writer import new_boot_id
from dejamq_proto.names import MASTER_ID
from dejamq_proto.wire.tls import ClientTls

from dejamq.admin.calls import AdminLink, NameServerAdminLink
from dejamq.net.broker import BrokerLink
from dejamq.values.config import ClientConfig, parse_addresses
from dejamq.values.forking import ProcessOrigin

Answer = TypeVar("Answer")


class BrokerInfo(msgspec.Struct, frozen=True):
    """One broker name as the name servers tell it; id 0 of ``addresses`` is the master."""

    cluster: str
    broker_name: str
    addresses: dict[int, str]


class AdminLinks:
    """Made in a running loop and owned by it. Names itself in requests, but is no member of any group."""

    def __init__(self, config: ClientConfig) -> None:
        self._boot_id, self._seq, self._origin = new_boot_id(), 0, ProcessOrigin()
        self._timeout_ms, self.closed, self.account = config.mq_client_api_timeout_ms, False, config.account
        self.tls = ClientTls.of(config)
        self.namesrvs = [
            NameServerAdminLink(one, self, timeout_ms=self._timeout_ms, tls=self.tls, account=self.account)
            for one in parse_addresses(config.namesrv)
        ]
        self._admins: dict[str, AdminLink] = {}
        self._brokers: dict[str, BrokerLink] = {}
        self.left_out: dict[str, DejamqError] = {}
        """Masters that did not answer when asked whether they do, and why: lists do without them."""

    def caller(self, seq: int = 0) -> Caller:
        """Who asks."""
        self._seq += 1
        return Caller(client_id=f"admin@{self._boot_id}", boot_id=self._boot_id, seq=seq or self._seq)

    async def ask_any(self, question: Callable[[NameServerAdminLink], Awaitable[Answer]]) -> Answer:
        """The first name server's answer that comes. Raises BrokerUnavailable when none answers, ClientClosed."""
        self.check()
        reasons = []
        for namesrv in self.namesrvs:
            try:
                return await question(namesrv)
            except DejamqError as error:
                # another kind of server at that address is as good as none
                stranger = error.code == Code.REQUEST_CODE_NOT_SUPPORTED
                if not stranger and not isinstance(error, ConnectionError | TimeoutError):
                    raise
                reasons.append(str(error))
        raise BrokerUnavailable(f"no name server answers: {'; '.join(reasons)}", code=Code.NO_NAME_SERVER)

    async def brokers(self) -> dict[str, BrokerInfo]:
        """All brokers by name."""
        found = (await self.ask_any(lambda namesrv: namesrv.cluster())).brokers
        return {one.broker_name: BrokerInfo(one.cluster, one.broker_name, dict(one.addresses)) for one in found}

    async def masters(self, names: list[str] | None = None) -> dict[str, str]:
        """Address of each master, of these brokers only.

        Raises ConfigError for a name that nobody has, BrokerUnavailable for one without a master, or when none has one.
        """
        known = await self.brokers()
        if unknown := sorted(set(names or ()) - known.keys()):
            raise ConfigError(
                f"no broker is named {', '.join(unknown)}; there are {', '.join(sorted(known)) or 'none'}"
            )
        for name in names or ():
            if name in self.left_out:
                raise self.left_out[name]
            if MASTER_ID not in known[name].addresses:
                raise only_slaves(known[name])
        wanted = [name for name in known if name not in self.left_out] if names is None else names
        found = {name: known[name].addresses[MASTER_ID] for name in wanted if MASTER_ID in known[name].addresses}
        if wanted and not found:
            raise only_slaves(known[wanted[0]])
        return found

    async def each(self, question: Callable[[AdminLink], Awaitable[Answer]]) -> dict[str, Answer]:
        """The answer of each master, by broker name. Raises the first failure: half an answer would look whole."""
        masters = await self.masters()
        answers = await asyncio.gather(*(question(self.admin(address)) for address in masters.values()))
        return dict(zip(masters, answers, strict=True))

    def admin(self, address: str) -> AdminLink:
        """Made on first use."""
        if address not in self._admins:
            self._admins[address] = AdminLink(
                address, self, timeout_ms=self._timeout_ms, tls=self.tls, account=self.account
            )
        return self._admins[address]

    def broker(self, address: str) -> BrokerLink:
        """Made on first use."""
        if address not in self._brokers:
            self._brokers[address] = BrokerLink(
                address, self, timeout_ms=self._timeout_ms, tls=self.tls, account=self.account
            )
        return self._brokers[address]

    def check(self) -> None:
        """Raise ForkedProcess or ClientClosed."""
        if not self._origin.here:
            raise ForkedProcess("this admin was made before fork; make a new one in the child process")
        if self.closed:
            raise ClientClosed("this admin is closed; make a new one")

    async def close(self) -> None:
        """May be called twice."""
        self.closed = True
        links: list[Any] = [*self.namesrvs, *self._admins.values(), *self._brokers.values()]
        await asyncio.gather(*(link.close() for link in links))


def only_slaves(broker: BrokerInfo) -> BrokerUnavailable:
    """Why a broker without a master cannot be asked."""
    slaves = ", ".join(f"{number} at {address}" for number, address in sorted(broker.addresses.items()))
    text = f"{broker.broker_name} has no master now, only slaves ({slaves}); start it again, or one of them as master"
    return BrokerUnavailable(text, code=Code.SYSTEM_ERROR)
