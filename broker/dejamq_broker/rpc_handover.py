"""The Handover service: claims on queues. It translates; ``Handovers`` decides."""

from typing import Any

import grpc.aio
from dejamq_proto import client_pb2 as pb
from dejamq_proto.client_pb2_grpc import HandoverServicer
from dejamq_proto.common_pb2 import QueueKey

from dejamq_broker.handover import Wish
from dejamq_broker.handover_service import Handovers, Returned
from dejamq_broker.locks import QueueAt
from dejamq_broker.rpc_values import asker_of, group_of, queue_at

Context = grpc.aio.ServicerContext[Any, Any]


class HandoverService(HandoverServicer):
    """RPC of members with graceful hand-over."""

    def __init__(self, handovers: Handovers) -> None:
        self._handovers = handovers

    async def Claim(self, request: pb.ClaimRequest, _: Context) -> pb.ClaimResponse:
        """Refused as a whole only for impossible names: the answer names what the caller holds."""
        wishes = [Wish(queue_at(each.queue), each.generation) for each in request.claims]
        granted = self._handovers.claim(group_of(request.group), wishes, asker_of(request.caller))
        claims = [pb.QueueClaim(queue=_key(each.queue), generation=each.generation) for each in granted]
        return pb.ClaimResponse(granted=claims)

    async def Release(self, request: pb.ReleaseRequest, _: Context) -> pb.ReleaseResponse:
        """Refused as a whole only for impossible names: the answer names what was the caller's."""
        returned = [
            Returned(Wish(queue_at(each.queue), each.generation), None if each.offset < 0 else each.offset)
            for each in request.releases
        ]
        freed = self._handovers.release(group_of(request.group), returned, asker_of(request.caller))
        return pb.ReleaseResponse(released=map(_key, freed))


def _key(at: QueueAt) -> QueueKey:
    return QueueKey(topic=at.topic, queue_id=at.queue_id)
