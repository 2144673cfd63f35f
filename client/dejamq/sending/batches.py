"""Batches of a producer: what may go together, how much at once, and what is told when only some of it did. Pure."""

from collections.abc import Sequence

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import RETRY_PREFIX

from dejamq.sending.intake import no_message
from dejamq.sending.sends import Sends
from dejamq.values.message import Message, SendResult


class BatchIncomplete(DejamqError):
    """Some parts of a batch are stored and some are not: ``outcomes`` has one result or error for each message.

    Sending the whole batch again would store the first ones twice; send those whose outcome is an error.
    """

    default_code = Code.SYSTEM_ERROR

    def __init__(self, text: str, *, outcomes: Sequence[SendResult | BaseException]) -> None:
        super().__init__(text, definite=False)
        self.outcomes = list(outcomes)


def check_batch(batch: Sequence[Message]) -> None:
    """RocketMQ's rules (``MessageBatch``). Raises DejamqError with INVALID_PARAMETER."""
    if not batch:
        raise _bad("the batch is empty")
    for message in batch:
        if not isinstance(message, Message):
            raise no_message(message)
    if len({(message.topic, message.wait_store) for message in batch}) > 1:
        raise _bad("messages of a batch have one topic and one wait_store")
    if any(message.is_delayed for message in batch):
        raise _bad("a batch has no delayed messages; send those one by one")
    if batch[0].topic.startswith(RETRY_PREFIX):
        raise _bad(f"{batch[0].topic!r} is a retry topic, which takes no batches; send one by one")
    if len({message.sharding_key for message in batch}) > 1:
        raise _bad("messages of a batch go to one queue, so they have one sharding_key, or none")


def split(sends: Sequence[Sends], max_bytes: int) -> list[Sends]:
    """Parts of at most so many bytes and of one kind, in order; a single message above that is a part of its own.

    RocketMQ leaves this to the program (ListSplitter of its examples).
    """
    parts: list[Sends] = []
    room = 0
    for single in sends:
        room -= single.sizes[0]
        if room < 0 or not parts or parts[-1].kind != single.kind:
            parts.append(single)
            room = max_bytes - single.sizes[0]
        else:
            parts[-1].extend(single)
    return parts


def all_stored(outcomes: Sequence[SendResult | BaseException]) -> list[SendResult]:
    """The results, when every message has one.

    Raises the first error when nothing is stored, BatchIncomplete when something is.
    """
    results = [outcome for outcome in outcomes if isinstance(outcome, SendResult)]
    if len(results) == len(outcomes):
        return results
    first = next(outcome for outcome in outcomes if isinstance(outcome, BaseException))
    if not results:
        raise first
    failed = len(outcomes) - len(results)
    text = f"{failed} of {len(outcomes)} messages of the batch failed, the others are stored: {first}"
    raise BatchIncomplete(text, outcomes=outcomes) from first


def _bad(text: str) -> DejamqError:
    return DejamqError(text, code=Code.INVALID_PARAMETER)
