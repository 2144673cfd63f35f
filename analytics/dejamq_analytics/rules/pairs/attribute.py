"""Why a record was delivered again: the life of "x is done", walked stage by stage to the first one that is missing.

RocketMQ's consumer keeps its progress in four places: the handler's result, the low-water mark of the process queue,
the offset sent to the broker, the broker's table. The next owner starts at what reached the table. The first stage
that applies decides (``stages.py``); its cause is certain only if the journals it rests on are whole.
"""

from typing import NamedTuple

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.pairs import proof, stages
from dejamq_analytics.rules.pairs.life import Life, with_life


class Judgement(NamedTuple):
    """The expressions over the columns of ``life.with_life``. Making them takes a second, because there are many, and
    needs no frame.
    """

    decision: Column
    hole: Column
    evidence: Column


def judgement() -> Judgement:
    """Of each redelivery what decides, what is missing to be certain, and what proves it."""
    return Judgement(stages.decision(), proof.hole(), proof.evidence())


def redelivered(pairs: DataFrame, life: Life, by: Judgement) -> DataFrame:
    """I1 pairs with cause, stage, trigger, missing, expected and evidence."""
    known = with_life(pairs.where(sf.col("identity") == "I1"), life)
    judged = known.withColumn("decision", by.decision)
    # what a handler asked for is there to read; what its next owner was given (stage b) nobody had settled until then
    asked_for = sf.col("decision.expected") & (sf.col("decision.stage") != "b")
    rests_on_absence = sf.col("decision.cause").isNotNull() & ~asked_for
    complete = judged.withColumn("hole", sf.when(rests_on_absence, by.hole))
    return complete.select(
        "identity", "first", "second",
        sf.when(sf.col("hole").isNull(), sf.col("decision.cause")).alias("cause"),
        sf.col("decision.stage").alias("stage"),
        sf.col("decision.trigger").alias("trigger"),
        sf.coalesce("hole", "decision.missing").alias("missing"),
        (sf.col("decision.expected") & sf.col("hole").isNull()).alias("expected"),
        by.evidence.alias("evidence"),
    )  # fmt: skip
