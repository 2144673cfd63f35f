"""Which journal lines prove a decision, and which would have to be there but are not."""

from dejamq_analytics.frames import Column
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line, lines, text, without_journal
from dejamq_analytics.rules.history import clocks
from dejamq_analytics.rules.history.queues import BUFFERED_US, FOREVER_US, late_us
from dejamq_analytics.rules.pairs import jumps, locks, made_of_logs, owners
from dejamq_analytics.rules.pairs.stages import X

OF_BROKERS = ("O2", "O3", "O4", "O5", "O6", "O8", "O12", "O15", "O16")
"""Causes that rest on what a broker did and did not write."""
OF_MASTERS = ("O2", "O3", "O4", "O15")
"""Those that rest on all that a master wrote since the offset left, or since it had it."""


def hole() -> Column:
    """The missing part of the journals that a cause rests on; null when they are whole.

    The first owner must be whole from the delivery to its end, the second from opening the queue to the delivery. A
    cause that a broker lost or changed an offset also needs the broker's journal: until a moment after the offset left
    (O2), or until it answered (O3).

    A cause is only named when the absence of a line means that nothing happened. That is what makes a verdict
    certain: a lost journal can make it undetermined, never wrong.
    """
    first, second, broker = sf.col("first_owner"), sf.col("second_owner"), sf.col("broker")
    kept = first["closed"] | (first["level"] == "forensic") | sf.col("first_queue.dropped").isNotNull()
    kept |= without_journal(first)
    dropped_seq = sf.coalesce("first_queue.dropped.seq", sf.lit(FOREVER_US))
    # an UNLOCK that nobody finds would stand after the queue was dropped
    until = sf.when(sf.col("decision.cause") == "R10", FOREVER_US).otherwise(dropped_seq)
    mine = _gaps_between(first["gaps"], sf.col("first.seq"), until)
    theirs = _gaps_between(second["gaps"], sf.col("second_queue.opened.seq"), sf.col("second.seq"))
    needs_broker = sf.col("decision.cause").isin(*OF_BROKERS) & ~without_journal(broker)
    contested = sf.col("decision.cause").isin(*owners.CAUSES)
    contested |= (sf.col("decision.cause") == "O8") & owners.overtook()
    arrival_us = sf.when(sf.col("decision.cause") == "O2", sf.col("first_queue.persisted.wall_us") + BUFFERED_US)
    # a flush may be among the lines that a killed broker had not written
    until_answer = sf.col("decision.cause").isin("O3", "O5", "O6")
    arrival_us = sf.coalesce(arrival_us, sf.when(until_answer, sf.col("answered.wall_us")))
    sent_us = sf.when(sf.col("decision.cause") == "O2", sf.col("first_queue.persisted.wall_us"))
    sent_us = sf.coalesce(sent_us, "committed.wall_us", "first.wall_us")
    unflushed = text(
        "the last 100 ms of %s, which ended without closing at journal level %s",
        "first.process",
        sf.nullif(first["level"], sf.lit("")),
    )
    return first_of(
        (made_of_logs.hole().isNotNull(), made_of_logs.hole()),
        (sf.size(mine) > 0, gap_text(mine, "first.process")),
        (~kept, unflushed),
        (clocks.hole().isNotNull(), clocks.hole()),
        (sf.size(theirs) > 0, gap_text(theirs, "second.process")),
        (needs_broker & ~broker["whole"], text("seq gap of %s", broker["process"])),
        (needs_broker & (broker["whole_until_us"] < arrival_us), text("the last lines of %s", broker["process"])),
        (
            needs_broker & sf.col("decision.cause").isin(*OF_MASTERS) & (broker["whole_from_us"] > sent_us),
            text("the lines of an earlier start of %s", broker["process"]),
        ),
        (_order_unknown(), text("which came first, the delivery in %s or in %s", "first.process", "second.process")),
        (contested, owners.hole()),
    )


def _order_unknown() -> Column:
    """Whether the second one of two owners at once may have delivered first.

    Its line was late, and the first one's was not there when it opened the queue. Rules that decide by the order in
    which owners opened the queue are not concerned.
    """
    opened_before = sf.col("second_queue.opened.wall_us") < sf.col("first.wall_us")
    close = opened_before & (sf.col("second.wall_us") - sf.col("first.wall_us") < late_us("second"))
    either = sf.col("decision.cause").isin(*owners.CAUSES, *locks.CAUSES)
    return sf.col("contest").isNotNull() & close & ~either


def _gaps_between(gaps: Column, begin: Column, end: Column) -> Column:
    return sf.filter(gaps, lambda gap: (gap["last"] > begin) & (gap["first"] < end))


def gap_text(gaps: Column, process: str) -> Column:
    """The first of these gaps in words."""
    gap = sf.get(gaps, sf.lit(0))
    return text("seq gap %s-%s of %s", gap["first"], gap["last"], process)


def evidence() -> Column:
    """The lines of a redelivery's story, in its order; those that do not exist are left out."""
    return lines(
        *_of_first_owner(),
        *_of_brokers(),
        *jumps.evidence(),
        *locks.evidence(),
        *owners.evidence(),
        *_of_second_owner(),
    )


def _of_first_owner() -> list[Column]:
    ended = sf.when(sf.col("first_owner.closed"), "its last line, closed").otherwise("its last line, not closed")
    mark, persisted = sf.col("first_queue.mark"), sf.col("first_queue.persisted")
    result = text("%s, low-water mark %s", "first.result", "first.result_mem_off")
    blocker = text("the unfinished offset %s, delivery %s", "blocker.queue_offset", "blocker.delivery_id")
    sent = text("the highest offset sent, %s (%s)", persisted["value"], persisted["reason"])
    untold = text("%s could not be told (%s)", "first_queue.unsent.value", "first_queue.unsent.reason")
    told = [
        ("DELIVER", text("queue offset %s, delivery %s", X, "first.delivery_id"), "first.seq"),
        ("RESULT", result, "first.result_seq"),
        ("SENDBACK", text("%s by %s", "first.sendback_outcome", "first.sendback_path"), "first.sendback_seq"),
        ("DELIVER", blocker, "blocker.seq"),
        ("RESULT", text("its highest low-water mark, %s", mark["mem_off"]), "first_queue.mark.seq"),
        ("PERSIST", sent, "first_queue.persisted.seq"),
        ("PERSIST", untold, "first_queue.unsent.seq"),
        ("PQ_DROP", text("%s", "first_queue.dropped.reason"), "first_queue.dropped.seq"),
        ("END", ended, "first_owner.last_seq"),
    ]
    return [line(event, words, process="first.process", boot_id="first.boot_id", seq=seq) for event, words, seq in told]


def _of_brokers() -> list[Column]:
    told = [
        ("FAULT", text("%s", "fault.kind"), "fault"),
        ("OFF_SET", text("the highest offset taken from it, %s by %s", "committed.new", "committed.by"), "committed"),
        ("OFF_SET", text("%s by an operator, to %s", "rewind.by", "rewind.new"), "rewind"),
        ("PULL", text("asked for %s, sent to %s", "corrected.request_offset", "corrected.next_offset"), "corrected"),
        ("OFF_SET", text("from %s to %s by %s", "lowered.old", "lowered.new", "lowered.client_id"), "lowered"),
        ("OFF_SET", text("the highest offset that a slave copied, %s", "copied.new"), "copied"),
        ("REPLICA", text("goes on as master from log offset %s", "promoted.log_offset"), "promoted"),
        ("OFF_FLUSH", text("the last one of that start, %s offsets", "flushed.entries"), "flushed"),
        ("OFF_LOAD", text("%s offsets from %s", "loaded.entries", "loaded.source"), "loaded"),
        ("OFF_GET", text("answered %s (%s)", "second_queue.opened.start_offset", "answered.why"), "answered"),
    ]
    return [
        line(event, words, process=f"{fact}.process", boot_id=f"{fact}.boot_id", seq=f"{fact}.seq")
        for event, words, fact in told
    ]


def _of_second_owner() -> list[Column]:
    opened = owners.began(sf.col("second_queue.opened"))
    told = [
        ("PQ_OPEN", opened, "second_queue.opened.seq"),
        ("DELIVER", text("queue offset %s, delivery %s", X, "second.delivery_id"), "second.seq"),
    ]
    return [
        line(event, words, process="second.process", boot_id="second.boot_id", seq=seq) for event, words, seq in told
    ]
