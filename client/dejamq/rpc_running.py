"""What operators ask a broker about its clients: the Running service. One channel, for the time of a question."""

from collections.abc import Awaitable, Callable
from typing import Any, Self

from dejamq_proto import running_pb2 as pb
from dejamq_proto.calling import call, dial
from dejamq_proto.running_pb2_grpc import RunningStub

from dejamq.identity import Identity


class RunningLink:
    """``async with`` closes it."""

    def __init__(self, address: str, identity: Identity, *, timeout_ms: float) -> None:
        self.address, self._identity, self._timeout_ms = address, identity, timeout_ms
        self._channel = dial(address)
        self._stub: Any = RunningStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def running_info(self, group: str, client_id: str, *, stacks: bool) -> pb.ClientInfo:
        """What the client tells. Raises DejamqError with CONSUMER_NOT_ONLINE or CONSUME_MSG_TIMEOUT."""
        caller = self._identity.caller()
        request = pb.RunningInfoRequest(caller=caller, group=group, client_id=client_id, stacks=stacks)
        info: pb.ClientInfo = (await self._call(self._stub.RunningInfo, request)).info
        return info

    async def consume_directly(self, group: str, client_id: str, message_id: str) -> pb.DirectResult:
        """How the handler ended. Raises as ``running_info``, and with QUERY_NOT_FOUND."""
        caller = self._identity.caller()
        request = pb.ConsumeDirectlyRequest(caller=caller, group=group, client_id=client_id, message_id=message_id)
        result: pb.DirectResult = (await self._call(self._stub.ConsumeDirectly, request)).result
        return result

    async def stats(self, item: str, key: str) -> list[pb.StatsLine]:
        """What the broker counted, '' for everything."""
        request = pb.StatsRequest(caller=self._identity.caller(), item=item, key=key)
        return list((await self._call(self._stub.Stats, request)).lines)

    async def _call(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        return await call(method, request, address=self.address, timeout_ms=self._timeout_ms)
