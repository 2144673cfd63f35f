"""What an ordered handler's answer means (RocketMQ: ConsumeMessageOrderlyService.processConsumeResult)."""

import pytest
from dejamq import ConsumeStatus
from dejamq.receiving.handlers import BatchResult, DeadLetter, RetryLater
from dejamq.receiving.ordered_answers import (
    OrderedOutcome,
    OrderedStatus,
    SuspendQueue,
    judge_answer,
    judge_failure,
    suspension_ms,
)


@pytest.mark.parametrize("answer", [None, ConsumeStatus.SUCCESS, OrderedStatus.COMMIT, OrderedStatus.ROLLBACK])
def test_with_auto_commit_success_and_both_ordered_words_commit(answer: object) -> None:
    verdict = judge_answer(answer, auto_commit=True)
    assert (verdict.action, verdict.status) == (OrderedOutcome.COMMIT, "success")
    assert bool(verdict.reason) is isinstance(answer, OrderedStatus), "a word without meaning is complained about"


@pytest.mark.parametrize(
    ("answer", "action", "status"),
    [
        (None, OrderedOutcome.KEEP, "uncommitted"),
        (ConsumeStatus.SUCCESS, OrderedOutcome.KEEP, "uncommitted"),
        (OrderedStatus.COMMIT, OrderedOutcome.COMMIT, "success"),
        (OrderedStatus.ROLLBACK, OrderedOutcome.ROLLBACK, "rollback"),
    ],
)
def test_without_auto_commit_only_commit_commits(answer: object, action: OrderedOutcome, status: str) -> None:
    verdict = judge_answer(answer, auto_commit=False)
    assert (verdict.action, verdict.status, verdict.reason) == (action, status, "")


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("answer", [False, 0, "", BatchResult(0)])
def test_a_value_that_is_no_answer_suspends_the_queue(answer: object, auto_commit: bool) -> None:
    verdict = judge_answer(answer, auto_commit=auto_commit)
    assert (verdict.action, verdict.status) == (OrderedOutcome.SUSPEND, "wrong_value")
    assert repr(answer) in verdict.reason


@pytest.mark.parametrize(
    ("error", "status", "ms", "dead"),
    [
        (SuspendQueue(70), "suspend", 70, False),
        (SuspendQueue(), "suspend", None, False),
        (RetryLater(4), "reconsume", None, False),
        (DeadLetter("broken"), "reconsume", None, True),
        (KeyError("x"), "exception", None, False),
    ],
)
def test_every_exception_suspends_the_queue(error: Exception, status: str, ms: int | None, dead: bool) -> None:
    verdict = judge_failure(error)
    assert (verdict.action, verdict.status) == (OrderedOutcome.SUSPEND, status)
    assert (verdict.suspend_ms, verdict.dead) == (ms, dead)


@pytest.mark.parametrize(("wanted", "taken"), [(None, 1000), (0, 10), (9, 10), (500, 500), (40_000, 30_000)])
def test_a_suspension_lasts_10_to_30_000_ms(wanted: int | None, taken: int) -> None:
    assert suspension_ms(wanted, 1000) == taken


def test_a_negative_suspension_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="-1"):
        SuspendQueue(-1)
