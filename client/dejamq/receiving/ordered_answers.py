"""The meaning of a handler's answer when a queue is consumed in order. Pure.

Source: RocketMQ ``ConsumeMessageOrderlyService.processConsumeResult``; exceptions and unknown values suspend the queue.
"""

from enum import Enum

import msgspec

from dejamq.receiving.handlers import ConsumeStatus, DeadLetter, judge_error

SHORTEST_SUSPENSION_MS, LONGEST_SUSPENSION_MS = 10, 30_000


class OrderedStatus(Enum):
    """The answers of an ordered handler besides ``None`` when ``auto_commit`` is off.

    COMMIT: everything handed out since the last one is done. ROLLBACK: all of that is delivered again. A queue with
    more than ``pull_threshold_for_queue`` messages that are neither is not pulled until one of them comes.
    """

    COMMIT = "commit"
    ROLLBACK = "rollback"


class SuspendQueue(Exception):
    """Raised by an ordered handler: deliver the same messages again after ``ms``; the queue waits until then.

    Taken as at least 10 and at most 30,000 ms. Without a number: ``suspend_current_queue_time_ms``. It counts as a
    try.
    """

    def __init__(self, ms: int | None = None) -> None:
        super().__init__("suspend the queue" if ms is None else f"suspend the queue for {ms} ms")
        if ms is not None and ms < 0:
            raise ValueError(f"ms is 0 or more, not {ms}")
        self.ms = ms


class OrderedOutcome(Enum):
    """The outcome of the messages in hand."""

    COMMIT = "done, with all that was handed out before"
    KEEP = "neither done nor delivered again before a COMMIT or ROLLBACK"
    SUSPEND = "delivered again after a while"
    ROLLBACK = "delivered again after a while, with all that was handed out since the last COMMIT"


class OrderedVerdict(msgspec.Struct, frozen=True):
    """A judged answer. ``status`` is the journal's word; ``suspend_ms`` None leaves the time to the settings."""

    action: OrderedOutcome
    status: str
    reason: str = ""
    suspend_ms: int | None = None
    dead: bool = False
    """No further try is wanted."""


DONE = OrderedVerdict(OrderedOutcome.COMMIT, "success")
UNDECIDED = OrderedVerdict(OrderedOutcome.KEEP, "uncommitted")
CANCELLED = OrderedVerdict(OrderedOutcome.SUSPEND, "cancelled")


def judge_answer(answer: object, *, auto_commit: bool) -> OrderedVerdict:
    """The meaning of a returned value.

    With ``auto_commit`` both OrderedStatus values acknowledge, as in RocketMQ, and their ``reason`` says that they
    have no meaning there.
    """
    if answer is None or answer is ConsumeStatus.SUCCESS:
        return DONE if auto_commit else UNDECIDED
    if isinstance(answer, OrderedStatus):
        if auto_commit:
            return OrderedVerdict(
                OrderedOutcome.COMMIT, "success", f"{answer} means nothing unless auto_commit=False; acknowledged"
            )
        return DONE if answer is OrderedStatus.COMMIT else OrderedVerdict(OrderedOutcome.ROLLBACK, "rollback")
    if answer is ConsumeStatus.RECONSUME_LATER:
        return OrderedVerdict(OrderedOutcome.SUSPEND, "reconsume")
    text = f"the handler returned {answer!r:.80}; return None, ConsumeStatus or OrderedStatus, or raise SuspendQueue"
    return OrderedVerdict(OrderedOutcome.SUSPEND, "wrong_value", text)


def judge_failure(error: BaseException) -> OrderedVerdict:
    """The meaning of an exception: a requested suspension, dead letters, or a failed try."""
    if isinstance(error, SuspendQueue):
        return OrderedVerdict(OrderedOutcome.SUSPEND, "suspend", suspend_ms=error.ms)
    outcome = judge_error(error)
    return OrderedVerdict(OrderedOutcome.SUSPEND, outcome.status, outcome.reason, dead=isinstance(error, DeadLetter))


def suspension_ms(wanted_ms: int | None, default_ms: int) -> int:
    """How long a queue rests, within RocketMQ's bounds."""
    return min(max(default_ms if wanted_ms is None else wanted_ms, SHORTEST_SUSPENSION_MS), LONGEST_SUSPENSION_MS)
