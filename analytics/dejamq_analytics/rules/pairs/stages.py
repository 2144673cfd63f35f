"""The pipeline's stages, each one row: when it applies to a pair, it decides; the first that applies wins.

Every expression reads the columns that ``life.with_life`` puts beside a pair. ``X`` is the pair's queue offset.
Columns exist only once Spark runs, so the rows are made by functions.
"""

from dejamq_analytics.frames import Column
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, text, without_journal
from dejamq_analytics.rules.pairs import (
    broker_stages,
    given_up,
    handler_stages,
    jumps,
    locks,
    made_of_logs,
    memory,
    owners,
)
from dejamq_analytics.rules.stage import Stage, later

X = "first.queue_offset"


def decision() -> Column:
    """The pipeline as one expression: struct of stage, cause, trigger, missing, expected."""
    stages = [
        *made_of_logs.unplaced(), *_same_queue(), *_owners(), *made_of_logs.cut_short(), *_done(),
        *made_of_logs.left_behind(), *_committed(), *broker_stages.forgotten(),
    ]  # fmt: skip
    return first_of(*[(stage.when, _outcome(stage)) for stage in stages])


def _outcome(stage: Stage) -> Column:
    """The struct is the same for every stage, so that they fit into one expression."""
    trigger = sf.col("ending") if stage.trigger is None else stage.trigger
    missing = sf.lit(None) if stage.missing is None else stage.missing
    return sf.struct(
        sf.lit(stage.name).alias("stage"),
        sf.lit(stage.cause).cast("string").alias("cause"),
        trigger.cast("string").alias("trigger"),
        missing.cast("string").alias("missing"),
        sf.lit(stage.expected).alias("expected"),
    )


def _same_queue() -> list[Stage]:
    """Stage 1: one process queue delivered it twice; only its own kind of delivery can say why."""
    same = (sf.col("first.boot_id") == sf.col("second.boot_id")) & (sf.col("first.pq_id") == sf.col("second.pq_id"))
    direct = (sf.col("first.kind") == "direct") | (sf.col("second.kind") == "direct")
    asked = Stage("1", direct, "L7", trigger=sf.lit("an operator gave it to one member"), expected=True)
    unknown = Stage("1", same, missing=later("stage 1, one process queue delivered the record twice"))
    return [asked, *handler_stages.same_queue(same), unknown]


def _owners() -> list[Stage]:
    """Stage 2: was the queue really handed from one owner to the next?"""
    opened = sf.col("second_queue.opened")
    unknown = text("no PQ_OPEN of the process queue that delivered second, in %s", "second.process")
    chosen = text(
        "why %s had the queue: no line of its log opens it, so its program may have chosen it (R13)", "second.process"
    )
    unknown = sf.when(without_journal(sf.col("second_owner")), chosen).otherwise(unknown)
    below = text("%s delivered below the offset it opened the queue at", "second.process")
    ended_us = sf.coalesce("first_queue.dropped.wall_us", "first_owner.last_wall_us")
    both = sf.col("contest").isNull() & (ended_us > opened["wall_us"])
    unopened = text("no PQ_OPEN of the process queue that delivered first, in %s", "first.process")
    own = given_up.local() & (sf.col("first.client_id") != sf.col("second.client_id"))
    members = later("stage 2, members of a broadcasting group each keep their own offsets (L8)")
    operator = text("%s to %s by %s", "rewind.by", "rewind.new", "rewind.client_id")
    doubtful = text("whether %s delivered it before the offset was set to %s", "first.process", "rewind.new")
    return [
        Stage("2", opened.isNull(), missing=unknown),
        Stage("2", own, missing=members),
        Stage("2", opened["start_offset"] > sf.col(X), missing=below),
        Stage("i", sf.col("rewind").isNotNull() & memory.in_doubt(), missing=doubtful),
        Stage("i", sf.col("rewind").isNotNull(), "O17", trigger=operator, expected=True),
        *given_up.sought(),
        Stage("2", both, missing=unopened),
        *jumps.stages(),
        *locks.stages(),
        *owners.stages(),
    ]


def _done() -> list[Stage]:
    """Stages a to c: the handler's result, and whether the low-water mark could pass it."""
    result, dropped, mark = sf.col("first.result"), sf.col("first_queue.dropped"), sf.col("first_queue.mark")
    closed = sf.col("first_owner.closed")
    unsettled = text("no successful SENDBACK of the first delivery, which ended with %s", "first.result")
    in_flight = text("in flight when %s", "ending")
    hole = text("offset %s was unfinished when %s", mark["mem_off"], "ending")
    # an offset that a log tells may be older than the result
    itself = (mark["mem_off"] == sf.col(X)) & ~without_journal(sf.col("first_owner"))
    behind = (mark["mem_off"] < sf.col(X)) | itself
    return [
        *given_up.stages(),
        Stage("a", result.isNull() & dropped.isNotNull(), missing=later("stage a, dropped while running (O9, O10)")),
        Stage("a", result.isNull() & closed, missing=later("stage a, no result although its process closed (O10)")),
        Stage("a", result.isNull(), "O1", trigger=in_flight),
        Stage("b", sf.col("first.pq_dropped") & (dropped["reason"] == "shutdown"), "O10"),
        Stage("b", sf.col("first.pq_dropped"), "O9"),
        *handler_stages.next_owner(),
        Stage("b", handler_stages.unsettled(), missing=unsettled),
        Stage("c", mark.isNull(), missing=sf.lit("no low-water mark of the first owner")),
        Stage("c", behind, "O7", trigger=hole),
    ]


def _committed() -> list[Stage]:
    """Stages d to j: did the mark leave for the broker, arrive, and was it there when the next owner asked?"""
    reached = _above_x(sf.col("committed.new"))
    nowhere = ~reached & ~_above_x(sf.col("first_queue.persisted.value"))
    gone = ~sf.col("first_owner.closed") & sf.col("first_queue.dropped").isNull()
    refused = nowhere & _above_x(sf.col("first_queue.unsent.value"))
    on_the_way = text("the offset sent (%s) never reached the broker", "first_queue.persisted.reason")
    same_client = sf.col("first.boot_id") == sf.col("second.boot_id")
    same_broker = sf.col("committed.boot_id") == sf.col("answered.boot_id")
    # told once more after the answer, and lowered before it: it had been there in time
    late = same_broker & (sf.col("committed.seq") > sf.col("answered.seq")) & sf.col("lowered").isNull()
    no_answer = text("no OFF_GET of %s at %s", "second.process", "first.broker_name")
    taken = sf.col("first_queue.dropped.reason") == "reassigned"
    forgot = same_client & taken & _above_x(sf.col("first_queue.unsent.value"))
    # the highest commit of a client that came back may be of its second time, and then hides those of its first
    again = later("stage f, the same consumer opened the queue again and committed more")
    return [
        Stage("j", sf.col("second_queue.opened.source") == "illegal", "O16", trigger=broker_stages.corrected_words()),
        *given_up.without_offset(),
        Stage("d", forgot, "O13", trigger=text("the offset %s could not be told", "first_queue.unsent.value")),
        Stage("f", (same_client & late) | (reached & sf.col("came_back")), missing=again),
        Stage("d", refused, missing=later("stage d, sending the offset failed")),
        Stage("d", nowhere & gone, "O1"),
        Stage("d", nowhere, missing=later("stage d, the queue was given up without its offset (O10, O13)")),
        Stage("e", ~reached & sf.col("broker").isNull(), missing=text("no journal of %s", "first.broker_name")),
        Stage("e", ~reached, "O2", trigger=on_the_way),
        Stage("f", sf.col("answered").isNull(), missing=no_answer),
        *given_up.unlocked_first(late),
        Stage("f", late, "O8"),
    ]


def _above_x(value: Column) -> Column:
    """Whether an offset lies above the record's: committed there, the record would not come again.

    Unknown counts as no.
    """
    return sf.coalesce(value > sf.col(X), sf.lit(False))
