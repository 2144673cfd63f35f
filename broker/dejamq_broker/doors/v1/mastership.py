"""One replica's questions to one name server about who is master."""

import itertools
from collections.abc import Callable

from dejamq_proto import namesrv_pb2 as pb
from dejamq_proto.account import Account
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.namesrv_pb2_grpc import NameServerStub
from dejamq_proto.wire.calling import call, dial
from dejamq_proto.wire.tls import ClientTls

from dejamq_broker.replication.mastership import GrantAnswer, MastershipWish, Role

WISHES = {"look": pb.MASTERSHIP_LOOK, "take": pb.MASTERSHIP_TAKE, "renew": pb.MASTERSHIP_RENEW}


class NameServerGranter:
    """A ``Granter`` over gRPC, by a connection of its own: what hangs elsewhere delays no lease."""

    def __init__(
        self, address: str, cluster: str, broker_name: str, account: Callable[[], Account | None],
        tls: ClientTls | None = None,
    ) -> None:  # fmt: skip
        self.address, self._cluster, self._broker_name = address, cluster, broker_name
        self._channel = dial(address, tls, account)
        self._stub = NameServerStub(self._channel)
        self._numbers = itertools.count(1)

    async def ask(self, wish: MastershipWish, role: Role, lease_ms: int, timeout_ms: float) -> GrantAnswer:
        """Raises the DejamqError that the answer, or its absence, means."""
        request = pb.MastershipRequest(
            caller=Caller(client_id=self._broker_name, boot_id=role.replica, seq=next(self._numbers)),
            wish=WISHES[wish.kind], cluster=self._cluster, broker_name=self._broker_name, replica=role.replica,
            broker_id=role.came_from if role.master else role.broker_id, epoch=wish.epoch, followed=wish.followed,
            lease_ms=lease_ms, ended=role.ended, before=role.before,
        )  # fmt: skip
        answer = await call(self._stub.Mastership, request, address=self.address, timeout_ms=timeout_ms)
        return GrantAnswer(
            done=answer.done, reason=answer.reason, granted_epoch=answer.granted_epoch,
            granted_replica=answer.granted_replica, confirmed_epoch=answer.confirmed_epoch,
            confirmed_replica=answer.confirmed_replica, confirmed_broker_id=answer.confirmed_broker_id,
            silent_ms=answer.silent_ms, other_process=answer.other_process,
        )  # fmt: skip

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close(None)
