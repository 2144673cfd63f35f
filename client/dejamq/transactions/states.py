"""How a transaction ends: states, results, and what an answer of a program's function means. Pure."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

import msgspec
from dejamq_proto.codes import ConfigError
from dejamq_proto.records.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK

from dejamq.net.waits import ends_task
from dejamq.receiving.handlers import text_of
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import Message, SendResult, SendStatus


class TransactionState(Enum):
    """The outcome of the message: delivered, dropped, or the broker asks later. The values are the broker's."""

    COMMIT = SYS_TRANSACTION_COMMIT
    ROLLBACK = SYS_TRANSACTION_ROLLBACK
    UNKNOWN = 0


Answer = TransactionState | Awaitable[TransactionState]
Execute = Callable[[Message], Answer]
Checker = Callable[[ReceivedMessage], Answer]


class TransactionResult(msgspec.Struct, frozen=True):
    """The result of ``send_in_transaction``. ``state`` is the state that the broker was sent, oneway.

    ``sent`` is the half message's: its place is that of the half, not of what consumers get. ``error`` is what
    ``execute`` raised, or why its answer is no state; the transaction is UNKNOWN then.
    """

    state: TransactionState
    sent: SendResult
    error: BaseException | None = None

    @property
    def status(self) -> SendStatus:
        """How well the half message is kept; unless it is SEND_OK the transaction is rolled back unexecuted."""
        return self.sent.status

    @property
    def message_id(self) -> str:
        """The message's id, which is the transaction's too."""
        return self.sent.message_id


class TransactionVerdict(msgspec.Struct, frozen=True):
    """A judged answer. ``reason`` is for the journal, ``error`` for the program."""

    state: TransactionState
    error: BaseException | None = None

    @property
    def reason(self) -> str:
        return "" if self.error is None else text_of(self.error)[:200]


def judged(answer: object) -> TransactionVerdict:
    """The meaning of a returned value. RocketMQ takes a null for UNKNOW without a word."""
    if isinstance(answer, TransactionState):
        return TransactionVerdict(answer)
    return failed(TypeError(f"returned {answer!r:.80}; return TransactionState.COMMIT, ROLLBACK or UNKNOWN"))


def failed(error: BaseException) -> TransactionVerdict:
    """The meaning of an exception: nobody knows whether the local transaction was made."""
    return TransactionVerdict(TransactionState.UNKNOWN, error)


def check_function(function: object, name: str) -> None:
    """Raise ConfigError unless it is a callable that takes one positional argument."""
    want = f"{name} is `async def {name}(message)` or a plain function of one argument; it returns a TransactionState"
    if not callable(function):
        raise ConfigError(f"{function!r} cannot be called; {want}")
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        raise ConfigError(f"{function!r} cannot take one message ({error}); {want}") from None
    except ValueError:
        pass  # a callable in C without a signature: its own call raises


async def answer_of(call: Callable[[Any], Awaitable[Any]], argument: object) -> TransactionVerdict:
    """Call the function and judge what comes of it; never raises but when cancelled itself."""
    task = asyncio.current_task()
    try:
        return judged(await call(argument))
    except BaseException as error:
        if ends_task(error, task):
            raise
        return failed(error)
