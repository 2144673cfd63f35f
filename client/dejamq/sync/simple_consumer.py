"""The blocking simple consumer."""

from collections.abc import Iterator, Sequence
from typing import Any

from dejamq.rebalance.consume_from import ConsumeFrom
from dejamq.receiving.observer import Observing
from dejamq.receiving.received import ReceivedMessage
from dejamq.simple.consumer import SimpleConsumer as AsyncSimpleConsumer
from dejamq.sync.facade import Facade


class SimpleConsumer(Facade[AsyncSimpleConsumer]):
    """``dejamq.SimpleConsumer`` for threads; one thread iterates at a time."""

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET, telemetry: Observing | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        """As ``dejamq.SimpleConsumer``."""
        inner = AsyncSimpleConsumer(
            group, namesrv=namesrv, consume_from=consume_from, telemetry=telemetry, **settings
        )  # fmt: skip
        super().__init__(inner)
        self.group = group

    def subscribe(self, topic: str, tags: str | None = "*", *, sql: str | None = None) -> None:
        """As ``dejamq.SimpleConsumer.subscribe``."""
        self._do(self._inner.subscribe, topic, tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """As ``dejamq.SimpleConsumer.unsubscribe``."""
        self._do(self._inner.unsubscribe, topic)

    @property
    def client_id(self) -> str:
        """The client id of this member of the group; empty before the start."""
        return self._inner.client_id

    @property
    def boot_id(self) -> str:
        """Names this start in the journals; empty before it."""
        return self._inner.boot_id

    def receive(
        self, *, max_messages: int = 32, invisible_ms: int = 30_000, timeout_ms: float | None = None
    ) -> list[ReceivedMessage]:
        """At most ``max_messages`` that nobody else gets for ``invisible_ms``; ``[]`` when none came in time."""
        return self._await(
            self._inner.receive, max_messages=max_messages, invisible_ms=invisible_ms, timeout_ms=timeout_ms
        )

    def ack(self, *messages: ReceivedMessage) -> None:
        """They are done, and do not come again; as ``dejamq.SimpleConsumer.ack``."""
        self._await(self._inner.ack, *messages)

    def change_invisible(self, message: ReceivedMessage, ms: int) -> None:
        """The message is this consumer's for ``ms`` more from now on; 0 gives it back at once."""
        self._await(self._inner.change_invisible, message, ms)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages, one by one, until the consumer is closed; by another thread too.

        The program acknowledges each. Until it does, or asks for the next one, its time is renewed before it ends.
        """
        while (message := self._await(self._next)) is not None:
            yield message

    def wait_stopped(self) -> None:
        """Until ``close`` is called or a background task fails."""
        self._await(self._inner.wait_stopped)

    async def _next(self) -> ReceivedMessage | None:
        return await anext(self._inner, None)
