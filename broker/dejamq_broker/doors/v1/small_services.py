"""The services Transaction, DeadLetters and Handover. They translate; the domain decides."""

from typing import Any

import grpc.aio
from dejamq_proto import client_pb2, dead_letters_pb2
from dejamq_proto import transaction_pb2 as pb
from dejamq_proto.client_pb2_grpc import HandoverServicer
from dejamq_proto.common_pb2 import QueueKey
from dejamq_proto.dead_letters_pb2_grpc import DeadLettersServicer
from dejamq_proto.records.hosts import offset_message_id
from dejamq_proto.transaction_pb2_grpc import TransactionServicer

from dejamq_broker.base.identity import Site
from dejamq_broker.base.streams import Streams
from dejamq_broker.deferred.dead_letters import DeadLetters, ReplayWish
from dejamq_broker.deferred.transactions.service import Ending, Transactions
from dejamq_broker.doors.v1.values import asker_of, group_of, queue_at
from dejamq_broker.members.handover import QueueWish
from dejamq_broker.members.handover_service import Handovers, Returned
from dejamq_broker.members.locks import QueueAt

Context = grpc.aio.ServicerContext[Any, Any]


# The DeadLetters service. It translates; DeadLetters decides.


class DeadLettersService(DeadLettersServicer):
    """RPC of operators who send dead letters again."""

    def __init__(self, dead_letters: DeadLetters, site: Site) -> None:
        self._dead_letters, self._site = dead_letters, site

    async def Replay(self, request: dead_letters_pb2.ReplayRequest, _: Context) -> dead_letters_pb2.ReplayResponse:
        """Refused with the codes of ``DeadLetters.replay``."""
        done = await self._dead_letters.replay(ReplayWish(
            group=request.group, log_offset=request.log_offset, to_topic=request.to_topic, again=request.again,
            dry_run=request.dry_run, asker=asker_of(request.caller),
        ))  # fmt: skip
        answer = dead_letters_pb2.ReplayResponse(topic=done.topic, replayed_ms=done.earlier_ms)
        if done.stored is not None:
            answer.stored, answer.queue_id = True, done.queue_id
            answer.queue_offset = int(done.stored.queue_offsets[0])
            answer.offset_message_id = offset_message_id(self._site.store_host, int(done.stored.log_offsets[0]))
        return answer


# The Handover service: claims on queues. It translates; Handovers decides.


class HandoverService(HandoverServicer):
    """RPC of members with graceful hand-over."""

    def __init__(self, handovers: Handovers) -> None:
        self._handovers = handovers

    async def Claim(self, request: client_pb2.ClaimRequest, _: Context) -> client_pb2.ClaimResponse:
        """Refused as a whole only for impossible names: the answer names what the caller holds."""
        wishes = [QueueWish(queue_at(each.queue), each.generation) for each in request.claims]
        granted = self._handovers.claim(group_of(request.group), wishes, asker_of(request.caller))
        claims = [client_pb2.QueueClaim(queue=_key(each.queue), generation=each.generation) for each in granted]
        return client_pb2.ClaimResponse(granted=claims, off=self._handovers.off(request.group))

    async def Release(self, request: client_pb2.ReleaseRequest, _: Context) -> client_pb2.ReleaseResponse:
        """Refused as a whole only for impossible names: the answer names what was the caller's."""
        returned = [
            Returned(QueueWish(queue_at(each.queue), each.generation), None if each.offset < 0 else each.offset)
            for each in request.releases
        ]
        freed = self._handovers.release(group_of(request.group), returned, asker_of(request.caller))
        return client_pb2.ReleaseResponse(released=map(_key, freed))


def _key(at: QueueAt) -> QueueKey:
    return QueueKey(topic=at.topic, queue_id=at.queue_id)


class TransactionService(TransactionServicer):
    """RPC of producers of transactions; they send it oneway and read no answer."""

    def __init__(self, transactions: Transactions, streams: Streams) -> None:
        self._transactions, self._streams = transactions, streams

    async def EndTransaction(self, request: pb.EndTransactionRequest, _: Context) -> pb.EndTransactionResponse:
        """Refused with the codes of ``Transactions.end``."""
        with self._streams.running():
            self._transactions.end(Ending(
                group=request.group, half_queue_offset=request.half_queue_offset,
                half_log_offset=request.half_log_offset, state=request.state, from_check=request.from_check,
                asker=asker_of(request.caller),
            ))  # fmt: skip
        return pb.EndTransactionResponse()
