"""The Running service: clients seen through their channels, and the broker's statistics. It translates only."""

from typing import Any

import grpc.aio
import msgspec
from dejamq_proto import running_pb2 as pb
from dejamq_proto.codes import error_for
from dejamq_proto.running_pb2_grpc import RunningServicer

from dejamq_broker.members.commands import PendingCommands, TakeDirectly, TellRunning
from dejamq_broker.operators.queries import Inspector
from dejamq_broker.operators.stats import CallRates, Stats

Context = grpc.aio.ServicerContext[Any, Any]


class RunningService(RunningServicer):
    """RPC of operators about running clients, and of those clients with their answers."""

    def __init__(self, commands: PendingCommands, inspector: Inspector, stats: Stats, broker_name: str) -> None:
        self._commands, self._inspector, self._stats = commands, inspector, stats
        self._broker_name = broker_name

    async def RunningInfo(self, request: pb.RunningInfoRequest, _: Context) -> pb.RunningInfoResponse:
        """Refused with CONSUMER_NOT_ONLINE or CONSUME_MSG_TIMEOUT, and with the client's own refusal."""
        info = await self._commands.ask(
            request.group, request.client_id, lambda number: TellRunning(number, request.group, request.stacks)
        )
        return pb.RunningInfoResponse(info=info if isinstance(info, pb.ClientInfo) else None)

    async def ConsumeDirectly(self, request: pb.ConsumeDirectlyRequest, _: Context) -> pb.ConsumeDirectlyResponse:
        """As ``RunningInfo``; also QUERY_NOT_FOUND for a message that this broker does not have."""
        record = self._inspector.record_by_id(request.message_id)
        result = await self._commands.ask(
            request.group, request.client_id,
            lambda number: TakeDirectly(number, request.group, self._broker_name, record),
        )  # fmt: skip
        return pb.ConsumeDirectlyResponse(result=result if isinstance(result, pb.DirectResult) else None)

    async def AnswerCommand(self, request: pb.CommandAnswer, _: Context) -> pb.CommandAnswered:
        """Never refused: an answer that nobody waits for any more is no fault of the client."""
        kind = request.WhichOneof("answer")
        answer = getattr(request, kind) if kind and not request.code else error_for(request.code, request.remark)
        self._commands.answered(request.caller.client_id, request.number, answer)
        return pb.CommandAnswered()

    async def Stats(self, request: pb.StatsRequest, _: Context) -> pb.StatsResponse:
        """The counted items, by item and key; empty for an item that was never counted."""
        return pb.StatsResponse(lines=[
            pb.StatsLine(
                item=line.item, key=line.key, minute=_window(line.minute), hour=_window(line.hour),
                day=_window(line.day),
            )
            for line in self._stats.lines(request.item, request.key)
        ])  # fmt: skip


def _window(window: CallRates) -> pb.StatsWindow:
    return pb.StatsWindow(**msgspec.structs.asdict(window))
