"""Processes without a journal, whose lines were made of logs and traces: what of them a cause rests on.

A journal without holes tells everything. A log tells some kinds of acts and never others, and its end may be missing.
So each cause names the kinds of evidence that it needs; a cause that is not among ``NEEDS`` is never named from logs.
"""

import re
from typing import NamedTuple

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, text, without_journal
from dejamq_analytics.rules.stage import Stage

X = "first.queue_offset"
WORDS = {
    "log": "the whole client log of %s (rocketmq_client.log)",
    "trace": "trace records of %s (enableTrace)",
    "tail": "the end of the log of %s: whether it told its offset once more before it ended",
    "broker.log": "broker.log of %s",
    "store.log": "store.log of %s",
    "lock.log": "lock.log (RocketMQ 5.3: filter.log) of %s",
    "store": "the commit log of %s (--store)",
}
"""Kinds of evidence, and how ``missing`` speaks of them."""


PROCESSES = {
    "producer": ("the producer", "producer"), "first": ("the first consumer", "consumer"),
    "second": ("the second consumer", "consumer"), "broker": ("the broker", "broker"),
}  # fmt: skip
"""The processes that evidence is of, in words, and the role of each."""


class LogNeeds(NamedTuple):
    """The evidence that a cause rests on, of each process."""

    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    broker: tuple[str, ...] = ()
    producer: tuple[str, ...] = ()


NEEDS = {
    "P1": LogNeeds(broker=("store",), producer=("log", "trace")),
    "P5": LogNeeds(broker=("store",), producer=("trace",)),
    "P7": LogNeeds(broker=("store",)),
    "P8": LogNeeds(broker=("store.log", "store")),
    "B1": LogNeeds(broker=("store.log", "store")),
    "B11": LogNeeds(("log", "trace"), ("trace",), ("store",)),
    "B12": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "B13": LogNeeds(("log", "trace"), ("trace",), ("store",)),
    "O1": LogNeeds(("log", "trace", "tail"), ("log", "trace"), ("store",)),
    "O3": LogNeeds(("log", "trace"), ("log", "trace"), ("broker.log", "store.log", "store")),
    "O4": LogNeeds(("log", "trace"), ("log", "trace"), ("broker.log", "store.log", "store")),
    "O7": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "O8": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "O9": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "O10": LogNeeds(("log", "trace", "tail"), ("log", "trace"), ("store",)),
    "O12": LogNeeds(("log", "trace"), ("log", "trace"), ("broker.log", "store")),
    "O15": LogNeeds(("log", "trace"), ("log", "trace"), ("broker.log", "store")),
    "O17": LogNeeds(("trace",), ("log", "trace"), ("broker.log", "store")),
    "R1": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "R2": LogNeeds(("log", "trace", "tail"), ("log", "trace"), ("store",)),
    "R3": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "R4": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "R5": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "R6": LogNeeds(("log", "trace"), ("log", "trace"), ("broker.log", "store")),
    "R9": LogNeeds(("log", "trace"), ("log", "trace"), ("lock.log", "store")),
    "R10": LogNeeds(("log", "trace"), ("log", "trace"), ("lock.log", "store.log", "store")),
    "R11": LogNeeds(("log", "trace"), ("log", "trace"), ("store.log", "store")),
    "L1": LogNeeds(("trace",), ("trace",), ("store",)),
    "L2": LogNeeds(("trace",), ("trace",), ("store",)),
    "L3": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "L5": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "L6": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "L7": LogNeeds(("trace",), ("log",), ("store",)),
    "L8": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
    "L9": LogNeeds(("log", "trace"), ("log", "trace"), ("store",)),
}
"""Causes, as far as logs and traces prove them."""
LIKELY = {
    "O2": "whether the last offset of {first} was lost on its way (O2), or came and was forgotten (O3 to O6, O12): a "
    "copy of consumerOffset.json of that time, or what dejamq collect polled",
    "O20": "the file of offsets of {second} (O20): whether the one of {first} was written, and was the same file",
}
"""Causes that no evidence proves, and what would tell them from others."""


def never_whole(processes: DataFrame) -> DataFrame:
    """With a gap before the first line of each such process: a log that lacks something proves nothing by itself."""
    before = sf.array(sf.struct(sf.lit(0).cast("bigint").alias("first"), sf.lit(0).cast("bigint").alias("last")))
    gaps = sf.when(sf.col("made_of") != "", sf.concat(before, "gaps")).otherwise(sf.col("gaps"))
    return processes.select(*[gaps.alias(name) if name == "gaps" else name for name in processes.columns])


def hole() -> Column:
    """The evidence that the cause rests on and that is not there; null when all of it is, and for journals."""
    cause, found = sf.col("decision.cause"), []
    for side, process in (("first", "first.process"), ("second", "second.process"), ("broker", "broker.process")):
        owner = sf.col("broker") if side == "broker" else sf.col(f"{side}_owner")
        kinds = sorted({kind for needs in NEEDS.values() for kind in getattr(needs, side)})
        for kind in kinds:
            causes = [name for name, needs in NEEDS.items() if kind in getattr(needs, side)]
            found.append((cause.isin(*causes) & _lacks(owner, kind), text(WORDS[kind], process)))
    foreign = without_journal(sf.col("first_owner")) | without_journal(sf.col("second_owner"))
    never = text("a journal: no log that is read here proves %s", cause)
    likely = [(foreign & (cause == name), _words(words)) for name, words in LIKELY.items()]
    return first_of(*found, *likely, (foreign & ~cause.isin(*NEEDS), never))


def _words(pattern: str) -> Column:
    """With the names of both processes."""
    sides = re.findall(r"\{(first|second)\}", pattern)
    return text(re.sub(r"\{(?:first|second)\}", "%s", pattern), *[f"{side}.process" for side in sides])


def unplaced() -> list[Stage]:
    """Before all else: which record it was, and through which process queue it came."""
    nowhere = (sf.col(X) < 0) | (sf.col("second.queue_offset") < 0)
    which = text("which stored record it was: no commit log of the brokers has message %s once", "second.unique_key")
    stages = [Stage("1", sf.coalesce(nowhere, sf.lit(False)), missing=which)]
    return stages + [
        Stage("1", _lacks(sf.col(f"{side}_owner"), "log"), missing=text(WORDS["log"], f"{side}.process"))
        for side in ("first", "second")
    ]


def cut_short() -> list[Stage]:
    """What a client had not sent yet when it was killed, and what did not end before it left."""
    first, result = sf.col("first_owner"), sf.col("first.result")
    foreign, dropped = without_journal(first), sf.col("first_queue.dropped")
    untold = text("the last traces of %s: whether its handler had ended offset %s", "first.process", X)
    left = text("%s left while its handler worked", "first.process")
    persisted, mark = sf.col("first_queue.persisted"), sf.col("first_queue.mark")
    # a client of RocketMQ tells all its offsets every few seconds, also those that stand still
    stood = (persisted["value"] <= sf.col(X)) & (persisted["seq"] > sf.col("first.result_seq"))
    hidden = (result == "success") & ~sf.col("first.pq_dropped") & (mark["mem_off"] <= sf.col(X))
    once_more = text("a line of %s that tells its offset after it had done offset %s", "first.process", X)
    unfinished = foreign & result.isNull()
    gone, lowest = dropped["reason"] == "shutdown", sf.coalesce(persisted["value"] == sf.col(X), sf.lit(False))
    ended = text("the trace record that %s had ended offset %s: it told a higher one", "first.process", X)
    return [
        Stage("a", foreign & (result == "untold"), missing=untold),
        Stage("a", unfinished & sf.coalesce(persisted["value"] > sf.col(X), sf.lit(False)), missing=ended),
        Stage("a", unfinished & gone & lowest, "O10", trigger=left),
        Stage("a", unfinished & gone, missing=untold),
        Stage("c", foreign & hidden & ~sf.coalesce(stood, sf.lit(False)), missing=once_more),
    ]


def left_behind() -> list[Stage]:
    """A client that leaves tells the lowest offset that it has not done: that one, and all above it, come again."""
    left = without_journal(sf.col("first_owner")) & (sf.col("first_queue.dropped.reason") == "shutdown")
    told = sf.col("first_queue.persisted")
    last = left & (told["reason"] == "shutdown")
    open_ = text("offset %s was unfinished when %s left", told["value"], "first.process")
    itself = text("%s left before its handler had ended", "first.process")
    return [
        Stage("c", last & (told["value"] < sf.col(X)), "O7", trigger=open_),
        Stage("b", last & (told["value"] == sf.col(X)), "O10", trigger=itself),
    ]


def _lacks(owner: Column, kind: str) -> Column:
    """Whether a process without a journal has no such evidence."""
    kinds = sf.concat(sf.lit(","), owner["made_of"], sf.lit(","))
    return without_journal(owner) & ~sf.contains(kinds, sf.lit(f",{kind},"))
