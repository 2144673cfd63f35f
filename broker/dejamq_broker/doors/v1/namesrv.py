"""One broker's side of its talk with one name server."""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc.aio
from dejamq_proto import namesrv_pb2 as pb
from dejamq_proto.account import Account
from dejamq_proto.common_pb2 import Caller, DataVersion
from dejamq_proto.namesrv_pb2_grpc import NameServerStub
from dejamq_proto.wire.calling import call, dial, error_from
from dejamq_proto.wire.tls import ClientTls

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.doors.v1.values import topic_to_proto
from dejamq_broker.tables.topics import TopicTable

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs forgot it


class NameServerRegistration:
    """Registers, unregisters, and holds the stream whose end tells a name server that this broker is gone."""

    def __init__(
        self, address: str, site: Site, topics: TopicTable, config: BrokerConfig,
        on_master: Callable[[str], None] | None, account: Callable[[], Account | None] | None = None,
        tls: ClientTls | None = None,
    ) -> None:  # fmt: skip
        """A slave's ``on_master`` is called at each registration with its master's address, '' when it is not known
        there.

        None: this broker is a master. ``tls``: None for a plain connection.
        """
        self.address, self._on_master = address, on_master
        self._site, self._topics, self._timeout_ms = site, topics, config.register_broker_timeout_ms
        self._channel = dial(address, tls, account)
        self._stub = NameServerStub(self._channel)
        self._numbers = itertools.count(1)
        self._stream: Any = None
        self._present_at = ""

    async def register(self) -> None:
        """Tell all topics, hear which of them have an order. Raises the DejamqError that the answer, or its absence,
        means.
        """
        version = self._topics.version
        request = pb.RegisterBrokerRequest(
            caller=self._caller(), broker=self._identity(),
            topics=[topic_to_proto(config, perm_mask=self._topics.perm_mask) for config in self._topics],
            data_version=DataVersion(
                state_version=self._site.epoch or version.state_version, timestamp_ms=version.timestamp,
                counter=version.counter,
            ),
        )  # fmt: skip
        answer = await call(self._stub.RegisterBroker, request, address=self.address, timeout_ms=self._timeout_ms)
        self._topics.mark_ordered(answer.order_topics)
        if self._on_master is not None:
            self._on_master(answer.master_address)
        if self._stream is not None and self._present_at != self._site.address:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # ``hold`` sees it too, and begins anew
                await self._be_present()

    async def unregister(self, timeout_ms: float) -> None:
        """Leave at once. Raises the DejamqError that the answer, or its absence, means."""
        request = pb.UnregisterBrokerRequest(caller=self._caller(), broker=self._identity())
        await call(self._stub.UnregisterBroker, request, address=self.address, timeout_ms=timeout_ms)

    async def hold(self, on_open: Callable[[], None]) -> None:
        """Keep the presence stream open until the other side ends it. Raises DejamqError when it breaks.

        ``on_open`` is called for each answer, and a name server answers once when it has the presence.
        Registering then covers the name server that restarted between two rounds.
        """
        self._stream = stream = self._stub.BrokerChannel()  # type: ignore[call-arg]  # grpc.aio writes by itself then
        try:
            await self._be_present()
            while await stream.read() is not EOF:
                on_open()
        except grpc.aio.AioRpcError as error:
            raise error_from(error, self.address) from None
        finally:
            self._stream = None
            stream.cancel()

    async def _be_present(self) -> None:
        """The end of the stream removes the broker at the address that was said last."""
        self._present_at = self._site.address
        await self._stream.write(pb.BrokerPresence(broker=self._identity()))

    async def close(self) -> None:
        """End the connection and with it the presence stream."""
        await self._channel.close(None)

    def _caller(self) -> Caller:
        return Caller(client_id=self._site.broker_name, boot_id=self._site.boot_id, seq=next(self._numbers))

    def _identity(self) -> pb.BrokerIdentity:
        site = self._site
        return pb.BrokerIdentity(
            cluster=site.cluster, broker_name=site.broker_name, broker_id=site.broker_id, address=site.address,
            boot_id=site.boot_id, advertised=site.advertised,
        )  # fmt: skip
