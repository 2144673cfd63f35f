"""Running clients as an operator sees them through their brokers, and one message for one member's handler."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TypeVar

import msgspec
from dejamq_proto import running_pb2 as pb
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import check_group

from dejamq.admin.calls import RunningLink
from dejamq.admin.messages import StoredMessages
from dejamq.values.message import MessageQueue

Answer = TypeVar("Answer")
ANSWER_TIMEOUT_MS = 12_000
"""A broker waits 10 s for the client."""


class RunningQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue that a consumer owns. Times are ms since 1970, 0 for never; ``*_cached_offset`` -1 without messages.

    RocketMQ: ``ProcessQueueInfo``. ``max_offset`` is the end that the broker told last, -1 before it did.
    """

    queue: MessageQueue
    commit_offset: int
    next_offset: int
    min_cached_offset: int
    max_cached_offset: int
    cached_messages: int
    cached_bytes: int
    in_flight: int
    locked: bool
    locked_ms: int
    dropped: bool
    last_pull_ms: int
    last_consume_ms: int
    max_offset: int
    generation: int

    @property
    def lag(self) -> int | None:
        """Messages of the queue that are not done here; None before the broker told its end."""
        return None if self.max_offset < 0 else max(0, self.max_offset - self.commit_offset)


class RunningStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of one topic in the last minute. RocketMQ: ``ConsumeStatus``."""

    pull_rt_ms: float
    pull_tps: float
    consume_rt_ms: float
    consume_ok_tps: float
    consume_failed_tps: float
    consume_failed_msgs: int


class RunningSubscription(msgspec.Struct, frozen=True):
    """A consumer's subscription to one topic."""

    topic: str
    expression: str
    expression_type: str
    version: int


class RunningInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A client at one moment. ``properties`` have RocketMQ's names, ``settings`` ours, ``state`` is of this moment.

    Topics and groups are as brokers know them, with a namespace where there is one. A producer has neither
    subscriptions nor queues, a lite pull consumer no statuses.
    """

    group: str
    client_id: str
    broker_name: str
    properties: dict[str, str]
    settings: dict[str, str]
    state: dict[str, str]
    subscriptions: list[RunningSubscription]
    queues: list[RunningQueue]
    statuses: dict[str, RunningStatus]
    stacks: str


class DirectOutcome(StrEnum):
    """How a handler ended with a message that was given to it directly. RocketMQ: ``CMResult``."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    THROW_EXCEPTION = "THROW_EXCEPTION"


class DirectResult(msgspec.Struct, frozen=True):
    """``remark`` says why it is not SUCCESS. No offset moved, and a failure is not tried again."""

    outcome: DirectOutcome
    remark: str
    ordered: bool
    auto_commit: bool
    spent_ms: int


class StatsWindow(msgspec.Struct, frozen=True):
    """``tps`` is by the second of the time that was looked at, ``average`` by call."""

    sum: int
    tps: float
    average: float


class StatsLine(msgspec.Struct, frozen=True):
    """One item of a broker's statistics; ``key`` is a topic, ``topic@group`` or the cluster's name."""

    broker_name: str
    item: str
    key: str
    minute: StatsWindow
    hour: StatsWindow
    day: StatsWindow


class RunningClients(StoredMessages):
    """The part of ``Admin`` that is about running clients and what went through brokers lately."""

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> RunningInfo:
        """How a client is now, told by itself through a broker; ``stacks`` also what its tasks and threads do.

        Raises DejamqError with CONSUMER_NOT_ONLINE when no broker has it in this group, and CONSUME_MSG_TIMEOUT when it
        does not answer within 10 s, as a frozen one does.
        """
        check_group(group)
        name, told = await self._first_online(lambda link: link.running_info(group, client_id, stacks=stacks))
        queues = [_queue(one) for one in told.queues]
        return RunningInfo(
            group=group, client_id=client_id, broker_name=name, properties=dict(told.properties),
            settings=dict(told.settings), state=dict(told.state), queues=queues, stacks=told.stacks,
            subscriptions=[
                RunningSubscription(one.topic, one.expression, one.expression_type, one.version)
                for one in told.subscriptions
            ],
            statuses={one.topic: _status(one) for one in told.statuses},
        )  # fmt: skip

    async def consume_directly(self, group: str, client_id: str, message_id: str) -> DirectResult:
        """Have this member's handler handle one stored message, whatever queue it owns; how that ended.

        ``message_id`` is the offset message id. The member must be connected to the broker that has the message. The
        journal says that it was asked for, so the audit blames nobody. Raises as ``running_info``; after
        CONSUME_MSG_TIMEOUT the handler may still end; QUERY_NOT_FOUND when no broker has the message.
        """
        check_group(group)
        found = await self.message(message_id)
        (address,) = (await self._open().masters([found.queue.broker_name])).values()
        async with self._running(address) as link:
            done = await link.consume_directly(group, client_id, message_id)
        return DirectResult(DirectOutcome(done.result), done.remark, done.ordered, done.auto_commit, done.spent_ms)

    async def stats(self, item: str = "", key: str = "", *, broker_name: str | None = None) -> list[StatsLine]:
        """Recent counters of brokers by RocketMQ's items (``TOPIC_PUT_NUMS``, ``GROUP_GET_NUMS``, …), sorted.

        A window that is longer than the broker's life covers its life. Empty for items that were never counted.
        """
        masters = await self._open().masters(None if broker_name is None else [broker_name])
        lines = []
        for name, address in masters.items():
            async with self._running(address, self.config.mq_client_api_timeout_ms) as link:
                lines += [
                    StatsLine(name, one.item, one.key, _window(one.minute), _window(one.hour), _window(one.day))
                    for one in await link.stats(item, key)
                ]
        return sorted(lines, key=lambda line: (line.item, line.key, line.broker_name))

    def _running(self, address: str, timeout_ms: float = ANSWER_TIMEOUT_MS) -> RunningLink:
        links = self._open()
        return RunningLink(address, links, timeout_ms=timeout_ms, tls=links.tls, account=links.account)

    async def _first_online(self, question: Callable[[RunningLink], Awaitable[Answer]]) -> tuple[str, Answer]:
        """The answer of the first broker at which the client is, and that broker's name."""
        refused = DejamqError("no broker is known", code=Code.CONSUMER_NOT_ONLINE)
        for name, address in (await self._open().masters()).items():
            async with self._running(address) as link:
                try:
                    return name, await question(link)
                except DejamqError as error:
                    if error.code != Code.CONSUMER_NOT_ONLINE:
                        raise
                    refused = error
        raise refused


def _queue(one: pb.ProcessQueueInfo) -> RunningQueue:
    names = [name for name in RunningQueue.__struct_fields__ if name != "queue"]
    queue = MessageQueue(one.queue.topic, one.broker_name, one.queue.queue_id)
    return RunningQueue(queue=queue, **{name: getattr(one, name) for name in names})


def _status(one: pb.ConsumeStatusInfo) -> RunningStatus:
    return RunningStatus(**{name: getattr(one, name) for name in RunningStatus.__struct_fields__})


def _window(one: pb.StatsWindow) -> StatsWindow:
    return StatsWindow(one.sum, one.tps, one.average)
