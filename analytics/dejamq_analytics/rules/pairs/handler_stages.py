"""Stages that the handler itself decides: it failed, was interrupted, rolled back, or never committed (L3 to L6, B12).

They read the columns that ``life.with_life`` puts beside a pair.
"""

from dejamq_analytics.frames import Column
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import text
from dejamq_analytics.rules.stage import Stage

UNDECIDED = ("uncommitted", "rollback")
"""Results in order without auto-commit: the message waits for a COMMIT, or is to come again."""
FAILED = ("exception", "reconsume", "wrong_value")
LEGAL_LOCAL = {"local_retry": "B12", "suspend_retry": "L3"}
"""Kinds of delivery that a process asks of itself, and the cause that each names."""


def same_queue(same: Column) -> list[Stage]:
    """Where one process queue delivered it again (``same``): only its own kind of delivery can say why."""
    result, again = sf.col("first.result"), sf.col("second.kind").isin(*LEGAL_LOCAL)
    failed = result.isNotNull() & (result != "success")
    in_order = same & failed & (sf.col("second.kind") == "suspend_retry")
    dead = sf.coalesce(sf.col("first.sendback_outcome") == "ok", sf.lit(False))
    letter = text("given up at try %s, then again with its list", "first.reconsume_times")
    return [
        Stage("1", same & again & (result == "cancelled"), "L5", trigger=_cancelled()),
        Stage("1", in_order & result.isin(*UNDECIDED), "L6", trigger=_handler(), expected=True),
        Stage("1", in_order & dead, "L4", trigger=letter),
        *[
            Stage("1", same & failed & (sf.col("second.kind") == kind), cause, trigger=_handler(), expected=True)
            for kind, cause in LEGAL_LOCAL.items()
        ],
    ]


def next_owner() -> list[Stage]:
    """Where another owner delivered it again, and the queue was not taken away from under the handler.

    A message that a later COMMIT covered has an undecided result as well: then the low-water mark has passed it.
    """
    result, mark = sf.col("first.result"), sf.col("first_queue.mark")
    below = sf.coalesce(mark["mem_off"] <= sf.col("first.queue_offset"), sf.lit(True))
    # what may have been taken back was kept as well: only an answer lets the mark pass it
    kept = sf.coalesce(sf.col("first.sendback_outcome").isin("failed", "indefinite"), sf.lit(False))
    # in order nothing is sent back before the tries are used up
    in_order = sf.col("locked") & sf.col("first.sendback_outcome").isNull()
    untaken = text("handler: %s, and no broker said that it took it back", "first.result")
    return [
        Stage("b", result == "cancelled", "L5", trigger=_cancelled()),
        Stage("b", result.isin(*UNDECIDED) & below, "L6", trigger=_handler(), expected=True),
        Stage("b", (result == "suspend") & below, "L3", trigger=_handler(), expected=True),
        Stage("b", in_order & result.isin(*FAILED) & below, "L3", trigger=_handler(), expected=True),
        Stage("b", (result != "success") & kept & below, "B12", trigger=untaken, expected=True),
    ]


def unsettled() -> Column:
    """Whether the first delivery failed, and no broker took the message back."""
    result = sf.col("first.result")
    sent_back = sf.coalesce(sf.col("first.sendback_outcome") == "ok", sf.lit(False))
    return ~result.isin("success", *UNDECIDED) & ~sent_back


def _handler() -> Column:
    return text("handler: %s", "first.result")


def _cancelled() -> Column:
    return text("its handler was interrupted in %s", "first.process")
