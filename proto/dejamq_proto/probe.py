"""``python -m dejamq_proto.probe [--service NAME] [HOST:PORT …]``: is a server of ours serving? For health checks.

Exit 0 when every address answers SERVING to gRPC's health call, 1 when one does not, 2 for bad use. Without an address
the two default ports of this machine are asked, and one that serves is enough: an image does not know its role. NAME is
``readiness`` (what is asked without one), ``liveness``, or a service such as ``dejamq.v1.Send``. ``DEJAMQ_TLS_CA`` and
its like make it dial with TLS, as clients do.
"""

import asyncio
import sys
from collections.abc import Sequence

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dejamq_proto.codes import ConfigError
from dejamq_proto.wire.calling import dial
from dejamq_proto.wire.tls import ClientTls

DEFAULT_ADDRESSES = ("127.0.0.1:9876", "127.0.0.1:10911")  # a name server's and a broker's, as in RocketMQ
TIMEOUT_MS = 3_000


async def state_of(
    address: str, timeout_ms: int = TIMEOUT_MS, *, service: str = "", tls: ClientTls | None = None
) -> str:
    """SERVING, NOT_SERVING…, or gRPC's word for why nothing was said (UNAVAILABLE, DEADLINE_EXCEEDED…)."""
    async with dial(address, tls) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


async def probe(addresses: Sequence[str], service: str = "") -> bool:
    """Whether all of ``addresses`` serve; without any, whether one of the defaults does. Prints one line each."""
    asked, tls = addresses or DEFAULT_ADDRESSES, ClientTls.from_environment()
    states = await asyncio.gather(*(state_of(address, service=service, tls=tls) for address in asked))
    for address, state in zip(asked, states, strict=True):
        print(f"{address} {state}")
    serving = [state == "SERVING" for state in states]
    return all(serving) if addresses else any(serving)


def main() -> int:
    addresses, service = sys.argv[1:], ""
    if addresses[:1] == ["--service"]:
        service, addresses = "".join(addresses[1:2]), addresses[2:]
    if wrong := [address for address in addresses if not address.rpartition(":")[2].isdigit() or address[0] in ":-"]:
        print(f"dejamq-probe: {wrong[0]!r} is not HOST:PORT", file=sys.stderr)
        return 2
    try:
        return 0 if asyncio.run(probe(addresses, service)) else 1
    except ConfigError as error:
        print(f"dejamq-probe: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
