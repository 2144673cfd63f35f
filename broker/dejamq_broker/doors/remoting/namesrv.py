"""One broker's side of its talk by remoting: with a name server of RocketMQ's own, and with any about routes.

Source: RocketMQ ``BrokerOuterAPI.registerBrokerAll``, ``RegisterBrokerBody``.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from dejamq_proto import names
from dejamq_proto.account import Account
from dejamq_proto.codes import Code, DejamqError, error_for
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting_client import RemotingClient, connect
from dejamq_proto.wire.tls import ClientTls, asyncio_tls

from dejamq_broker.base.identity import Site
from dejamq_broker.tables.topics import TopicTable

log = logging.getLogger(__name__)
MOST_TOPICS = 4096
"""Whose routes are remembered."""
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a gRPC client begins: the preface, and settings that change nothing (RFC 9113, 3.4)."""
GREETING_S = 3.0


class RocketMQRegistration:
    """Registers and unregisters by remoting. The name server forgets this broker when the connection ends."""

    def __init__(
        self, address: str, site: Site, topics: TopicTable, timeout_ms: float, on_master: Callable[[str], None] | None,
        account: Callable[[], Account | None] | None = None, tls: ClientTls | None = None,
    ) -> None:  # fmt: skip
        """``on_master`` and ``tls`` as in ``NameServerRegistration``. ``account``: whom this broker comes as."""
        self._account, self._tls = account, tls
        self.address, self._on_master = address, on_master
        self._site, self._topics, self._timeout_s = site, topics, timeout_ms / 1000
        self._client: RemotingClient | None = None
        self._connecting = asyncio.Lock()

    async def register(self) -> None:
        """Tell all topics, hear which of them have an order. Raises the DejamqError that the answer, or its absence,
        means.
        """
        body = self._topics_told()
        fields = requests.BrokerRegistering(
            **self._names(), ha_server_addr=self._site.address, body_crc32=zlib.crc32(body) & 0x7FFFFFFF
        )
        answer = await self._ask(requests.REGISTER_BROKER, fields, body, timeout_s=self._timeout_s)
        if answer.body:
            self._topics.mark_ordered(bodies.read(answer.body, bodies.KVTable).table)
        if self._on_master is not None:
            self._on_master(answer.ext.get("masterAddr", ""))

    async def unregister(self, timeout_ms: float) -> None:
        """Leave at once. Raises the DejamqError that the answer, or its absence, means."""
        await self._ask(requests.UNREGISTER_BROKER, requests.BrokerNamed(**self._names()), timeout_s=timeout_ms / 1000)

    async def hold(self, on_open: Callable[[], None]) -> None:
        """Until the connection ends. ``on_open`` is called when it is open: a name server that restarted has forgotten
        everything.
        """
        client = await self._connected()
        on_open()
        await client.closed.wait()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask(
        self, request: requests.RequestKind[Any], fields: requests.Fields, body: bytes = b"", *, timeout_s: float
    ) -> Command:
        client = await self._connected()
        answer = await client.ask(request, fields, body, timeout_s=timeout_s)
        if answer.code != Code.SUCCESS:
            raise error_for(answer.code, answer.remark or f"{request.name} was answered with code {answer.code}")
        return answer

    async def _connected(self) -> RemotingClient:
        async with self._connecting:
            if self._client is None or self._client.closed.is_set():
                self._client = await connect(
                    self.address, _pass_over, account=None if self._account is None else self._account(),
                    timeout_s=self._timeout_s, tls=self._tls,
                )  # fmt: skip
            return self._client

    def _topics_told(self) -> bytes:
        """As the broker answers who asks for all topics, less the permissions that it does not give now."""
        table = self._topics.content()
        mask = self._topics.perm_mask
        told = {config.topic_name: msgspec.structs.replace(config, perm=config.perm & mask) for config in self._topics}
        wrapper = table | {"topicConfigTable": told}
        return msgspec.json.encode({"topicConfigSerializeWrapper": wrapper, "filterServerList": []})

    def _names(self) -> dict[str, Any]:
        site = self._site
        return {
            "broker_name": site.broker_name, "broker_addr": site.address, "cluster_name": site.cluster,
            "broker_id": site.broker_id,
        }  # fmt: skip


class KnownQueues:
    """Queues of topics at all brokers, as name servers of either kind know them. Owned by the event loop."""

    def __init__(
        self, addresses: Callable[[], Sequence[str]], timeout_ms: float, keep_ms: float,
        account: Callable[[], Account | None], tls: ClientTls | None = None,
    ) -> None:  # fmt: skip
        """An answer serves for ``keep_ms``, also one without queues. ``account``: by which this broker asks.

        ``tls``: None for plain connections.
        """
        self._account, self._tls = account, tls
        self._addresses, self._timeout_s, self._keep_s = addresses, timeout_ms / 1000, keep_ms / 1000
        self._known: dict[str, tuple[float, dict[str, int]]] = {}
        self._asking = asyncio.Lock()
        self._client: RemotingClient | None = None

    async def readable(self, topic: str) -> dict[str, int]:
        """Queues that may be read, by the names of the brokers. What was known before, where no name server answers."""
        async with self._asking:
            asked_s, known = self._known.get(topic, (-self._keep_s, {}))
            if time.monotonic() - asked_s < self._keep_s:
                return known
            for address in self._addresses():
                try:
                    known = await self._ask(address, topic)
                    break
                except DejamqError as error:
                    log.info("route_not_told namesrv=%s topic=%s reason=%s", address, topic, error)
            if len(self._known) >= MOST_TOPICS:
                self._known.clear()
            self._known[topic] = time.monotonic(), known
            return known

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask(self, address: str, topic: str) -> dict[str, int]:
        client = self._client
        if client is None or client.closed.is_set() or client.address != address:
            await self.close()
            client = self._client = await connect(
                address, _pass_over, account=self._account(), timeout_s=self._timeout_s, tls=self._tls
            )
        answer = await client.ask(requests.GET_ROUTE, requests.OfTopic(topic=topic), timeout_s=self._timeout_s)
        if answer.code == Code.TOPIC_NOT_EXIST:
            return {}
        if answer.code != Code.SUCCESS:
            raise error_for(answer.code, answer.remark or f"code {answer.code}")
        route = bodies.read(answer.body, bodies.TopicRouteData)
        masters = {each.broker_name for each in route.broker_datas if str(names.MASTER_ID) in each.broker_addrs}
        return {
            queues.broker_name: queues.read_queue_nums
            for queues in route.queue_datas
            if queues.perm & names.PERM_READ and queues.broker_name in masters
        }


async def refuses_grpc(address: str, tls: ClientTls | None = None) -> bool:
    """Whether the server at the address ends a connection that begins as gRPC's do, and says nothing.

    RocketMQ's name server takes the greeting for the size of a frame that is too large. One of ours answers, or takes
    its time; a server that cannot be reached refuses nothing.
    """
    bracketed, _, port = address.rpartition(":")
    host = bracketed.strip("[]")
    try:
        async with asyncio.timeout(GREETING_S):
            reader, writer = await asyncio.open_connection(host, int(port), **asyncio_tls(tls, host))
    except OSError:
        return False
    try:
        writer.write(HTTP2_GREETING)
        async with asyncio.timeout(GREETING_S):
            return not await reader.read(1)
    except TimeoutError:
        return False
    except OSError:  # reset, with the greeting unread
        return True
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _pass_over(command: Command) -> None:
    """A name server asks brokers only whether they took over from a master that is gone: none of ours does."""
