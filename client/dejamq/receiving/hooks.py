"""Hooks of a consumer: what a program wants to see of each call of a handler, and which messages it leaves out.

Source: RocketMQ ``ConsumeMessageHook``, ``FilterMessageHook``.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
from dejamq_proto.codes import ConfigError

from dejamq.net.waits import ends_task
from dejamq.receiving import handlers, ordered_answers
from dejamq.receiving.handlers import is_async
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")

Keep = Callable[[ReceivedMessage], bool]
"""Whether a message is delivered. One that is not counts as consumed."""


class ConsumeContext(msgspec.Struct, eq=False):
    """One call of a handler. ``values`` is the hooks' own, the same before and after.

    ``status`` and ``error`` are None before. After, ``status`` is the journal's word: success, reconsume, exception,
    timeout (as it returned, but late), wrong_value, cancelled; in order also suspend, rollback, uncommitted.
    """

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    status: str | None = None
    error: BaseException | None = None
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    batch: bool = False
    """The handler takes lists."""

    @property
    def success(self) -> bool:
        """The handler acknowledged all messages in time."""
        return self.status == "success"


@runtime_checkable
class ConsumeHook(Protocol):
    """Both are called in the event loop and must not wait; what they raise is logged and changes nothing."""

    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


class Judge(msgspec.Struct, frozen=True):
    """How this consumer reads what its handlers return and raise, in the journal's words."""

    timeout_s: float
    ordered: bool = False
    auto_commit: bool = True

    def of_answer(self, answer: object, count: int) -> str:
        """For a returned value and so many messages."""
        if self.ordered:
            return ordered_answers.judge_answer(answer, auto_commit=self.auto_commit).status
        return handlers.judge_answer(answer, count).status

    def of_error(self, error: BaseException, task: "asyncio.Task[Any] | None") -> str:
        """For what a handler raised in this task."""
        if ends_task(error, task):
            return "cancelled"
        return (ordered_answers.judge_failure(error) if self.ordered else handlers.judge_error(error)).status


class ConsumeHooks:
    """The hooks of one consumer, in the order in which they were added. False while there are no hooks."""

    def __init__(self, group: str, judge: Judge) -> None:
        self._group, self._judge = group, judge
        self._hooks: list[ConsumeHook] = []

    def add(self, hook: ConsumeHook) -> None:
        """Call it for every call of a handler. Raises ConfigError for what is no hook, or would have to be awaited."""
        if not isinstance(hook, ConsumeHook):
            raise ConfigError(
                f"{type(hook).__name__} is no consume hook: it needs before_consume(context), after_consume(context)"
            )
        if any(is_async(call) for call in (hook.before_consume, hook.after_consume)):
            raise ConfigError(f"nobody would await {type(hook).__name__}: the calls of a hook are plain functions")
        self._hooks.append(hook)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def around(self, handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """The handler, between the hooks."""

        async def hooked(argument: Any) -> Any:
            messages = argument if isinstance(argument, list) else [argument]
            context = ConsumeContext(self._group, messages[0].queue, messages, batch=messages is argument)
            self._call(context, lambda hook: hook.before_consume)
            began_s, task = time.monotonic(), asyncio.current_task()
            try:
                answer = await handler(argument)
                context.status = self._judge.of_answer(answer, len(messages))
                return answer
            except BaseException as error:
                context.status, context.error = self._judge.of_error(error, task), error
                raise
            finally:
                late = time.monotonic() - began_s >= self._judge.timeout_s
                if late and context.status in ("success", "reconsume", "suspend", "rollback"):
                    context.status = "timeout"
                self._call(context, lambda hook: hook.after_consume)

        return hooked

    def _call(self, context: ConsumeContext, which: Callable[[ConsumeHook], Callable[[ConsumeContext], None]]) -> None:
        for hook in self._hooks:
            try:
                which(hook)(context)
            except BaseException as error:
                log.warning("consume_hook_failed hook=%s reason=%r", type(hook).__name__, error)


class Filters:
    """The program's own filters of one consumer, after the filters by tags. False while there are no filters."""

    def __init__(self) -> None:
        self._filters: list[Keep] = []

    def add(self, keep: Keep) -> None:
        """Ask it for every message. Raises ConfigError for what cannot be called, or would have to be awaited.

        A coroutine counts as true: an ``async def`` filter would keep everything.
        """
        if not callable(keep) or is_async(keep):
            raise ConfigError(
                f"{keep!r} is no filter: it needs to be a plain function of one message that says whether"
            )
        self._filters.append(keep)

    def __bool__(self) -> bool:
        return bool(self._filters)

    def keeps(self, message: ReceivedMessage) -> bool:
        """Whether all filters do. One that fails keeps the message: a mistake repeats or adds, it never loses."""
        for keep in self._filters:
            try:
                if not keep(message):
                    return False
            except BaseException as error:
                log.warning("filter_failed message_id=%s reason=%r", message.message_id, error)
        return True
