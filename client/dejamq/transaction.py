"""How a transaction ends: states, results, and what an answer of a program's function means. Pure."""

import inspect
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

import msgspec
from dejamq_proto.codes import ConfigError
from dejamq_proto.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK

from dejamq.message import Message, SendResult, SendStatus
from dejamq.received import ReceivedMessage


class TransactionState(Enum):
    """What becomes of the message: delivered, dropped, or the broker asks later. The values are the broker's."""

    COMMIT = SYS_TRANSACTION_COMMIT
    ROLLBACK = SYS_TRANSACTION_ROLLBACK
    UNKNOWN = 0


Answer = TransactionState | Awaitable[TransactionState]
Execute = Callable[[Message], Answer]
Checker = Callable[[ReceivedMessage], Answer]


class TransactionResult(msgspec.Struct, frozen=True):
    """What ``send_in_transaction`` did. ``state`` is what the broker was told, oneway.

    ``sent`` is the half message's: its place is that of the half, not of what consumers get. ``error`` is what
    ``execute`` raised, or why its answer is no state; the transaction is UNKNOWN then.
    """

    state: TransactionState
    sent: SendResult
    error: Exception | None = None

    @property
    def status(self) -> SendStatus:
        """How well the half message is kept; unless it is SEND_OK the transaction is rolled back unexecuted."""
        return self.sent.status

    @property
    def message_id(self) -> str:
        """The message's id, which is the transaction's too."""
        return self.sent.message_id


class Verdict(msgspec.Struct, frozen=True):
    """A judged answer. ``reason`` is for the journal, ``error`` for the program."""

    state: TransactionState
    error: Exception | None = None

    @property
    def reason(self) -> str:
        return "" if self.error is None else f"{type(self.error).__name__}: {self.error}"[:200]


def judged(answer: object) -> Verdict:
    """What a returned value means. RocketMQ takes a null for UNKNOW without a word."""
    if isinstance(answer, TransactionState):
        return Verdict(answer)
    return failed(TypeError(f"returned {answer!r:.80}; return TransactionState.COMMIT, ROLLBACK or UNKNOWN"))


def failed(error: Exception) -> Verdict:
    """What an exception means: nobody knows whether the local transaction was made."""
    return Verdict(TransactionState.UNKNOWN, error)


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
        pass  # a callable in C without a signature: it will say itself what it dislikes


async def answer_of(call: Callable[[Any], Awaitable[Any]], argument: object) -> Verdict:
    """Call the function and judge what comes of it; never raises but when cancelled."""
    try:
        return judged(await call(argument))
    except Exception as error:
        return failed(error)
