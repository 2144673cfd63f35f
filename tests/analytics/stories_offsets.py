"""Histories of offsets that their owner took along, or that were no broker's matter (O11, O14, O16, O18 to O20)."""

from dejamq_proto.journal.events import OffLoad, Pull
from journals import TOPIC, History, Process
from stories import owner_that_did_6, story, story_of, successor
from stories_locks import lock, unlock

MOVED = 21


def corrected(broker: Process, client: Process, asked: int, sent_to: int) -> None:
    """The queue has not what the client asks for."""
    broker.write(Pull(
        broker_name=broker.home.broker_name, group=broker.home.group, topic=TOPIC, queue_id=0, client_id=client.name,
        client_boot_id=client.boot_id, request_seq=1, request_offset=asked, next_offset=sent_to, count=0, code=MOVED,
    ))  # fmt: skip


def hand_over_in_order(made: History, *, unlocked: bool = True, locked: bool = True) -> None:
    """The owner gives its lock back, and then tells its offset; the next one comes in between."""
    broker, owner = made.broker(), made.consumer("c1")
    lock(broker, owner)
    queue = owner.open_queue(6)
    owner.handle(queue, 6, 7)
    if unlocked:
        unlock(owner, queue, forced=False)
    owner.persist(queue, 7, reason="shutdown")
    owner.drop_queue(queue, 7)
    heir = made.consumer("c2")
    if locked:
        lock(broker, heir)
    broker.offset_get(heir, 6)
    broker.offset_set(owner, 6, 7)
    owner.close()
    heir.handle(heir.open_queue(6), 6, 7)


story_of("o11", hand_over_in_order)
story_of("o8-of-a-group-without-locks", hand_over_in_order, unlocked=False, locked=False)
story_of("o11-without-the-unlock", hand_over_in_order, unlocked=False)
story_of("o11-without-the-next-lock", hand_over_in_order, locked=False)


def unsubscribed(made: History, *, persisted: int = 0, hole: int = 0) -> None:
    """The program unsubscribes and subscribes again."""
    broker = made.broker()
    consumer, queue = owner_that_did_6(made)
    if persisted:
        consumer.persist(queue, persisted)
        broker.offset_set(consumer, 6, persisted)
    consumer.skip_lines(hole)
    consumer.drop_queue(queue, 7, "unsubscribed")
    broker.offset_get(consumer, 6)
    again = consumer.open_queue(6)
    consumer.handle(again, 6, 7)
    consumer.persist(again, 7, reason="shutdown")
    broker.offset_set(consumer, 6, 7)
    consumer.close()


story_of("o14", unsubscribed)
story_of("o14-after-an-older-persist", unsubscribed, persisted=6)

# What is missing may be the line that the offset had left.
story_of("o14-with-a-hole", unsubscribed, hole=1)

story_of("no-o14-as-it-was-persisted", unsubscribed, persisted=7)


def behind_the_end(made: History, *, told: bool = True, by: str = "c2", hole: int = 0) -> None:
    """The queue ends at 3; who asks for 7 is sent to 0, commits that, and begins anew."""
    broker = made.broker()
    owner, queue = owner_that_did_6(made)
    owner.persist(queue, 7)
    broker.offset_set(owner, 6, 7)
    owner.drop_queue(queue, 7)
    owner.close()
    heir = made.consumer("c2")
    broker.offset_get(heir, 7)
    illegal = heir.open_queue(7)
    broker.skip_lines(hole)
    if told:
        corrected(broker, heir, 7, 6)
    heir.drop_queue(illegal, 6, "illegal")
    broker.offset_set(heir if by == "c2" else made.consumer("c3"), 7, 6)
    broker.offset_get(heir, 6)
    heir.handle(heir.open_queue(6), 6, 7)
    heir.close()


# It is not O12, although another client lowers the offset: the broker sent it there.
story_of("o16-by-the-successor", behind_the_end)

# Somebody else lowers it: what the broker told this one is not the reason.
story_of("o12-beside-a-correction", behind_the_end, by="c3")

story_of("o16-with-a-hole-at-the-broker", behind_the_end, told=False, hole=1)


@story
def o16_of_a_lite_consumer(made: History) -> None:
    """It commits nothing, and begins at once where the broker sent it."""
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6, kind="poll")
    consumer.result(queue, delivery, 6, 7)
    corrected(broker, consumer, 7, 6)
    consumer.drop_queue(queue, 7, "illegal")
    consumer.handle(consumer.open_queue(6, source="illegal"), 6, 7)
    consumer.close()
    broker.close()


def polled(made: History, *, end: str, persisted: int = 0, hole: int = 0) -> None:
    """A program polled 6 and polled again: to a lite consumer 6 is done, and not committed."""
    broker, consumer = made.broker(), made.consumer("c1")
    queue = consumer.open_queue(6)
    delivery = consumer.deliver(queue, 6, kind="poll")
    consumer.result(queue, delivery, 6, 7)
    consumer.skip_lines(hole)
    if end == "kill":
        consumer.kill()
    else:
        consumer.drop_queue(queue, 7, end)
        if persisted:
            consumer.persist(queue, persisted, reason="drop")
            broker.offset_set(consumer, 6, persisted)
    successor(made, broker)


story_of("o18", polled, end="reassigned")
story_of("o18-with-an-older-commit", polled, end="shutdown", persisted=6)
story_of("o18-with-a-hole", polled, end="reassigned", hole=1)
story_of("o1-of-a-lite-consumer", polled, end="kill")


def own_offsets(made: History, *, hole: int = 0, closed: bool = True) -> None:
    """The program seeks to what it had noted itself."""
    consumer, _ = owner_that_did_6(made)
    consumer.skip_lines(hole)
    if closed:
        consumer.close()
    heir = made.consumer("c2")
    heir.handle(heir.open_queue(6, source="seek"), 6, 7)
    if not closed:
        consumer.state("resumed")


story_of("o19", own_offsets)
story_of("o19-with-a-hole", own_offsets, hole=1)
story_of("sought-while-another-has-it", own_offsets, closed=False)


def broadcasting(made: History, source: str, *, persisted: int = 7, killed: bool = False) -> None:
    """A member of a broadcasting group is started again, and reads its file of offsets."""
    first = made.consumer("c1")
    queue = first.open_queue(6, source="local_first")
    first.handle(queue, 6, 7)
    if persisted:
        first.persist(queue, persisted, reason="timer")
    if not killed:
        first.drop_queue(queue, 7)
        first.close()
    else:
        first.kill()
    second = made.consumer("c1", boot_id=f"{made.name}again".replace("-", ""))
    if source:
        second.write(OffLoad(broker_name="", source=source, digest="", entries=int(source != "none"), file="f"))
    second.handle(second.open_queue(6, source="local" if source != "none" else "local_first"), 6, 7)
    second.close()


story_of("o20-without-the-file", broadcasting, "none")
story_of("o20-by-the-backup", broadcasting, "bak")
story_of("o20-by-an-older-file", broadcasting, "main")
story_of("o20-before-the-file-was-written", broadcasting, "main", persisted=0, killed=True)
story_of("o20-without-the-load", broadcasting, "")
