"""Histories at level audit: of what was killed the last lines are gone, and lines of deliveries are late.

They join the other stories.
"""

from dejamq_proto.journal.writer import Level
from journals import TOPIC, History
from stories import owner_that_did_6, story, story_of, successor
from stories_brokers import committed_7, next_start
from stories_delay import again, first_start
from stories_delay import next_start as next_delivering
from stories_locks import begins, lock, unlock
from stories_owners import BOTH, ends, hand_over
from stories_replicas import promoted, slave

AUDIT = Level.AUDIT


def regained(made: History, *, late: bool) -> None:
    """c1 loses 6 under a handler and is given it once more; its first handler ends after that, or before (``late``)."""
    broker, owner = made.broker(), made.consumer("c1", level=AUDIT)
    queue = owner.open_queue(6)
    delivery = owner.deliver(queue, 6)
    owner.drop_queue(queue, 6, "reassigned", in_flight=1)
    broker.offset_get(owner, 6)
    again = owner.open_queue(6)
    if late:
        owner.result(queue, delivery, 6, 6, pq_dropped=True)
    owner.handle(again, 6, 7)
    if not late:
        owner.result(queue, delivery, 6, 6, pq_dropped=True)
    owner.close()


@story
def o14_at_level_audit(made: History) -> None:
    """What had counted is written when the queue is given up."""
    broker, owner = made.broker(), made.consumer("c1", level=AUDIT)
    queue = owner.open_queue(6)
    owner.handle(queue, 6, 7)
    owner.drop_queue(queue, 7, "unsubscribed")
    broker.offset_get(owner, 6)
    owner.handle(owner.open_queue(6), 6, 7)
    owner.close()


@story
def r11_with_late_lines(made: History) -> None:
    """The handler of c1 ends just before c2's delivery is written, which may have been earlier."""
    broker, older = made.broker(), made.consumer("c1", level=AUDIT)
    older.assign(*BOTH, queues="0")
    lock(broker, older)
    queue = older.open_queue(6)
    delivery = older.deliver(queue, 6)
    older.drop_queue(queue, 6, "reassigned", in_flight=1)
    newer = made.consumer("c2", level=AUDIT)
    newer.assign(*BOTH, queues="0")
    unlock(older, queue, forced=True)
    lock(broker, newer)
    older.result(queue, delivery, 6, 6, pq_dropped=True)
    begins(newer, broker)
    ends(older, newer, broker)


@story
def r9_with_late_lines(made: History) -> None:
    """c1's result was gathered when c2 opened the queue: its handler may have ended."""
    broker, older = made.broker(), made.consumer("c1", level=AUDIT)
    older.assign(*BOTH, queues="0")
    lock(broker, older)
    queue = older.open_queue(6)
    delivery = older.deliver(queue, 6)
    made.clock.now_us += 61_000_000
    newer = made.consumer("c2")
    newer.assign(*BOTH, queues="0")
    lock(broker, newer, older, age_ms=61_000)
    begins(newer, broker)
    older.result(queue, delivery, 6, 7)
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)


@story
def r10_of_a_broker_that_lost_its_lines(made: History) -> None:
    """The line by which it had given the lock to c1 is gone with its end."""
    broker, older = made.broker(level=AUDIT), made.consumer("c1")
    older.assign(*BOTH, queues="0")
    queue = older.open_queue(6)
    delivery = older.deliver(queue, 6)
    older.drop_queue(queue, 6, "reassigned", in_flight=1)
    broker.kill()
    broker = made.broker(boot_id=f"{made.name}again".replace("-", ""))
    newer = made.consumer("c2")
    newer.assign(*BOTH, queues="0")
    lock(broker, newer)
    begins(newer, broker)
    older.result(queue, delivery, 6, 6, pq_dropped=True)
    ends(older, newer, broker)


@story
def l6_with_its_commit_lost(made: History) -> None:
    """7 may have brought the COMMIT in the last 100 ms of c1."""
    broker, owner = made.broker(), made.consumer("c1", level=AUDIT)
    queue = owner.open_queue(6)
    owner.result(queue, owner.deliver(queue, 6), 6, 6, status="uncommitted")
    owner.kill()
    successor(made, broker)


@story
def o17_just_before_a_late_line(made: History) -> None:
    """The reset came a moment before the line of the delivery, and perhaps after the delivery."""
    broker, owner = made.broker(), made.consumer("c1", level=AUDIT)
    queue = owner.open_queue(6)
    broker.offset_set(made.consumer("operator"), 7, 3, by="reset")
    owner.handle(queue, 6, 7)
    owner.drop_queue(queue, 7, "reset")
    broker.offset_get(owner, 3)
    owner.handle(owner.open_queue(3), 6, 7)
    owner.close()


@story
def o3_whose_first_start_lost_all_lines(made: History) -> None:
    """Nothing is left of the broker that took the offset and crashed."""
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    consumer.kill()
    broker = next_start(made)
    successor(made, broker)
    broker.close()


@story
def o3_whose_crash_nobody_told(made: History) -> None:
    """Between two starts that are known, another one took the offset and crashed."""
    earlier = made.broker()
    earlier.close()
    o3_whose_first_start_lost_all_lines(made)


@story
def o5_without_the_slave(made: History) -> None:
    """The slave's journal of before is not there: it may have copied the offset."""
    master = made.broker()
    committed_7(made, master)
    master.kill()
    successor(made, promoted(made))


@story
def b1_of_a_buffering_broker(made: History) -> None:
    """It may have written its progress twice in its last 100 ms."""
    broker = made.broker(level=AUDIT)
    broker.progress(l3=6)
    broker.append(made.key(6), 0, topic=TOPIC, origin="schedule", origin_refs=["3:6"])
    broker.kill()
    again(made, next_delivering(made), TOPIC)


@story
def b1_with_a_hole(made: History) -> None:
    broker = first_start(made, TOPIC)
    broker.skip_lines(2)
    broker.offsets_flushed()
    broker.kill()
    again(made, next_delivering(made), TOPIC)


def reads(made: History, *, l3: int) -> None:
    """The next start tells what it read, so that nothing rests on what the first one did not write."""
    broker = made.broker(level=AUDIT)
    broker.append(made.key(6), 0, topic=TOPIC, origin="schedule", origin_refs=["3:6"])
    broker.kill()
    heir = next_delivering(made)
    heir.progress_read(l3=l3)
    again(made, heir, TOPIC)


story_of("b1-told-by-the-next-start", reads, l3=6)
story_of("b1-although-the-next-start-knew", reads, l3=7)


@story
def b2_told_by_the_slave(made: History) -> None:
    """The slave's journal of before may lack lines; what it read when it was made the master is enough."""
    master, other = first_start(made, TOPIC), slave(made, level=AUDIT)
    master.kill()
    other.kill()
    heir = promoted(made)
    heir.progress_read(l3=6)
    again(made, heir, TOPIC)


@story
def b2_of_a_buffering_slave(made: History) -> None:
    master, other = first_start(made, TOPIC), slave(made, level=AUDIT)
    other.progress(l3=6)
    master.kill()
    other.kill()
    again(made, promoted(made), TOPIC)


@story
def b2_without_the_slave(made: History) -> None:
    first_start(made, TOPIC).kill()
    again(made, promoted(made), TOPIC)


@story
def o8_of_two_at_once(made: History) -> None:
    """Both had the queue for a moment, and gather their lines: c2 may have been the first to deliver."""
    broker, older = made.broker(), made.consumer("c1", level=AUDIT)
    older.assign(*BOTH, queues="0")
    queue = older.open_queue(6)
    newer = made.consumer("c2", level=AUDIT)
    newer.assign(*BOTH, queues="0")
    broker.offset_get(newer, 6)
    heir = newer.open_queue(6)
    older.handle(queue, 6, 7)
    newer.handle(heir, 6, 7)
    older.assign(*BOTH, queues="1")
    hand_over(broker, older, queue)
    ends(older, newer, broker)


story_of("o9-of-a-queue-that-came-back", regained, late=True)
story_of("r8-at-level-audit", regained, late=False)
