"""The Client service: heartbeats, member lists and offsets. It translates; the tables decide."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

import grpc.aio
from dejamq_proto import client_pb2 as pb
from dejamq_proto import failpoints
from dejamq_proto.access.admission import HEARER, Admit, admission, hearer
from dejamq_proto.access.guard import Guard
from dejamq_proto.client_pb2_grpc import ClientServicer
from dejamq_proto.codes import DejamqError
from dejamq_proto.common_pb2 import QueueKey
from dejamq_proto.serving.acceptor import Acceptor
from dejamq_proto.serving.faults import frame_lost

from dejamq_broker.base.streams import Outbox, Streams
from dejamq_broker.deferred.transactions.check import CheckProducer
from dejamq_broker.doors.hearing import may_hear
from dejamq_broker.doors.v1.values import asker_of, group_of, queue_at
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.commands import TakeDirectly, TellOffsets, TellRunning
from dejamq_broker.members.connections import peer_text
from dejamq_broker.members.groups import GRACEFUL, Channel, Consumer, GroupSubscription
from dejamq_broker.members.lock_service import LockService
from dejamq_broker.paths.commits import Commits
from dejamq_broker.tables.offsets import Asker, OffsetTable, Position
from dejamq_broker.tables.topics import TopicTable, check_queue

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore


# Commands of the broker as they go down a client's channel.


def command_to_proto(command: object) -> pb.BrokerCommand:
    """The command in protobuf's clothes. Raises TypeError for an object that is no command."""
    match command:
        case TellRunning():
            told = pb.TellRunningInfo(number=command.number, group=command.group, stacks=command.stacks)
            return pb.BrokerCommand(tell_running_info=told)
        case TellOffsets():
            return pb.BrokerCommand(tell_running_info=pb.TellRunningInfo(number=command.number, group=command.group))
        case TakeDirectly():
            taken = pb.TakeDirectly(
                number=command.number, group=command.group, broker_name=command.broker_name, record=command.record
            )
            return pb.BrokerCommand(take_directly=taken)
        case CheckProducer():
            asked = pb.CheckTransaction(
                group=command.group, record=command.record, half_queue_offset=command.half_queue_offset,
                half_log_offset=command.half_log_offset, check_times=command.check_times,
                broker_name=command.broker_name,
            )  # fmt: skip
            return pb.BrokerCommand(check_transaction=asked)
        case _:
            raise TypeError(f"{command!r} is no command for clients")


Context = grpc.aio.ServicerContext[Any, Any]
ASKED_FOR = frozenset({"heartbeat_ack", "consumer_list", "commit_refused"})
"""Commands that answer what came up the same stream: each had to wait for a place in the outbox."""
CALLS = {"commits": "UpdateOffset", "consumer_list": "ConsumerList"}
"""Frames that say what others make a call of: its failpoints are theirs."""


class ClientService(ClientServicer):
    """RPC of clients other than send and pull."""

    def __init__(
        self, clients: Clients, streams: Streams, store: "MessageStore", topics: TopicTable, commits: Commits,
        offsets: OffsetTable, locks: LockService, acceptor: Acceptor, *, backlog_bytes: int,
        guard: Guard | None = None,
    ) -> None:  # fmt: skip
        """``backlog_bytes`` of replies may wait for one client."""
        self._backlog_bytes, self._guard = backlog_bytes, guard
        self._clients, self._streams, self._store, self._acceptor = clients, streams, store, acceptor
        self._topics, self._commits, self._offsets, self._locks = topics, commits, offsets, locks

    async def ClientChannel(  # type: ignore[override]  # grpc.aio also takes a coroutine that writes by itself
        self, beats: AsyncIterator[pb.Heartbeat], context: Context
    ) -> None:
        """Heartbeats in, commands out; its end makes the client leave all its groups.

        Acknowledgements and commands leave through one outbox in the order in which they were decided. A
        heartbeat that is refused is answered with its code and ends nothing: the client's other groups stay. Idle
        consumers' commits and questions for members come this way as well: a call costs three times a frame.
        """
        peer = self._acceptor.true_peer(context.peer())
        asked = self._guard, "/dejamq.v1.Client/ClientChannel", context, peer
        admit, heard_by = admission(*asked), hearer(*asked)

        def offer(command: object) -> bool:
            return may_hear(heard_by, command) and self._offer(outbox, command_to_proto(command))

        with self._streams.outbox() as outbox:
            channel = self._clients.open(
                lambda group: outbox.put_once(_ids_changed(group), group),
                lambda record, _: heard_by.is_there() and self._offer(outbox, _reply(record)),
                command=offer, address=peer_text(peer),
            )  # fmt: skip
            self._clients.peer(channel).user = heard_by.name
            try:
                async with asyncio.TaskGroup() as tasks:
                    reader = tasks.create_task(self._read(beats, channel, outbox, admit))
                    while (command := await outbox.get()) is not None:
                        if isinstance(command, pb.BrokerCommand) and command.WhichOneof("command") in ASKED_FOR:
                            outbox.made_room()
                        await context.write(command)
                    reader.cancel()
            finally:
                self._clients.close(channel)

    async def Unregister(self, request: pb.UnregisterRequest, _: Context) -> pb.UnregisterResponse:
        """Leaving a group twice, or one that the client was never in, is no error (RocketMQ: ClientManageProcessor)."""
        if request.consumer_group:
            self._clients.unregister(asker_of(request.caller), request.consumer_group)
        if request.producer_group:
            self._clients.unregister_producer(asker_of(request.caller), request.producer_group, HEARER.get())
        return pb.UnregisterResponse()

    async def ConsumerList(self, request: pb.ConsumerListRequest, _: Context) -> pb.ConsumerListResponse:
        """Refused with SYSTEM_ERROR for a group without members."""
        members = self._clients.members(request.group, asker_of(request.caller))
        return pb.ConsumerListResponse(client_ids=members)

    async def QueryOffset(self, request: pb.QueryOffsetRequest, _: Context) -> pb.OffsetResponse:
        """Refused with QUERY_NOT_FOUND where the client's own rule decides; a request with several questions is never
        refused.
        """
        if request.also:
            return pb.OffsetResponse(answers=[self._answer(each) for each in (request, *request.also)])
        return pb.OffsetResponse(offset=self._query_offset(request))

    def _answer(self, request: pb.QueryOffsetRequest) -> pb.OffsetAnswer:
        try:
            return pb.OffsetAnswer(offset=self._query_offset(request))
        except DejamqError as error:
            return pb.OffsetAnswer(code=int(error.code), remark=str(error))

    def _query_offset(self, request: pb.QueryOffsetRequest) -> int:
        at = Position(request.group, request.queue.topic, request.queue.queue_id)
        zero = request.set_zero_if_not_found or not request.HasField("set_zero_if_not_found")
        return self._offsets.query(at, self._store, asker_of(request.caller), zero_if_young=zero)

    async def UpdateOffset(self, request: pb.UpdateOffsetRequest, _: Context) -> pb.UpdateOffsetResponse:
        """Refused with the codes of ``Commits.commit``."""
        refusals = [self._update_offset(each) for each in (request, *request.also)]
        if request.answer_each:
            return pb.UpdateOffsetResponse(answers=map(_commit_answer, refusals))
        _raise_first(refusals)
        return pb.UpdateOffsetResponse()

    def _update_offset(self, request: pb.UpdateOffsetRequest) -> DejamqError | None:
        at = Position(request.group, request.queue.topic, request.queue.queue_id)
        by = "oneway" if request.oneway else "sync"
        return self._commit(at, request.offset, by, asker_of(request.caller))

    def _commit(self, at: Position, offset: int, by: str, asker: Asker) -> DejamqError | None:
        """Why it was refused, None when it was taken; those that come with it are decided by themselves."""
        try:
            self._commits.commit(at, offset, by, asker)
        except DejamqError as error:
            return error
        return None

    async def MaxOffset(self, request: pb.QueueRequest, _: Context) -> pb.OffsetResponse:
        """The queue offset after the last entry that consumers can see. Refused for an unknown topic or queue."""
        return pb.OffsetResponse(offset=self._store.max_offset(*self._queue(request.queue)))

    async def MinOffset(self, request: pb.QueueRequest, _: Context) -> pb.OffsetResponse:
        """The queue offset of the first message that is still there. Refused for an unknown topic or queue."""
        return pb.OffsetResponse(offset=self._store.min_offset(*self._queue(request.queue)))

    async def SearchOffset(self, request: pb.SearchOffsetRequest, _: Context) -> pb.OffsetResponse:
        """By store time, with RocketMQ's two boundary types. Refused for an unknown topic or queue."""
        topic, queue_id = self._queue(request.queue)
        found = self._store.search_offset(topic, queue_id, request.timestamp_ms, upper=request.upper)
        return pb.OffsetResponse(offset=found)

    async def LockBatch(self, request: pb.LockBatchRequest, _: Context) -> pb.LockBatchResponse:
        """Refused as a whole only for impossible names: the answer names what the caller holds."""
        locked = self._locks.lock(
            group_of(request.group), list(map(queue_at, request.queues)), asker_of(request.caller)
        )
        return pb.LockBatchResponse(locked=[QueueKey(topic=at.topic, queue_id=at.queue_id) for at in locked])

    async def UnlockBatch(self, request: pb.UnlockBatchRequest, _: Context) -> pb.UnlockBatchResponse:
        """Refused only for impossible names; locks that are not the caller's stay locked."""
        self._locks.unlock(group_of(request.group), list(map(queue_at, request.queues)), asker_of(request.caller))
        return pb.UnlockBatchResponse()

    def _queue(self, key: QueueKey) -> tuple[str, int]:
        check_queue(self._topics.require(key.topic), key.queue_id)
        return key.topic, key.queue_id

    def _offer(self, outbox: Outbox[object], command: pb.BrokerCommand) -> bool:
        """The commands and requests that others have for this client, as long as it reads."""
        return outbox.offer(command, command.ByteSize(), self._backlog_bytes)

    async def _read(
        self, frames: AsyncIterator[pb.Heartbeat], channel: Channel, outbox: Outbox[object], admit: Admit
    ) -> None:
        """Frames until the client closes its side, which ends the stream after the last answer.

        A place for the answer comes first: answers that are decided then leave before all later ones.
        """
        async with asyncio.TaskGroup() as held:
            async for frame in frames:
                method = CALLS.get(frame.WhichOneof("instead") or "")
                if failpoints.ARMED and method:  # as a call would: a request that is held here holds up no other
                    held.create_task(self._at_failpoints(method, frame, channel, outbox, admit))
                    continue
                await outbox.room()
                if (answer := self._decide(frame, channel, admit)) is not None:
                    outbox.put(answer)
                else:
                    outbox.made_room()
        outbox.end()

    async def _at_failpoints(
        self, method: str, frame: pb.Heartbeat, channel: Channel, outbox: Outbox[object], admit: Admit
    ) -> None:  # fmt: skip
        try:
            if await frame_lost(method):
                return
            answer = self._decide(frame, channel, admit)
            if await frame_lost(method, "answer"):
                return
        except DejamqError as error:
            answer = _refused(frame, error)
        if answer is not None:
            await outbox.room()
            outbox.put(answer)

    def _decide(self, frame: pb.Heartbeat, channel: Channel, admit: Admit) -> pb.BrokerCommand | None:
        try:
            admit(frame)
            match frame.WhichOneof("instead"):
                case "commits":
                    self._commit_all(frame.commits)
                    return None
                case "consumer_list":
                    return self._members(frame.consumer_list)
                case _:
                    return self._beat(frame, channel)
        except DejamqError as error:
            return _refused(frame, error)

    def _beat(self, beat: pb.Heartbeat, channel: Channel) -> pb.BrokerCommand:
        ack = pb.HeartbeatAck(seq=beat.caller.seq, takes_more=True)
        peer = self._clients.peer(channel)
        peer.version, peer.language = beat.version, beat.language or "PYTHON"
        try:
            ack.remark = self._clients.heartbeat(
                channel, asker_of(beat.caller), map(_consumer, beat.consumers), beat.producer_groups
            )
        except DejamqError as error:
            ack.code, ack.remark = int(error.code), str(error)
        return pb.BrokerCommand(heartbeat_ack=ack)

    def _commit_all(self, commits: pb.Commits) -> None:
        """As ``UpdateOffset`` of several; nobody waits for an answer, and only the first refusal is worth one."""
        group, client_id, boot_id = commits.group, commits.caller.client_id, commits.caller.boot_id
        _raise_first([
            self._commit(
                Position(group, each.topic, each.queue_id), each.offset, "oneway", Asker(client_id, boot_id, each.seq)
            )
            for each in commits.queues
        ])  # fmt: skip

    def _members(self, request: pb.ConsumerListRequest) -> pb.BrokerCommand:
        """As ``ConsumerList``."""
        members = self._clients.members(request.group, asker_of(request.caller))
        return pb.BrokerCommand(consumer_list=pb.ConsumerListAnswer(seq=request.caller.seq, client_ids=members))


def _raise_first(refusals: Iterable[DejamqError | None]) -> None:
    for refusal in filter(None, refusals):
        raise refusal


def _commit_answer(refusal: DejamqError | None) -> pb.OffsetAnswer:
    return pb.OffsetAnswer(code=int(refusal.code), remark=str(refusal)) if refusal else pb.OffsetAnswer()


def _refused(frame: pb.Heartbeat, error: DejamqError) -> pb.BrokerCommand:
    code, remark = int(error.code), str(error)
    if frame.HasField("commits"):
        return pb.BrokerCommand(commit_refused=pb.CommitRefused(code=code, remark=remark))
    seq = frame.consumer_list.caller.seq
    return pb.BrokerCommand(consumer_list=pb.ConsumerListAnswer(seq=seq, code=code, remark=remark))


def _consumer(data: pb.ConsumerData) -> Consumer:
    subscriptions = tuple(
        GroupSubscription(each.topic, each.expression, each.expression_type, each.version)
        for each in data.subscriptions
    )
    handlers = "" if not data.allocation else "in order" if data.ordered else "concurrent"
    handover = "" if not data.allocation else GRACEFUL if data.graceful_handover else "immediate"
    return Consumer(
        data.group, data.message_model, subscriptions, handlers, data.consume_from, data.allocation, handover
    )  # fmt: skip


def _ids_changed(group: str) -> pb.BrokerCommand:
    return pb.BrokerCommand(consumer_ids_changed=pb.ConsumerIdsChanged(group=group))


def _reply(record: bytes) -> pb.BrokerCommand:
    return pb.BrokerCommand(reply=pb.Reply(record=record))
