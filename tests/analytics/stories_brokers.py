"""Histories in which the broker had the offset and told the next owner a lower one. They join the other stories."""

from dejamq_proto.journal.writer import Level
from journals import History, Process
from stories import owner_that_did_6, story, story_of, successor


def committed_7(made: History, broker: Process) -> None:
    """A consumer that did 6, told the broker so, and was killed."""
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.offset_set(consumer, 6, 7)
    consumer.kill()


def next_start(made: History, source: str = "main", *, clean: bool = False, start: str = "again") -> Process:
    """The broker again, with a boot id of its own."""
    broker = made.process("broker", "broker-0", boot_id=f"{made.name}{start}".replace("-", ""))
    broker.boot(broker.name, clean=clean)
    if source:
        broker.offsets_loaded(source)
    return broker


def restarted(
    made: History, *, level: Level = Level.FORENSIC, flushed_before: bool = False, hole: bool = False,
    flushed: bool = False, clean: bool = False, source: str = "main",
) -> None:  # fmt: skip
    """The broker that was told 7 starts again with the offsets of ``source``, and c2 asks it."""
    broker = made.broker(level=level)
    if flushed_before:
        broker.offsets_flushed()
    committed_7(made, broker)
    if hole:
        broker.skip_lines(1)
        broker.offset_set(made.consumer("c3"), 0, 1)
    if flushed:
        broker.offsets_flushed()
    if clean:
        broker.close()
    else:
        broker.kill()
    successor(made, next_start(made, source, clean=clean))


story_of("o3", restarted, flushed_before=True)

# It may have written the offset, and the line about it be lost with the last 100 ms.
story_of("o3-of-a-buffering-broker", restarted, level=Level.AUDIT)

story_of("o3-with-a-hole-at-the-broker", restarted, hole=True)
story_of("o3-although-it-was-flushed", restarted, flushed=True)
story_of("o3-without-the-load", restarted, source="")
story_of("o4", restarted, flushed=True, clean=True, source="bak")
story_of("o15-after-the-file-was-lost", restarted, flushed=True, clean=True, source="none")


def has_the_queue_again(
    made: History, *, flushed: bool = False, one_start: bool = False, refused: bool = False
) -> None:
    """What c1 told while the broker was down came nowhere. Later it has the queue again, and tells a third start more.

    ``flushed``: that one wrote it down. ``one_start``: it tells the start that had told c2. ``refused``: that one did
    not take what it told at first.
    """
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.kill()
    if refused:
        again = next_start(made)
    consumer.drop_queue(queue, 7, "reassigned")
    consumer.persist(queue, 7, reason="drop", outcome="failed" if refused else "sent")
    if not refused:
        again = next_start(made)
    other = made.consumer("c2")
    again.offset_get(other, 6)
    taken = other.open_queue(6)
    other.handle(taken, 6, 7)
    again.offset_set(other, 6, 7)
    again.offsets_flushed()
    other.drop_queue(taken, 7, "reassigned")
    if not one_start:
        again.close()
        made.clock.now_us += 1_000_000
        again = next_start(made, "main", clean=True, start="third")
    again.offset_get(consumer, 7)
    consumer.handle(consumer.open_queue(7), 7, 8)
    again.offset_set(consumer, 7, 8)
    if flushed:
        again.offsets_flushed()
    for each in (consumer, other, again):
        each.close()


story_of("o2-although-it-had-the-queue-again-later", has_the_queue_again)
story_of("o2-although-a-later-start-wrote-down-more", has_the_queue_again, flushed=True)
story_of("had-the-queue-again-and-told-the-same-start-more", has_the_queue_again, one_start=True)
story_of("had-the-queue-again-after-it-was-refused", has_the_queue_again, one_start=True, refused=True)


@story
def o12(made: History) -> None:
    """A member that had owned the queue before commits what it still believes."""
    broker = made.broker()
    committed_7(made, broker)
    broker.offset_set(made.consumer("c0"), 7, 6)
    successor(made, broker)


def told_again_too_late(made: History, *, lost: bool = False) -> None:
    """The owner has told 7, somebody sets it back, the next one asks, and only then the owner tells 7 once more."""
    broker = made.broker()
    owner, queue = owner_that_did_6(made)
    owner.persist(queue, 7)
    broker.offset_set(owner, 6, 7)
    if lost:
        broker.skip_lines(1)
    else:
        broker.offset_set(made.consumer("c0"), 7, 6)
    tells_when_the_next_has_asked(made, broker, owner, queue)


def tells_when_the_next_has_asked(made: History, broker: Process, owner: Process, queue: int) -> None:
    heir = made.consumer("c2")
    broker.offset_get(heir, 6)
    owner.drop_queue(queue, 7)
    owner.persist(queue, 7, reason="drop")
    broker.offset_set(owner, 6, 7, by="sync")
    owner.close()
    heir.handle(heir.open_queue(6), 6, 7)
    heir.close()


story_of("o12-although-it-was-told-again", told_again_too_late)

# What is missing is that the offset was set back.
story_of("o8-with-a-hole-at-the-broker", told_again_too_late, lost=True)


@story
def o8_as_it_was_lowered_before(made: History) -> None:
    """What the offset fell from before this owner had the queue is another delivery's matter."""
    broker = made.broker()
    broker.offset_set(made.consumer("c0"), 7, 6)
    owner, queue = owner_that_did_6(made)
    tells_when_the_next_has_asked(made, broker, owner, queue)


@story
def o12_by_its_own_hand(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.offset_set(consumer, 6, 7)
    broker.offset_set(consumer, 7, 6)
    consumer.kill()
    successor(made, broker)


@story
def o15_after_the_offsets_were_deleted(made: History) -> None:
    broker = made.broker()
    committed_7(made, broker)
    heir = made.consumer("c2")
    broker.offset_get(heir, 0, why="default_zero")
    heir.handle(heir.open_queue(0), 6, 7)
    heir.close()


@story
def o16(made: History) -> None:
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    broker.offset_set(consumer, 6, 7)
    consumer.drop_queue(queue, 7, "illegal")
    broker.offset_set(consumer, 7, 6, by="sync")
    consumer.kill()
    successor(made, broker)
