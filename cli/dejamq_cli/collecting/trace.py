"""The trace topic, followed by plain pulls: nothing is committed, no group is joined.

RocketMQ makes a group that pulls and is unknown, so the pulls name the group of its own tools, which every broker has.
A pull outside of a queue makes a broker store an event about it (``OFFSET_MOVED_EVENT``), so both ends of a queue are
asked for before its first pull, and again on a new connection: the broker may have lost what was not on disk.

Source: RocketMQ ``PullMessageProcessor``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, SendTimeout
from dejamq_proto.names import PERM_READ, TOOLS_GROUP
from dejamq_proto.records.record import BadRecord, decode_each
from dejamq_proto.remoting import bodies, requests

from dejamq_cli.collecting.files import EvidenceFiles
from dejamq_cli.collecting.lines import Told, trace_line
from dejamq_cli.collecting.servers import AskedServer, Reconnected
from dejamq_cli.terminal.output import say

IDLE_S, REFUSED_S = 1.0, 30.0
UNSEEN = -1
MESSAGES_A_PULL = 32
"""RocketMQ gives no more at a time."""


class TraceRefused(DejamqError):
    """A broker answers, and does not give what was asked."""


@dataclass
class QueuePlace:
    """One queue of the trace topic. ``end`` is where it ended when it was looked at last."""

    broker: str
    queue_id: int
    next: int = 0
    end: int = 0
    looked: int = UNSEEN
    """The number of the connection over which its ends were asked for."""


Begin = Callable[[AskedServer, requests.QueueQuestion], Awaitable[int]]
"""Where a queue that was never read is begun."""


class TraceFollower:
    """All queues of the topic at all brokers. ``messages`` counts what was written."""

    def __init__(self, topic: str, begin: Begin, files: EvidenceFiles) -> None:
        self._topic, self._begin, self._files = topic, begin, files
        self._places: dict[str, list[QueuePlace]] = {}
        self._servers: dict[str, AskedServer] = {}
        self._said: set[str] = set()
        self.messages = self.missed = 0

    def learn(self, route: bodies.TopicRouteData, brokers: dict[str, AskedServer]) -> list[str]:
        """The brokers that are new in this route. Without its master a broker's first slave is asked."""
        new = []
        for queues in route.queue_datas:
            name = queues.broker_name
            data = next((one for one in route.broker_datas if one.broker_name == name and one.broker_addrs), None)
            address = data.broker_addrs[min(data.broker_addrs, key=int)] if data is not None else ""
            if address not in brokers or not queues.perm & PERM_READ:
                continue
            if name not in self._places:
                self._places[name] = []
                new.append(name)
            if self._servers.get(name) is not brokers[address]:
                self._servers[name] = brokers[address]
                for place in self._places[name]:
                    place.looked = UNSEEN
            for queue_id in range(len(self._places[name]), queues.read_queue_nums):
                self._places[name].append(QueuePlace(name, queue_id))
        return new

    async def follow(self, broker: str) -> None:
        """For ever. While the broker is away its turn is let pass."""
        while True:
            moved = await self.pull_round(broker)
            if moved is None:
                await asyncio.sleep(REFUSED_S)
            elif not moved:
                await asyncio.sleep(IDLE_S)

    async def catch_up(self, broker: str) -> None:
        """To where each queue ends now."""
        for place in list(self._places[broker]):
            try:
                await self._look(place)
                end = place.end
                while place.next < end and await self._pull(place):
                    pass
            except (BrokerUnavailable, SendTimeout):
                return
            except Reconnected:
                place.looked = UNSEEN
            except TraceRefused as error:
                self._refused(place, error)

    async def pull_round(self, broker: str) -> bool | None:
        """One pull of each queue; whether the next one should come at once. None: the broker refuses."""
        moved = False
        for place in list(self._places[broker]):
            try:
                await self._look(place)
                moved |= await self._pull(place)
            except (BrokerUnavailable, SendTimeout):
                return False
            except Reconnected:
                place.looked, moved = UNSEEN, True
            except TraceRefused as error:
                self._refused(place, error)
                return None
        return moved

    async def _look(self, place: QueuePlace) -> None:
        """Set the place inside of the queue, once a connection."""
        server = self._servers[place.broker]
        if place.looked == server.connections:
            return
        question = requests.QueueQuestion(topic=self._topic, queue_id=place.queue_id)
        low = await offset_of(server, requests.GET_MIN_OFFSET, question)
        high = await offset_of(server, requests.GET_MAX_OFFSET, question)
        place.looked, place.end = server.connections, high
        known = self._files.place(place.broker, place.queue_id)
        if known is None:
            place.next = min(max(await self._begin(server, question), low), high)
            self._move(place, "begin", None, place.next)
        elif known < low:
            self._move(place, "gap", known, low)
        elif known > high:
            self._move(place, "restart", known, low)
        else:
            place.next = known

    def _move(self, place: QueuePlace, event: str, before: int | None, to: int) -> None:
        place.next = to
        self._files.move(event, place.broker, place.queue_id, before, to)
        if event == "gap" and before is not None:
            self.missed += to - before

    async def _pull(self, place: QueuePlace) -> bool:
        """Whether it went on. Raises TraceRefused, Reconnected."""
        server = self._servers[place.broker]
        told = await server.ask_over(place.looked, requests.PULL_MESSAGE, requests.PullMessage(
            consumer_group=TOOLS_GROUP, topic=self._topic, queue_id=place.queue_id, queue_offset=place.next,
            max_msg_nums=MESSAGES_A_PULL, sys_flag=requests.HAS_SUBSCRIPTION, subscription="*", expression_type="TAG",
        ))  # fmt: skip
        command, before = told.command, place.next
        if command.code not in (Code.SUCCESS, Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY, Code.PULL_OFFSET_MOVED):
            raise TraceRefused(command.remark or "it says no more", code=command.code)
        then = int(command.ext.get("nextBeginOffset", before))
        if command.code == Code.SUCCESS:
            self._write(place, server, told)
        if command.code == Code.PULL_OFFSET_MOVED and then < before:
            self._move(place, "restart", before, then)
        elif place.next < then:
            self._move(place, "gap", place.next, then)
        return place.next != before

    def _write(self, place: QueuePlace, server: AskedServer, told: Told) -> None:
        try:
            for record in decode_each(told.command.body):
                if record.queue_offset < place.next:
                    continue
                if record.queue_offset > place.next:
                    self._move(place, "gap", place.next, record.queue_offset)
                place.next = record.queue_offset + 1
                line = trace_line(server.source, told, record)
                self._files.write_trace(line, place.broker, place.queue_id, place.next)
                self.messages += 1
        except BadRecord as error:  # what follows in this answer is passed over, and told as a gap
            say(f"{server.source.address}: a message of {self._topic} cannot be read: {error}")

    def _refused(self, place: QueuePlace, error: TraceRefused) -> None:
        """Said and written once a broker."""
        server = self._servers[place.broker]
        if place.broker in self._said:
            return
        self._said.add(place.broker)
        say(f"{place.broker} {server.source.address} gives no messages of {self._topic}: {error}")
        about = server.source.fields() | {"code": int(error.code), "remark": str(error), "queue_id": place.queue_id}
        self._files.note("refused", **about)


async def offset_of(server: AskedServer, request: requests.RequestKind[Any], question: requests.Fields) -> int:
    """An answer that is an offset. Raises TraceRefused."""
    command = (await server.ask(request, question)).command
    if command.code or "offset" not in command.ext:
        raise TraceRefused(command.remark or "it tells no offset", code=command.code)
    return int(command.ext["offset"])
