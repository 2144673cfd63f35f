"""The kinds of handlers and the meaning of their answers. Pure: the dispatcher runs handlers, this file judges."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any

import msgspec
from dejamq_proto.codes import ConfigError
from dejamq_proto.names import trimmed

from dejamq.receiving.received import ReceivedMessage

Handler = Callable[[ReceivedMessage], Awaitable[Any]] | Callable[[ReceivedMessage], Any]
BatchHandler = Callable[[Sequence[ReceivedMessage]], Awaitable[Any]] | Callable[[Sequence[ReceivedMessage]], Any]

MAX_BATCH_SIZE = 1024
TO_DEAD_LETTERS = -1


class ConsumeStatus(Enum):
    """The answers of a concurrent handler; ``None`` means SUCCESS (in RocketMQ a null is a failure)."""

    SUCCESS = "success"
    RECONSUME_LATER = "reconsume"


class RetryLater(Exception):
    """Raised by a handler: deliver again after this delay level (1 to 18); 0 lets the broker choose 3 + tries."""

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"retry at delay level {delay_level}")
        if not 0 <= delay_level <= 18:
            raise ValueError(f"delay_level is 0 to 18, not {delay_level}; raise DeadLetter to give a message up")
        self.delay_level = delay_level


class DeadLetter(Exception):
    """Raised by a handler: no retries, the message goes to ``%DLQ%group`` at once."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class BatchResult(msgspec.Struct, frozen=True):
    """A batch handler's answer: messages up to and with number ``ack_index`` are done (-1: none), the rest retried.

    A number behind the last one means all, as in RocketMQ.
    """

    ack_index: int


class HandlerOutcome(msgspec.Struct, frozen=True):
    """A judged answer. ``acknowledged`` messages from the front are done, the others are sent back at ``delay_level``.

    ``status`` is the journal's word: success, reconsume, exception, wrong_value, cancelled.
    """

    status: str
    acknowledged: int = 0
    delay_level: int = 0
    reason: str = ""


CANCELLED = HandlerOutcome("cancelled")


def judge_answer(answer: object, count: int) -> HandlerOutcome:
    """The meaning of a returned value for the ``count`` messages the handler was given.

    RocketMQ: ConsumeMessageConcurrentlyService.processConsumeResult with its ackIndex. An undocumented value
    acknowledges nothing, so that a mistake repeats messages instead of losing them.
    """
    if answer is None or answer is ConsumeStatus.SUCCESS:
        return HandlerOutcome("success", count)
    if answer is ConsumeStatus.RECONSUME_LATER:
        return HandlerOutcome("reconsume")
    if isinstance(answer, BatchResult) and isinstance(answer.ack_index, int) and answer.ack_index >= -1:
        acknowledged = min(answer.ack_index + 1, count)
        return HandlerOutcome("success" if acknowledged == count else "reconsume", acknowledged)
    text = f"the handler returned {answer!r:.80}; return None, ConsumeStatus or BatchResult(ack_index), or raise"
    if isinstance(answer, BatchResult):
        text += f"; ack_index is -1 (nothing is done) to {count - 1} (all are)"
    return HandlerOutcome("wrong_value", reason=text)


def judge_error(error: BaseException) -> HandlerOutcome:
    """The meaning of an exception from a handler: a requested retry, dead letters, or a failure.

    Every exception is a failed try, whatever its class: SystemExit and a cancellation of something that the handler
    awaited as well. The reason is cut at 200 characters for the journal.
    """
    if isinstance(error, RetryLater):
        return HandlerOutcome("reconsume", delay_level=error.delay_level)
    if isinstance(error, DeadLetter):
        return HandlerOutcome("reconsume", delay_level=TO_DEAD_LETTERS, reason=f"dead letter: {error.reason}")
    return HandlerOutcome("exception", reason=text_of(error)[:200])


def text_of(error: BaseException) -> str:
    """Class and text of an error; its class alone where its own ``__str__`` fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}: its text cannot be made"


def check_handler(handler: object, *, batch: bool) -> None:
    """Raise ConfigError unless it is a callable that takes one positional argument.

    Found at ``subscribe`` and not at the first message, which may come long after whoever wrote it went home.
    """
    given = "messages" if batch else "message"
    want = f"a handler is `async def handler({given})`, or a plain function of one argument"
    if not callable(handler):
        raise ConfigError(f"{handler!r} cannot be called; {want}")
    if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
        raise ConfigError(f"{_name(handler)} is a generator and would never run; {want}")
    try:
        inspect.signature(handler).bind(object())
    except TypeError as error:
        raise ConfigError(f"{_name(handler)} cannot take one {given} argument ({error}); {want}") from None
    except ValueError:
        pass  # a callable in C without a signature: its own call raises


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine; everything else belongs into a thread."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def tags_of_expression(expression: str | None) -> frozenset[str]:
    """The tags of ``"a || b"``; empty for everything. Raises ConfigError for a single ``|`` or no tag at all."""
    if expression is None:
        return frozenset()
    if not isinstance(expression, str):
        raise ConfigError(f"tags {expression!r}: write them in one text, 'a || b'")
    if trimmed(expression) in ("", "*"):
        return frozenset()
    tags = frozenset(trimmed(piece) for piece in expression.split("||")) - {""}
    if not tags or any("|" in tag for tag in tags):
        raise ConfigError(f"tags {expression!r}: write 'a || b'; a single | separates nothing")
    return tags


def _name(handler: object) -> str:
    return getattr(handler, "__qualname__", None) or type(handler).__qualname__
