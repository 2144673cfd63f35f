"""The subscriptions of a consumer, and the handler of each topic."""

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import msgspec
from dejamq_proto import names
from dejamq_proto.client_pb2 import Subscription as WireSubscription
from dejamq_proto.codes import ConfigError, InvalidName

from dejamq.receiving.handlers import MAX_BATCH_SIZE, check_handler, is_async, tags_of_expression
from dejamq.receiving.hooks import ConsumeHooks
from dejamq.values.namespace import wrap


class Subscription(msgspec.Struct, frozen=True):
    """One topic of one consumer. ``batch_size`` 0: the handler gets one message at a time, else lists up to it.

    ``expression_type`` is TAG or SQL92; ``tags`` are compared here once more, as brokers compare their hashes only.
    ``version`` is the wall clock of the subscription, ms: brokers take the newer of two (RocketMQ: subVersion).
    """

    topic: str
    handler: Callable[[Any], Any]
    tags: frozenset[str] = frozenset()
    expression: str = "*"
    expression_type: str = "TAG"
    batch_size: int = 0
    version: int = 0
    hooks: ConsumeHooks | None = None

    def callable(self, executor: Executor) -> Callable[[Any], Awaitable[Any]]:
        """The handler as something to await: plain functions run in a thread of ``executor``."""
        handler = self.handler if is_async(self.handler) else functools.partial(in_thread, self.handler, executor)
        return self.hooks.around(handler) if self.hooks else handler


class Subscriptions:
    """The topics by name; may change while the consumer runs.

    Names are taken with or without the namespace, and given with it, as brokers know them.
    """

    def __init__(
        self, group: str, now_ms: Callable[[], int], *, retries: bool = True, namespace: str = "",
        hooks: ConsumeHooks | None = None,
    ) -> None:  # fmt: skip
        """``retries``: whether the group's retry topic is subscribed as well, as all but broadcasting members do.

        ``hooks`` are called around every handler.
        """
        self._group, self._now_ms, self._namespace = group, now_ms, namespace
        self._retry_topics = (names.retry_topic(group),) if retries else ()
        self._hooks = hooks
        self._by_topic: dict[str, Subscription] = {}
        self._version = 0

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._by_topic.values())

    def get(self, topic: str) -> Subscription | None:
        """The topic's subscription, None without one."""
        return self._by_topic.get(wrap(self._namespace, topic))

    @property
    def topics(self) -> list[str]:
        """Sorted, with the group's retry topic."""
        return sorted((*self._by_topic, *self._retry_topics))

    def add(
        self, topic: str, handler: object, *, tags: str | None, sql: str | None = None, batch_size: int = 0
    ) -> Subscription:
        """Raises ConfigError or InvalidName for what could only fail later. Whether SQL is any, only brokers know."""
        topic = wrap(self._namespace, topic)
        names.check_topic(topic)
        if names.is_internal(topic) and topic == names.retry_topic(self._group):
            raise ConfigError(f"{topic} is subscribed by itself; messages of it come to the handler of their topic")
        if topic in self._by_topic:
            raise ConfigError(f"topic {topic!r} has a handler already; unsubscribe it first")
        if batch_size and not 1 <= batch_size <= MAX_BATCH_SIZE:
            raise ConfigError(f"size is 1 to {MAX_BATCH_SIZE}, not {batch_size}")
        check_handler(handler, batch=bool(batch_size))
        wanted = tags_of_expression(tags)
        expression, kind = " || ".join(sorted(wanted)) or "*", "TAG"
        if sql is not None:
            expression, kind = _checked_sql(sql, wanted), "SQL92"
        self._version = max(self._version + 1, self._now_ms())
        subscription = Subscription(
            topic, handler, wanted, expression, kind, batch_size, self._version, self._hooks  # type: ignore[arg-type]  # checked to be callable
        )  # fmt: skip
        self._by_topic[topic] = subscription
        return subscription

    def remove(self, topic: str) -> None:
        """Raises InvalidName for a topic that is not subscribed."""
        if self._by_topic.pop(wrap(self._namespace, topic), None) is None:
            raise InvalidName(f"topic {topic!r} is not subscribed")

    def wire(self) -> list[WireSubscription]:
        """For the heartbeat.

        The retry topic goes with it, for all tags: retries carry the tags of their first topic.
        """
        mine = [
            WireSubscription(
                topic=one.topic, expression=one.expression, expression_type=one.expression_type, version=one.version
            )
            for one in self
        ]
        retries = [WireSubscription(topic=one, expression="*", expression_type="TAG") for one in self._retry_topics]
        return mine + retries


def _checked_sql(sql: str, tags: frozenset[str]) -> str:
    if tags:
        raise ConfigError("give tags or sql, not both; in SQL a tag is the property TAGS: TAGS IN ('a', 'b')")
    if not isinstance(sql, str):
        raise ConfigError(f"sql is a text, not {sql!r}")
    if not sql.strip():
        raise ConfigError("sql is empty; leave it out to get every message")
    return sql


async def in_thread(handler: Callable[[Any], Any], executor: Executor, argument: Any) -> Any:
    """Run a plain handler beside the loop, with the caller's context variables; what it returns may be awaited here."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    answer = await loop.run_in_executor(executor, functools.partial(context.run, _as_in_a_coroutine, handler, argument))
    return await answer if isinstance(answer, Awaitable) else answer


def _as_in_a_coroutine(handler: Callable[[Any], Any], argument: Any) -> Any:
    """A future cannot carry StopIteration: whoever waits for it would wait for ever."""
    try:
        return handler(argument)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error
