"""The DeadLetters service. It translates; ``DeadLetters`` decides."""

from typing import Any

import grpc.aio
from dejamq_proto import dead_letters_pb2 as pb
from dejamq_proto.dead_letters_pb2_grpc import DeadLettersServicer
from dejamq_proto.hosts import offset_message_id

from dejamq_broker.dead_letters import DeadLetters, ReplayWish
from dejamq_broker.rpc_values import asker_of
from dejamq_broker.site import Site

Context = grpc.aio.ServicerContext[Any, Any]


class DeadLettersService(DeadLettersServicer):
    """RPC of operators who send dead letters again."""

    def __init__(self, dead_letters: DeadLetters, site: Site) -> None:
        self._dead_letters, self._site = dead_letters, site

    async def Replay(self, request: pb.ReplayRequest, _: Context) -> pb.ReplayResponse:
        """Refused with the codes of ``DeadLetters.replay``."""
        done = await self._dead_letters.replay(ReplayWish(
            group=request.group, log_offset=request.log_offset, to_topic=request.to_topic, again=request.again,
            dry_run=request.dry_run, asker=asker_of(request.caller),
        ))  # fmt: skip
        answer = pb.ReplayResponse(topic=done.topic, replayed_ms=done.earlier_ms)
        if done.stored is not None:
            answer.stored, answer.queue_id = True, done.queue_id
            answer.queue_offset = int(done.stored.queue_offsets[0])
            answer.offset_message_id = offset_message_id(self._site.store_host, int(done.stored.log_offsets[0]))
        return answer
