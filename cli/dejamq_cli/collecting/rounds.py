"""Rounds of questions to every server: who is there, offsets, members, routes. Nothing of the cluster changes by them.

A group that is not there yet would be made by a pull or a heartbeat, so neither is sent. Who asks for the members of an
unknown group is told that there are none.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, SendTimeout
from dejamq_proto.loose_json import as_json
from dejamq_proto.names import is_internal, is_system
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import Fields, Header, RequestKind
from dejamq_proto.remoting_client import ANSWER_S

from dejamq_cli.collecting.files import EvidenceFiles
from dejamq_cli.collecting.lines import Source, Told, answer_line
from dejamq_cli.collecting.servers import AskedServer
from dejamq_cli.terminal.output import say

RUNNING_S = 15.0
"""A broker waits 10 s for the client's own answer."""
GROUPS_EVERY = 30
"""Rounds: settings of groups change seldom, and there may be thousands of them."""
NO_REFUSALS: dict[str, tuple[int, ...]] = {
    "connections": (Code.CONSUMER_NOT_ONLINE,), "members": (Code.SYSTEM_ERROR,), "routes": (Code.TOPIC_NOT_EXIST,),
    "running": (Code.SYSTEM_ERROR, Code.CONSUMER_NOT_ONLINE, Code.CONSUME_MSG_TIMEOUT),
}  # fmt: skip
"""Codes by which a server says that there is nothing, or nobody."""
OWN_GROUPS = frozenset({"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"})
OWN_PREFIXES = ("CID_RMQ_SYS_", "CID_ONS")
"""Groups of RocketMQ itself, which consume for nobody."""


class Rounds:
    """All servers of a cluster, and one question after the other to each; different servers are asked side by side.

    ``brokers`` are those that some name server knows, by address; ``trace_route`` is the last one that was told.
    ``counts`` and ``refused`` are answers by kind: all, and those that give nothing.
    """

    def __init__(
        self, namesrvs: Iterable[str], groups: Collection[str], trace_topic: str, made: Callable[[Source], AskedServer],
        files: EvidenceFiles, *, running_info: bool,
    ) -> None:  # fmt: skip
        """``groups``: only these are asked about, all if there are none. ``made``: a server that can be asked."""
        self._files, self._made, self._only, self._running_info = files, made, frozenset(groups), running_info
        self.namesrvs = [made(Source(address)) for address in namesrvs]
        self.brokers: dict[str, AskedServer] = {}
        self._known: dict[str, AskedServer] = {}
        self._trace_topic, self.trace_route = trace_topic, bodies.TopicRouteData(broker_datas=[], queue_datas=[])
        self._groups, self._topics = set(groups), {trace_topic}
        self._members: dict[tuple[str, str], str] = {}
        self.counts: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.number = 0

    @property
    def servers(self) -> list[AskedServer]:
        """All that were ever known: a broker that was killed is forgotten by name servers, and may come back."""
        return [*self.namesrvs, *self._known.values()]

    async def one(self) -> None:
        """Ask everybody everything. Servers that are away are tried, and left out."""
        told = await asyncio.gather(*map(self._cluster, self.namesrvs))
        self._learn_brokers([one for one in told if one is not None])
        await asyncio.gather(*map(self._tables, self.brokers.values()))
        self._members.clear()
        await asyncio.gather(*map(self._groups_at, self.brokers.values()))
        await asyncio.gather(*map(self._routes, self.namesrvs))
        if self._running_info:
            await asyncio.gather(*(
                self._running([pair for pair, at in self._members.items() if at == address], broker)
                for address, broker in self.brokers.items()
            ))  # fmt: skip
        self.number += 1

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self.servers))

    async def _ask(
        self, kind: str, server: AskedServer, request: RequestKind[Header], fields: Fields | None = None,
        timeout_s: float = ANSWER_S, **about: Any,
    ) -> Told | None:  # fmt: skip
        """None: the server is away."""
        try:
            told = await server.ask(request, fields, timeout_s=timeout_s)
        except (BrokerUnavailable, SendTimeout):
            return None
        self._files.write(answer_line(kind, server.source, told, **about))
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if told.command.code and told.command.code not in NO_REFUSALS.get(kind, ()):
            self._refused(kind, server, told.command)
        return told

    def _refused(self, kind: str, server: AskedServer, command: Command) -> None:
        """Said once a kind: an account without the right, or a server that does not know the request."""
        if kind not in self.refused:
            say(f"{server.source.address} refuses {kind}: {command.remark or 'without a word'} (code {command.code})")
        self.refused[kind] = self.refused.get(kind, 0) + 1

    async def _cluster(self, server: AskedServer) -> bodies.ClusterInfo | None:
        told = await self._ask("cluster", server, requests.GET_CLUSTER_INFO)
        return _read(server, told, bodies.ClusterInfo)

    def _learn_brokers(self, told: list[bodies.ClusterInfo]) -> None:
        """Those that nobody knows any more are not asked; while no name server answers, all are."""
        found = {
            address: Source(address, data.cluster, data.broker_name, int(number))
            for info in told
            for data in info.broker_addr_table.values()
            for number, address in data.broker_addrs.items()
        }
        for address, source in found.items():
            if address not in self._known:
                self._known[address] = self._made(source)
            self._known[address].source = source
        if told:
            self.brokers = {address: self._known[address] for address in sorted(found)}

    async def _tables(self, broker: AskedServer) -> None:
        """Committed offsets and delay progress. They name groups and topics; so do the settings of groups, where those
        are that never commit.
        """
        offsets = await self._ask("offsets", broker, requests.GET_ALL_CONSUMER_OFFSET)
        for key in _keys(offsets, "offsetTable"):
            topic, _, group = key.partition("@")
            self._learn_group(group)
            if group in self._groups:
                self._learn_topic(topic)
        await self._ask("delay_offsets", broker, requests.GET_ALL_DELAY_OFFSET)
        if self.number % GROUPS_EVERY == 0:
            for group in _keys(await self._ask("groups", broker, requests.GET_ALL_GROUPS), "subscriptionGroupTable"):
                self._learn_group(group)

    def _learn_group(self, group: str) -> None:
        if not (self._only or group in OWN_GROUPS or group.startswith(OWN_PREFIXES)):
            self._groups.add(group)

    def _learn_topic(self, topic: str) -> None:
        """Retry topics and those of dead letters are where the broker is; nothing else is to be learnt from them."""
        if not (is_internal(topic) or is_system(topic)):
            self._topics.add(topic)

    async def _routes(self, server: AskedServer) -> None:
        for topic in sorted(self._topics):
            told = await self._ask("routes", server, requests.GET_ROUTE, requests.OfTopic(topic=topic), topic=topic)
            if topic == self._trace_topic and (route := _read(server, told, bodies.TopicRouteData)) is not None:
                self.trace_route = route

    async def _groups_at(self, broker: AskedServer) -> None:
        """The members' list only where connections are: RocketMQ logs a warning for a group without any."""
        for group in sorted(self._groups):
            question = requests.OfConsumerGroup(consumer_group=group)
            found = await self._ask("connections", broker, requests.GET_CONSUMER_CONNECTIONS, question, group=group)
            for topic in _keys(found, "subscriptionTable"):
                self._learn_topic(topic)
            if found is None or found.command.code:
                continue
            told = await self._ask("members", broker, requests.GET_CONSUMER_LIST, question, group=group)
            members = _read(broker, told, bodies.ConsumerIds)
            for client_id in members.consumer_id_list if members is not None else ():
                self._members.setdefault((group, client_id), broker.source.address)

    async def _running(self, members: list[tuple[str, str]], broker: AskedServer) -> None:
        """Each client is asked once, through one broker that knows it."""
        for group, client_id in sorted(members):
            question = requests.RunningQuestion(consumer_group=group, client_id=client_id)
            await self._ask(
                "running", broker, requests.GET_RUNNING_INFO, question, RUNNING_S, group=group, client_id=client_id
            )


def _read(server: AskedServer, told: Told | None, kind: type[bodies.Kind]) -> bodies.Kind | None:
    """None where the answer is none that says it."""
    if told is None or told.command.code or not told.command.body:
        return None
    try:
        return bodies.read(told.command.body, kind)
    except DejamqError as error:
        say(f"{server.source.address}: {error}")
        return None


def _keys(told: Told | None, field: str) -> list[str]:
    """The keys of a table in the answer."""
    if told is None or told.command.code or not told.command.body:
        return []
    try:
        body = msgspec.json.decode(as_json(told.command.body.decode()), type=dict[str, Any])
    except ValueError:
        return []
    table = body.get(field)
    return list(table) if isinstance(table, dict) else []
