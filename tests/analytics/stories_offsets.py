"""Histories of offsets that their owner took along, or that were no broker's matter (O11, O14, O16, O18 to O20)."""

from dejamq_proto.events import OffLoad, Pull
from journals import TOPIC, History, Process
from stories import owner_that_did_6, story, successor
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


@story
def o11(made: History) -> None:
    hand_over_in_order(made)


@story
def o8_of_a_group_without_locks(made: History) -> None:
    hand_over_in_order(made, unlocked=False, locked=False)


@story
def o11_without_the_unlock(made: History) -> None:
    hand_over_in_order(made, unlocked=False)


@story
def o11_without_the_next_lock(made: History) -> None:
    hand_over_in_order(made, locked=False)


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


@story
def o14(made: History) -> None:
    unsubscribed(made)


@story
def o14_after_an_older_persist(made: History) -> None:
    unsubscribed(made, persisted=6)


@story
def o14_with_a_hole(made: History) -> None:
    """What is missing may be the line that the offset had left."""
    unsubscribed(made, hole=1)


@story
def no_o14_as_it_was_persisted(made: History) -> None:
    unsubscribed(made, persisted=7)


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


@story
def o16_by_the_successor(made: History) -> None:
    """It is not O12, although another client lowers the offset: the broker sent it there."""
    behind_the_end(made)


@story
def o12_beside_a_correction(made: History) -> None:
    """Somebody else lowers it: what the broker told this one is not the reason."""
    behind_the_end(made, by="c3")


@story
def o16_with_a_hole_at_the_broker(made: History) -> None:
    behind_the_end(made, told=False, hole=1)


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


@story
def o18(made: History) -> None:
    polled(made, end="reassigned")


@story
def o18_with_an_older_commit(made: History) -> None:
    polled(made, end="shutdown", persisted=6)


@story
def o18_with_a_hole(made: History) -> None:
    polled(made, end="reassigned", hole=1)


@story
def o1_of_a_lite_consumer(made: History) -> None:
    polled(made, end="kill")


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


@story
def o19(made: History) -> None:
    own_offsets(made)


@story
def o19_with_a_hole(made: History) -> None:
    own_offsets(made, hole=1)


@story
def sought_while_another_has_it(made: History) -> None:
    own_offsets(made, closed=False)


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


@story
def o20_without_the_file(made: History) -> None:
    broadcasting(made, "none")


@story
def o20_by_the_backup(made: History) -> None:
    broadcasting(made, "bak")


@story
def o20_by_an_older_file(made: History) -> None:
    broadcasting(made, "main")


@story
def o20_before_the_file_was_written(made: History) -> None:
    broadcasting(made, "main", persisted=0, killed=True)


@story
def o20_without_the_load(made: History) -> None:
    broadcasting(made, "")
