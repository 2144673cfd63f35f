"""Histories of popped messages that came again: as copies (B6, B7, B9, L1), and at their place (B9, O17, L10).

A line is a millisecond after the one before, and messages are invisible for 30 ms.
"""

from dejamq_proto.journal.events import OffSet
from dejamq_proto.journal.writer import Level
from journals import START_US, TOPIC, History, Process
from stories import story, story_of

POPPED, CHANGED = START_US // 1000, START_US // 1000 + 7
OVER_MS = 40


def given(made: History, broker: Process, consumer: Process) -> int:
    """Message 6 is popped and received."""
    broker.popped(consumer, 6, POPPED)
    return consumer.receive(6)


def later(made: History) -> None:
    made.clock.now_us += OVER_MS * 1000


def came_again(
    made: History, broker: Process, consumer: Process, *, pop_time: int = POPPED, revived: bool = True
) -> None:
    """The copy is stored, popped, received and acknowledged."""
    if revived:
        broker.revived(6, pop_time, 0)
    retry, again = f"%RETRY%{made.group}_{TOPIC}", POPPED + 1000
    broker.popped(consumer, 0, again, topic=retry)
    delivery = consumer.receive(0, key=made.key(6), topic=retry, reconsume_times=[1])
    consumer.try_ack(delivery, 0, again, topic=retry)
    broker.acked(consumer, 0, again, topic=retry)


def over(
    made: History, *, acks: str = "", level: Level = Level.FORENSIC, killed: bool = False, hole: bool = False,
    revived: bool = True, unknown: bool = False,
) -> None:  # fmt: skip
    """Nobody acknowledges 6 in time. ``acks``: when c1 says that it is done, early or late."""
    broker, first, second = made.broker(), made.consumer("c1", level=level), made.consumer("c2")
    if unknown:
        broker.popped(made.consumer("c3"), 6, POPPED)
        first.receive(6)
        delivery = 0
    else:
        delivery = given(made, broker, first)
    if hole:
        first.skip_lines(1)
    if acks == "early":
        first.try_ack(delivery, 6, POPPED)
    if killed:
        first.kill()
    later(made)
    came_again(made, broker, second, revived=revived)
    if acks == "late":
        first.try_ack(delivery, 6, POPPED)
        broker.acked(first, 6, POPPED, outcome="refused", reason="NO_MESSAGE")
    if not killed:
        first.close()
    second.close()
    broker.close()


story_of("b6", over, acks="late")
story_of("b6-never-done", over)
story_of("b6-of-a-killed-consumer", over, killed=True)
story_of("b6-of-a-buffering-consumer", over, killed=True, level=Level.AUDIT)
story_of("b6-with-a-hole", over, hole=True)
story_of("b6-without-the-revive", over, revived=False)
story_of("b6-of-another-consumer", over, unknown=True)
story_of("b7", over, acks="early")


def renewed(made: History, how: str, *, told: bool = True, acks: bool = False) -> None:
    """The consumer asked for another time, and that was over too."""
    broker, consumer = made.broker(), made.consumer()
    delivery = given(made, broker, consumer)
    if told:
        broker.changed(consumer, 6, POPPED, CHANGED, how, 30 if how == "renewed" else 0)
    later(made)
    came_again(made, broker, consumer, pop_time=CHANGED)
    if acks:
        consumer.try_ack(delivery, 6, CHANGED)
    consumer.close()
    broker.close()


story_of("b6-renewed", renewed, "renewed")
story_of("b6-shortened", renewed, "visible", acks=True)
story_of("l1-given-back", renewed, "visible")
story_of("l1-given-back-in-a-lost-line", renewed, "visible", told=False)


def left_in_hand(made: History, *, closed: bool) -> None:
    """The consumer is gone, and its broker gives back what it had, by the number of the call that brought it."""
    broker, first, second = made.broker(), made.consumer("c1"), made.consumer("c2")
    given(made, broker, first)
    if closed:
        first.close()
    else:
        first.kill()
    broker.changed(first, 6, POPPED, CHANGED, "visible", 1, request_seq=1)
    later(made)
    came_again(made, broker, second, pop_time=CHANGED)
    second.close()
    broker.close()


story_of("o10-of-a-group-that-pops", left_in_hand, closed=True)
story_of("b6-given-back-by-the-broker", left_in_hand, closed=False)


def next_start(made: History, log_max: int = 0) -> Process:
    broker = made.process("broker", "broker-0", boot_id=f"{made.name}again".replace("-", ""))
    broker.boot(broker.name, clean=False, log_max=log_max)
    return broker


def acknowledged(made: History, *, lost: bool = True, told: bool = True) -> None:
    """The acknowledgement, the second record of pops, was at the end that the log lost; or it was not."""
    broker, consumer = made.broker(level=Level.FORENSIC if told else Level.AUDIT), made.consumer()
    delivery = given(made, broker, consumer)
    consumer.try_ack(delivery, 6, POPPED)
    if told:
        broker.acked(consumer, 6, POPPED)
    else:
        broker.skip_lines(2)
    broker.kill()
    broker = next_start(made, 102_000 if lost else 103_000)
    later(made)
    came_again(made, broker, consumer)
    consumer.close()
    broker.close()


story_of("b9-of-an-acknowledgement", acknowledged)
story_of("b9-of-an-acknowledgement-in-a-lost-line", acknowledged, told=False)
story_of("b9-although-nothing-was-lost", acknowledged, lost=False)


def popped_twice(made: History, *, lost: bool = True, told: bool = True, reset: bool = False) -> None:
    """The check point was at the end that the log lost, or an operator sent the group back."""
    broker, consumer = made.broker(), made.consumer()
    if told:
        given(made, broker, consumer)
    else:
        consumer.receive(6)
    if reset:
        broker.write(OffSet(broker_name=made.broker_name, group=made.group, topic=TOPIC, queue_id=0, old=7, new=5,
                            by="reset"))  # fmt: skip
    else:
        broker.kill()
        broker = next_start(made, 101_000 if lost else 102_000)
    broker.popped(consumer, 6, POPPED + 1000)
    consumer.receive(6)
    consumer.close()
    broker.close()


story_of("b9", popped_twice)
story_of("b9-although-the-check-point-was-there", popped_twice, lost=False)
story_of("b9-without-the-first-pop", popped_twice, told=False)
story_of("o17-of-a-group-that-pops", popped_twice, reset=True)


@story
def l10(made: History) -> None:
    """One member pulls while another one pops."""
    broker, pulls, pops = made.broker(), made.consumer("c1"), made.consumer("c2")
    queue = pulls.open_queue(6)
    given(made, broker, pops)
    pulls.handle(queue, 6, 7)
    pulls.drop_queue(queue, 7)
    for process in (pulls, pops, broker):
        process.close()


@story
def l10_by_turns(made: History) -> None:
    """The member that pulled was killed before."""
    broker, pulls, pops = made.broker(), made.consumer("c1"), made.consumer("c2")
    pulls.handle(pulls.open_queue(6), 6, 7)
    pulls.kill()
    given(made, broker, pops)
    pops.close()
    broker.close()
