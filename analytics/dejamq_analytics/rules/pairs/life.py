"""Adds to each pair of deliveries the journals' facts about both process queues, their owners and their broker."""

from typing import NamedTuple

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, text
from dejamq_analytics.rules.history.queues import QUEUE
from dejamq_analytics.rules.history.replicas import Replicas, with_replicas
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.rules.pairs.jumps import with_jumps
from dejamq_analytics.rules.pairs.locks import with_grants
from dejamq_analytics.rules.pairs.memory import came_back, highest_commit, last_correction, last_lowering, last_rewind

QUEUE_FACTS = ("opened", "dropped", "mark", "persisted", "unsent", "unlocked")
OWNER_FACTS = ("process", "closed", "level", "last_seq", "last_wall_us", "gaps", "skew_ms", "made_of")


class Life(NamedTuple):
    """Small frames: a row a process queue, a client's offset in a queue, a broker, a process or a fault.

    Every frame has at most one row for each key that it is joined by: a join can never multiply a pair.
    """

    queues: DataFrame
    committed: DataFrame
    answered: DataFrame
    moves: DataFrame
    memories: DataFrame
    brokers: DataFrame
    processes: DataFrame
    faults: DataFrame
    blockers: DataFrame
    contests: DataFrame
    replicas: Replicas
    jumps: DataFrame


def with_life(pairs: DataFrame, life: Life) -> DataFrame:
    """Adds structs, null where nothing is known.

    - ``{first,second}_queue``, ``{first,second}_owner``: process queue and member of each delivery
    - ``committed``: by the first owner; ``came_back``: whether that was after it had asked for the queue again
    - ``answered``: to the second
    - ``rewind``: by an operator between the two; ``lowered``: between the two; ``corrected``: by the pull
    - ``loaded``: by the broker's start that answered; ``flushed``: last, by the start that took the offset
    - ``broker``; ``fault``: done to the first owner; ``blocker``: of its mark
    - ``contest``: where both held the queue at once
    - locks and jumps of clocks, as ``with_grants`` and ``with_jumps`` say
    - ``ending``: how the first owner's hold ended, in words
    """
    frame = pairs
    for side in ("first", "second"):
        boot = {"boot_id": f"{side}.boot_id"}
        queues = life.queues.select("boot_id", "pq_id", sf.struct(*QUEUE_FACTS).alias(f"{side}_queue"))
        frame = beside(frame, queues, boot | {"pq_id": f"{side}.pq_id"})
        owners = life.processes.select("boot_id", sf.struct(*OWNER_FACTS).alias(f"{side}_owner"))
        frame = beside(frame, owners, boot)
    queue = {name: f"second.{name}" for name in QUEUE}
    frame = beside(frame, life.committed, queue | {"client_boot_id": "first.boot_id"})
    asked = {"client_boot_id": "second.boot_id", "value": "second_queue.opened.start_offset"}
    frame = beside(frame, life.answered, queue | asked)
    frame = frame.withColumn("committed", highest_commit()).withColumn("came_back", came_back()).drop("commits", "asks")
    frame = beside(frame, life.moves, queue)
    frame = frame.withColumns({"rewind": last_rewind(), "lowered": last_lowering()}).drop("rewinds", "lowerings")
    frame = frame.withColumn("corrected", last_correction()).drop("corrections")
    frame = with_replicas(frame, life.replicas)
    own = sf.when(sf.col("second_queue.opened.source").startswith("local"), sf.col("second.boot_id"))
    frame = frame.withColumn("teller", sf.coalesce("answered.boot_id", own))
    frame = beside(frame, life.memories.select("boot_id", "loaded"), {"boot_id": "teller"}).drop("teller")
    frame = beside(frame, life.memories.select("boot_id", "flushed"), {"boot_id": "committed.boot_id"})
    brokers = life.brokers.select(
        "broker_name", sf.struct("whole", "whole_from_us", "whole_until_us", "process", "made_of").alias("broker")
    )
    frame = beside(frame, brokers, {"broker_name": "first.broker_name"})
    frame = beside(frame, life.faults.select("boot_id", "fault"), {"boot_id": "first.boot_id"})
    sides = {f"{side}_{name}": f"{side}.{name}" for side in ("first", "second") for name in ("boot_id", "pq_id")}
    frame = beside(frame, life.contests, sides)
    frame = with_jumps(with_grants(frame), life.jumps)
    mark = {"boot_id": "first.boot_id", "pq_id": "first.pq_id", "queue_offset": "first_queue.mark.mem_off"}
    return beside(frame, life.blockers, mark).withColumn("ending", _ending())


def _ending() -> Column:
    """A fault that somebody injected is named."""
    process, dropped = sf.col("first.process"), sf.col("first_queue.dropped")
    return first_of(
        (dropped.isNotNull(), text("%s dropped the queue (%s)", process, dropped["reason"])),
        (sf.col("first_owner.closed"), text("%s closed", process)),
        (sf.col("fault").isNotNull(), text("%s ended without closing (fault: %s)", process, "fault.kind")),
        (sf.lit(True), text("%s ended without closing", process)),
    )
