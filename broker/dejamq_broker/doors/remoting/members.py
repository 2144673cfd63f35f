"""Clients as members of groups: heartbeats, member lists, offsets, locks, and looks at queues.

Source: RocketMQ ``ClientManageProcessor``, ``ConsumerManageProcessor``, ``AdminBrokerProcessor``.
"""

import logging
from typing import TYPE_CHECKING

from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command

from dejamq_broker.base.identity import Site
from dejamq_broker.doors.remoting.session import ClientSession, Handler
from dejamq_broker.filters.chosen import FilterFactory
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.groups import Consumer, GroupSubscription
from dejamq_broker.members.lock_service import LockService
from dejamq_broker.members.locks import QueueAt
from dejamq_broker.paths.commits import Commits
from dejamq_broker.tables.offsets import Asker, OffsetTable, Position

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
MOST_GROUPS, MOST_REMARK = 1_024, 500
"""Groups of one heartbeat, and letters of the remark on it."""
START_PREFIX = "CONSUME_FROM_"
NO_TIME = -1


class Memberships:
    """Owned by the event loop; nothing waits."""

    def __init__(
        self, clients: Clients, locks: LockService, filters: FilterFactory, offsets: OffsetTable, commits: Commits,
        store: "MessageStore", site: Site,
    ) -> None:  # fmt: skip
        self._clients, self._locks, self._filters = clients, locks, filters
        self._offsets, self._commits = offsets, commits
        self._store, self._site = store, site

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        table = (
            (requests.HEART_BEAT, self._heartbeat), (requests.UNREGISTER_CLIENT, self._unregister),
            (requests.GET_CONSUMER_LIST, self._members), (requests.CHECK_CLIENT_CONFIG, self._check_filter),
            (requests.QUERY_CONSUMER_OFFSET, self._query_offset),
            (requests.UPDATE_CONSUMER_OFFSET, self._commit), (requests.GET_MAX_OFFSET, self._max_offset),
            (requests.GET_MIN_OFFSET, self._min_offset), (requests.SEARCH_OFFSET, self._search_offset),
            (requests.GET_EARLIEST_STORE_TIME, self._earliest_time), (requests.LOCK_BATCH, self._lock),
            (requests.UNLOCK_BATCH, self._unlock),
        )  # fmt: skip
        return {request.code: handler for request, handler in table}

    def _heartbeat(self, client: ClientSession, command: Command) -> Command:
        """Full heartbeats only: the answer says that the short form is not spoken here.

        A group that cannot be used is told in the remark, as RocketMQ answers SUCCESS too. A client would not learn the
        broker's version from another answer, and its other consumers may need that.
        """
        beat = bodies.read(command.body, bodies.Heartbeat)
        consumers, producers = beat.consumer_data_set or [], beat.producer_data_set or []
        if len(consumers) + len(producers) > MOST_GROUPS:
            text = f"a heartbeat of {len(consumers) + len(producers)} groups came, at most {MOST_GROUPS} are read"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
        if not beat.client_id:
            raise DejamqError("a heartbeat names its client", code=Code.SYSTEM_ERROR, definite=True)
        peer = self._clients.peer(client.channel)
        peer.version, peer.language = str(command.version), command.language
        peer.user = client.connection.hearer.name
        remark = None
        try:
            self._clients.heartbeat(
                client.channel, client.asker(command)._replace(client_id=beat.client_id), map(_consumer, consumers),
                [each.group_name for each in producers],
            )  # fmt: skip
        except PermissionDenied:
            raise
        except DejamqError as error:
            remark = str(error)[:MOST_REMARK]
            log.warning("heartbeat_refused client=%s reason=%s", beat.client_id, remark)
        client.client_id = beat.client_id
        return answer(command, remark=remark, fields=requests.HeartbeatTaken())

    def _unregister(self, client: ClientSession, command: Command) -> Command:
        wanted = requests.UNREGISTER_CLIENT.read(command)
        asker = client.asker(command)._replace(client_id=wanted.client_id)
        if wanted.consumer_group:
            self._clients.unregister(asker, wanted.consumer_group)
        if wanted.producer_group:
            self._clients.unregister_producer(asker, wanted.producer_group, client.connection.hearer)
        return answer(command)

    def _members(self, client: ClientSession, command: Command) -> Command:
        group = requests.GET_CONSUMER_LIST.read(command).consumer_group
        try:
            members = self._clients.members(group, client.asker(command))
        except DejamqError as error:
            raise DejamqError(f"no consumer for this group, {group}", code=error.code, definite=True) from None
        return answer(command, body=bodies.write(bodies.ConsumerIds(consumer_id_list=members)))

    def _check_filter(self, _: ClientSession, command: Command) -> Command:
        wanted = bodies.read(command.body, bodies.CheckClient).subscription_data
        if wanted is not None:
            self._filters.of(wanted.sub_string or "*", wanted.expression_type or "TAG")
        return answer(command)

    def _query_offset(self, client: ClientSession, command: Command) -> Command:
        asked = requests.QUERY_CONSUMER_OFFSET.read(command)
        at = Position(asked.consumer_group, asked.topic, asked.queue_id)
        offset = self._offsets.query(
            at, self._store, client.asker(command), zero_if_young=asked.set_zero_if_not_found is not False
        )
        return answer(command, fields=requests.OffsetFound(offset=offset))

    def _commit(self, client: ClientSession, command: Command) -> Command:
        said = requests.UPDATE_CONSUMER_OFFSET.read(command)
        at = Position(said.consumer_group, said.topic, said.queue_id)
        by = "oneway" if command.oneway else "sync"
        self._commits.commit(at, said.commit_offset, by, client.asker(command))
        return answer(command)

    def _max_offset(self, _: ClientSession, command: Command) -> Command:
        queue = _queue(requests.GET_MAX_OFFSET.read(command))
        return answer(command, fields=requests.OffsetFound(offset=self._store.max_offset(*queue)))

    def _min_offset(self, _: ClientSession, command: Command) -> Command:
        queue = _queue(requests.GET_MIN_OFFSET.read(command))
        return answer(command, fields=requests.OffsetFound(offset=self._store.min_offset(*queue)))

    def _search_offset(self, _: ClientSession, command: Command) -> Command:
        asked = requests.SEARCH_OFFSET.read(command)
        upper = (asked.boundary_type or "").upper() == "UPPER"
        found = self._store.search_offset(*_queue(asked), asked.timestamp, upper=upper)
        return answer(command, fields=requests.OffsetFound(offset=found))

    def _earliest_time(self, _: ClientSession, command: Command) -> Command:
        """-1 for a queue without messages."""
        queue = _queue(requests.GET_EARLIEST_STORE_TIME.read(command))
        first = self._store.min_offset(*queue)
        empty = first >= self._store.max_offset(*queue)
        stored_ms = NO_TIME if empty else self._store.stored_ms(*queue, first)
        return answer(command, fields=requests.TimeFound(timestamp=stored_ms))

    def _lock(self, client: ClientSession, command: Command) -> Command:
        wanted, asker = _of_locks(client, command)
        locked = self._locks.lock(wanted.consumer_group, self._own(wanted), asker)
        name = self._site.broker_name
        queues = [bodies.MessageQueueBody(broker_name=name, queue_id=at.queue_id, topic=at.topic) for at in locked]
        return answer(command, body=bodies.write(bodies.Locked(lock_ok_mq_set=queues)))

    def _unlock(self, client: ClientSession, command: Command) -> Command:
        wanted, asker = _of_locks(client, command)
        self._locks.unlock(wanted.consumer_group, self._own(wanted), asker)
        return answer(command)

    def _own(self, wanted: bodies.LockBatch) -> list[QueueAt]:
        """Queues of other brokers are passed over."""
        name = self._site.broker_name
        return [QueueAt(each.topic, each.queue_id) for each in wanted.mq_set or () if each.broker_name == name]


def _of_locks(client: ClientSession, command: Command) -> tuple[bodies.LockBatch, Asker]:
    """The queues to lock or unlock, and the client that the request names. The session learns its id."""
    wanted = bodies.read(command.body, bodies.LockBatch)
    client.called(wanted.client_id)
    return wanted, client.asker(command)._replace(client_id=wanted.client_id)


def _queue(asked: requests.QueueQuestion) -> tuple[str, int]:
    """One that is not there is as empty as any, as in RocketMQ."""
    return asked.topic, asked.queue_id


def _consumer(data: bodies.ConsumerData) -> Consumer:
    """A client that does not tell how its handlers run, or how queues are allocated, differs from nobody in it."""
    subscriptions = tuple(
        GroupSubscription(each.topic, each.sub_string or "*", each.expression_type or "TAG", each.sub_version)
        for each in data.subscription_data_set or ()
    )
    start = bodies.name_of(data.consume_from_where, bodies.STARTS).removeprefix(START_PREFIX)
    model = bodies.name_of(data.message_model, bodies.MODELS)
    kind = bodies.name_of(data.consume_type, bodies.KINDS)
    return Consumer(data.group_name, model, subscriptions, consume_from=start, kind=kind)
