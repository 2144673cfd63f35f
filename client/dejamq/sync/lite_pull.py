"""The blocking lite pull consumer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dejamq.lite.consumer import LitePullConsumer as AsyncLitePullConsumer
from dejamq.lite.rebalancer import QueuesListener
from dejamq.rebalance.consume_from import ConsumeFrom, MessageModel
from dejamq.receiving.observer import Observing
from dejamq.receiving.received import ReceivedMessage
from dejamq.sync.facade import Facade
from dejamq.values.allocation import Strategy
from dejamq.values.message import MessageQueue


class LitePullConsumer(Facade[AsyncLitePullConsumer]):
    """``dejamq.LitePullConsumer`` for threads; one thread polls or iterates at a time."""

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None, auto_commit: bool = True,
        model: MessageModel = MessageModel.CLUSTERING, consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp_ms: int | None = None, allocation: str | Strategy = "averagely",
        telemetry: Observing | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        """As ``dejamq.LitePullConsumer``."""
        inner = AsyncLitePullConsumer(
            group, namesrv=namesrv, auto_commit=auto_commit, model=model, consume_from=consume_from,
            consume_timestamp_ms=consume_timestamp_ms, allocation=allocation, telemetry=telemetry,
            **settings,
        )  # fmt: skip
        super().__init__(inner)
        self.group = group

    def subscribe(self, topic: str, *, tags: str | None = "*", sql: str | None = None) -> None:
        """As ``dejamq.LitePullConsumer.subscribe``."""
        self._do(self._inner.subscribe, topic, tags=tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """As ``dejamq.LitePullConsumer.unsubscribe``."""
        self._do(self._inner.unsubscribe, topic)

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = "*") -> None:
        """As ``dejamq.LitePullConsumer.assign``."""
        self._do(self._inner.assign, queues, tags=tags)

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues this consumer reads now, sorted."""
        return self._do(lambda: self._inner.assignment)

    @property
    def client_id(self) -> str:
        """The client id of this member of the group; empty before the start."""
        return self._inner.client_id

    @property
    def boot_id(self) -> str:
        """Names this start in the journals; empty before it."""
        return self._inner.boot_id

    def wait_assigned(self, timeout_ms: float = 30_000) -> tuple[MessageQueue, ...]:
        """As ``dejamq.LitePullConsumer.wait_assigned``."""
        return self._await(self._inner.wait_assigned, timeout_ms)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All readable queues of a topic, for ``assign``."""
        return self._await(self._inner.queues, topic)

    def watch_queues(self, topic: str, listener: QueuesListener) -> None:
        """As ``dejamq.LitePullConsumer.watch_queues``; called in the loop's thread, which it must not block."""
        self._await(self._inner.watch_queues, topic, listener)

    def wait_stopped(self) -> None:
        """Until ``close`` is called or a background task fails."""
        self._await(self._inner.wait_stopped)

    def poll(self, timeout_ms: float | None = None, max_messages: int | None = None) -> list[ReceivedMessage]:
        """At most ``max_messages``, each queue's in its order; ``[]`` when none came in time."""
        return self._await(self._inner.poll, timeout_ms, max_messages)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages, one by one, until the consumer is closed; by another thread too.

        Asking for the next one says that this one is done, so the automatic commit never covers the message in hand.
        """
        while (message := self._await(self._next)) is not None:
            yield message

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> dict[MessageQueue, int]:
        """As ``dejamq.LitePullConsumer.commit``."""
        return self._await(self._inner.commit, offsets)

    def committed(self, queue: MessageQueue) -> int | None:
        """The queue's committed offset, None without one."""
        return self._await(self._inner.committed, queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from this offset."""
        self._do(self._inner.seek, queue, offset)

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on from the oldest message."""
        self._await(self._inner.seek_to_begin, queue)

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what is sent from now on."""
        self._await(self._inner.seek_to_end, queue)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing of these until ``resume``."""
        self._do(self._inner.pause, queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with these after ``pause``."""
        self._do(self._inner.resume, queues)

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at this time or later; one above the last when there is none."""
        return self._await(self._inner.offset_for_timestamp, queue, timestamp_ms)

    async def _next(self) -> ReceivedMessage | None:
        return await anext(self._inner, None)
