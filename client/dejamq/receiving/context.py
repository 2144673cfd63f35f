"""The shared context of one consumer's parts: its identity, its journal, its way to a broker."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
from dejamq_proto.codes import BrokerUnavailable
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.journal.writer import Journal
from dejamq_proto.names import MASTER_ID
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.send_pb2 import SendBackRequest
from dejamq_proto.wire.messages import Key, PullAnswer, SendRun, SendRunResult

from dejamq.net.broker import Claimed
from dejamq.net.instance import Instance
from dejamq.receiving.observer import ConsumerObserver
from dejamq.values.config import ConsumerConfig


class BrokerCalls(Protocol):
    """The requests of a consumer to one broker; ``BrokerLink`` in production. Every method may raise a DejamqError.

    A code that refuses a pull comes in the answer; all other refusals are raised.
    """

    def pull(self, request: PullRequest) -> Awaitable[PullAnswer]: ...

    async def query_offset(self, group: str, topic: str, queue_id: int, *, seq: int = 0) -> int | None: ...

    async def update_offset(
        self, group: str, topic: str, queue_id: int, queue_offset: int, *, seq: int = 0
    ) -> None: ...

    def update_offset_oneway(
        self, group: str, topic: str, queue_id: int, queue_offset: int, *, seq: int = 0
    ) -> None: ...

    def send_run(self, run: SendRun) -> Awaitable[SendRunResult]: ...

    async def lock_batch(self, group: str, keys: Sequence[Key], *, timeout_ms: float, seq: int = 0) -> set[Key]: ...

    def unlock_batch_oneway(
        self, group: str, keys: Sequence[Key], *, timeout_ms: float, seq: int = 0
    ) -> asyncio.Future[None]: ...

    async def claim(self, group: str, claims: Sequence[tuple[Key, int]]) -> Claimed: ...

    async def release(self, group: str, returned: Sequence[tuple[Key, int, int]], *, seq: int = 0) -> set[Key]: ...

    def release_oneway(self, group: str, returned: Sequence[tuple[Key, int, int]]) -> None: ...

    async def consumer_list(self, group: str, *, seq: int = 0) -> list[str]: ...

    async def max_offset(self, topic: str, queue_id: int) -> int: ...

    async def min_offset(self, topic: str, queue_id: int) -> int: ...

    async def search_offset(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int: ...

    async def send_back(self, request: SendBackRequest) -> None: ...


class ConsumerContext(msgspec.Struct, frozen=True):
    """One started consumer as its parts see it; tests put other links and journals in."""

    group: str
    client_id: str
    config: ConsumerConfig
    journal: Journal
    next_seq: Callable[[], int]
    link: Callable[[str], BrokerCalls]
    """The connection to a broker's master by broker name, or to a slave in its absence.

    Raises BrokerUnavailable while no route names any of them.
    """
    replica: Callable[[str, int], tuple[BrokerCalls, int]] | None = None
    """The connection to this replica, or to another one when it is away, and the id of the one that it is."""
    age_s: Callable[[], float] = time.monotonic
    """What the ages of locks, pulls and handlers are counted by."""
    observer: ConsumerObserver | None = None

    def reading(self, broker_name: str, broker_id: int) -> tuple[BrokerCalls, int]:
        """Where to pull from. Raises as ``link``."""
        if self.replica is None:
            return self.link(broker_name), MASTER_ID
        return self.replica(broker_name, broker_id)

    def master(self, broker_name: str) -> BrokerCalls:
        """For what only a master may decide, as who has a lock. Raises BrokerUnavailable while it is away."""
        link, broker_id = self.reading(broker_name, MASTER_ID)
        if broker_id != MASTER_ID:
            raise BrokerUnavailable(f"{broker_name} has no master now, only slaves", definite=True)
        return link

    @property
    def boot_id(self) -> str:
        """Names this start in every journal."""
        return self.journal.boot_id

    def caller(self, seq: int) -> Caller:
        """The caller's identity, for a request whose number was taken before."""
        return Caller(client_id=self.client_id, boot_id=self.boot_id, seq=seq)


def context_of(
    instance: Instance, config: ConsumerConfig, group: str, observer: ConsumerObserver | None = None
) -> ConsumerContext:
    """The context of a started instance; links go to a broker's master, or to whoever serves in its absence."""

    def replica(broker_name: str, broker_id: int) -> tuple[BrokerCalls, int]:
        found = instance.routes.replica(broker_name, broker_id)
        if found is None:
            raise BrokerUnavailable(f"no route names broker {broker_name!r} at the moment", definite=True)
        return instance.link(found[1]), found[0]

    def link(broker_name: str) -> BrokerCalls:
        return replica(broker_name, MASTER_ID)[0]

    return ConsumerContext(
        group, instance.client_id, config, instance.journal, instance.next_seq, link, replica, instance.clock.age_s,
        observer,
    )  # fmt: skip
