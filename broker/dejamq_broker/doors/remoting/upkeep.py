"""The upkeep of a broker by RocketMQ's tools: clean-ups, queues entry by entry, replication, given up transactions.

Source: RocketMQ ``AdminBrokerProcessor``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import decode
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command

from dejamq_broker.base.identity import Site
from dejamq_broker.deferred.transactions.service import Transactions
from dejamq_broker.doors.remoting.session import ClientSession, Handler
from dejamq_broker.doors.remoting.told import subscription_told
from dejamq_broker.members.clients import Clients
from dejamq_broker.operators.deletion import Lives
from dejamq_broker.operators.queries import Inspector
from dejamq_broker.replication.slave_progress import HaStatus

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

MOST_ENTRIES = 1_000
"""Of one answer; RocketMQ sets no limit."""


class UpkeepRequests:
    """Owned by the event loop."""

    def __init__(
        self, site: Site, store: "MessageStore", lives: Lives, transactions: Transactions, inspector: Inspector,
        clients: Clients, ha_status: Callable[[], HaStatus],
    ) -> None:  # fmt: skip
        self._site, self._store, self._lives, self._transactions = site, store, lives, transactions
        self._inspector, self._clients, self._ha_status = inspector, clients, ha_status

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        table: tuple[tuple[requests.RequestKind[Any], Handler], ...] = (
            (requests.CLEAN_EXPIRED_QUEUES, self._clean_queues), (requests.CLEAN_UNUSED_TOPICS, self._clean_topics),
            (requests.DELETE_EXPIRED_LOG, self._delete_log), (requests.QUERY_QUEUE_ENTRIES, self._entries),
            (requests.RESUME_HALF_MESSAGE, self._resume), (requests.GET_HA_STATUS, self._ha),
        )  # fmt: skip
        return {request.code: handler for request, handler in table}

    def _clean_queues(self, _: ClientSession, command: Command) -> Command:
        """Answered at once; the store does it at its next look."""
        self._store.follow_soon()
        return answer(command)

    def _delete_log(self, _: ClientSession, command: Command) -> Command:
        """As ``_clean_queues``."""
        self._store.clean_soon()
        return answer(command)

    async def _clean_topics(self, _: ClientSession, command: Command) -> Command:
        """A slave's queues may be of topics that it has not heard of yet: it deletes as its master does."""
        if self._site.master:
            await self._lives.clean_unused()
        return answer(command)

    def _entries(self, _: ClientSession, command: Command) -> Command:
        """An index outside the queue is SUCCESS without a body, as in RocketMQ."""
        asked = requests.QUERY_QUEUE_ENTRIES.read(command)
        topic, queue_id, group = asked.topic, asked.queue_id, asked.consumer_group
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if (topic, queue_id) not in self._store.queues():
            raise DejamqError(f"{queue_id}@{topic} is not exist!", code=Code.SYSTEM_ERROR, definite=True)
        if not low <= asked.index < high:
            return answer(command, remark=f"Index {asked.index} of {queue_id}@{topic} is not exist!")
        found = self._store.queue_entries(topic, queue_id, asked.index, min(asked.count, MOST_ENTRIES))
        body = bodies.QueueEntries(
            max_queue_index=high, min_queue_index=low,
            queue_data=[
                bodies.QueueEntry(physic_offset=at, physic_size=size, tags_code=tags) for at, size, tags in found
            ],
        )  # fmt: skip
        if group is not None:
            subscribed = self._clients.groups.subscription(group, topic)
            body.filter_data = "null" if subscribed else f"{group}@{topic} is not online!"
            body.subscription_data = subscription_told(subscribed) if subscribed else None
        return answer(command, body=bodies.write(body))

    def _resume(self, _: ClientSession, command: Command) -> Command:
        """RocketMQ has one code for all that is wrong."""
        message_id = requests.RESUME_HALF_MESSAGE.read(command).msg_id
        try:
            self._transactions.resume(decode(self._inspector.record_by_id(message_id), check_crc=False))
        except DejamqError as error:
            raise DejamqError(str(error), code=Code.SYSTEM_ERROR, definite=error.definite) from None
        return answer(command)

    def _ha(self, _: ClientSession, command: Command) -> Command:
        status = self._ha_status()
        if status.master_address is not None:
            client = bodies.HaClient(
                master_addr=status.master_address, master_flush_offset=status.master_end, max_offset=status.log_end,
                last_read_timestamp=status.heard_ms, last_write_timestamp=status.heard_ms,
            )  # fmt: skip
            return answer(command, body=bodies.write(bodies.HaRuntime(master=False, ha_client_runtime_info=client)))
        slaves = [
            bodies.HaConnection(
                addr=one.address, diff=status.log_end - one.acknowledged, in_sync=one.in_sync,
                slave_ack_offset=one.acknowledged, transfer_from_where=one.sent,
            )
            for one in status.slaves
        ]  # fmt: skip
        return answer(command, body=bodies.write(bodies.HaRuntime(
            master=True, master_commit_log_max_offset=status.log_end, ha_connection_info=slaves,
            in_sync_slave_nums=sum(one.in_sync for one in status.slaves),
        )))  # fmt: skip
