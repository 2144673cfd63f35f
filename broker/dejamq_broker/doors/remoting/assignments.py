"""The broker's share-out of queues to push consumers that leave it to the broker, and how each group asks for messages.

Source: RocketMQ ``QueryAssignmentProcessor``.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.remoting import bodies, pop_requests
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command

from dejamq_broker.base.config import PopSettings
from dejamq_broker.base.identity import Site
from dejamq_broker.doors.remoting.namesrv import KnownQueues
from dejamq_broker.doors.remoting.session import ClientSession, Handler
from dejamq_broker.members.assignment import STRATEGIES, QueueThere, Share, pop_share
from dejamq_broker.members.clients import Clients
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.request_modes import MODES, POP, RequestMode, RequestModes
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable

log = logging.getLogger(__name__)


class Assigning:
    """Owned by the event loop."""

    def __init__(
        self, clients: Clients, topics: TopicTable, groups: SubscriptionGroupTable, modes: RequestModes,
        routes: KnownQueues, site: Site, settings: PopSettings, kept: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        """``routes`` know the topic's queues at other brokers: a client asks one broker for all of them.

        ``kept`` waits until changes are on disk.
        """
        self._kept = kept
        self._clients, self._topics, self._groups, self._modes = clients, topics, groups, modes
        self._routes, self._site, self._settings = routes, site, settings

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        return {
            pop_requests.QUERY_ASSIGNMENT.code: self._query, pop_requests.SET_REQUEST_MODE.code: self._set,
            pop_requests.GET_ALL_REQUEST_MODES.code: self._all,
        }  # fmt: skip

    async def _query(self, client: ClientSession, command: Command) -> Command:
        asked = bodies.read(command.body, bodies.AssignmentQuestion)
        mode = self._mode(asked.topic, asked.consumer_group)
        share = self._share(asked, mode, await self._queues(asked.topic), client.asker(command))
        told = None if share is None else [_told(queue, asked.topic, mode.mode) for queue in share]
        return answer(command, body=bodies.write(bodies.Assignments(message_queue_assignments=told)))

    def _share(self, asked: bodies.AssignmentQuestion, mode: RequestMode, queues: Share, asker: Asker) -> Share | None:
        """None where nothing can be said: the client goes on with what it has."""
        if not queues:
            return None
        if bodies.name_of(asked.message_model, bodies.MODELS) == "BROADCASTING":
            return queues
        allocate = STRATEGIES.get(asked.strategy_name)
        if allocate is None:
            log.warning("strategy_unknown group=%s strategy=%.60r", asked.consumer_group, asked.strategy_name)
            return None
        try:
            members = sorted(self._clients.members(asked.consumer_group, asker))
        except DejamqError:  # its heartbeat comes later
            return None
        if mode.mode == POP:
            return pop_share(allocate, queues, members, asked.client_id, mode.pop_share_queue_num)
        return allocate(queues, members, asked.client_id)

    def _mode(self, topic: str, group: str) -> RequestMode:
        """Retry topics are pulled, as nobody sets a mode for them."""
        found = self._modes.get(topic, group)
        if found is not None:
            return found
        if topic.startswith(names.RETRY_PREFIX):
            return RequestMode(topic, group)
        settings = self._settings
        return RequestMode(
            topic, group, settings.default_message_request_mode, settings.default_pop_share_queue_num
        )  # fmt: skip

    async def _queues(self, topic: str) -> Share:
        """Those that may be read, of all brokers that name servers know, in the order in which clients sort them."""
        found = dict(await self._routes.readable(topic))
        config = self._topics.get(topic)
        if config is not None and self._site.master and config.perm & self._topics.perm_mask & names.PERM_READ:
            found[self._site.broker_name] = config.read_queue_nums
        return [QueueThere(name, number) for name in sorted(found) for number in range(found[name])]

    async def _set(self, _: ClientSession, command: Command) -> Command:
        wanted = bodies.read(command.body, bodies.RequestModeBody)
        mode = bodies.name_of(wanted.mode, MODES)
        if wanted.topic.startswith(names.RETRY_PREFIX):
            raise DejamqError("retry topic is not allowed to set mode", code=Code.NO_PERMISSION, definite=True)
        if mode not in MODES:
            raise DejamqError(f"{wanted.mode!r:.20} is neither PULL nor POP", code=Code.INVALID_PARAMETER)
        if self._topics.get(wanted.topic) is None:
            raise DejamqError(f"topic[{wanted.topic}] not exist", code=Code.TOPIC_NOT_EXIST, definite=True)
        self._groups.known(wanted.consumer_group)
        self._modes.set(RequestMode(wanted.topic, wanted.consumer_group, mode, wanted.pop_share_queue_num))
        await self._kept()
        return answer(command)

    async def _all(self, _: ClientSession, command: Command) -> Command:
        """What operators set, as RocketMQ's slaves copy it from their master and ``MQAdminExt`` reads it."""
        return answer(command, body=msgspec.json.encode(self._modes.content()))


def _told(queue: QueueThere, topic: str, mode: str) -> bodies.MessageQueueAssignment:
    named = bodies.MessageQueueBody(broker_name=queue.broker_name, queue_id=queue.queue_id, topic=topic)
    return bodies.MessageQueueAssignment(message_queue=named, mode=mode)
