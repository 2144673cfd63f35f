"""Histories with slaves: who answered was not who had taken the offset. They join the other stories."""

from dejamq_proto.journal.events import Boot, OffSet, ReplicaEvent
from dejamq_proto.journal.writer import Level
from journals import TOPIC, History, Process
from stories import owner_that_did_6, story, story_of, successor
from stories_brokers import committed_7
from stories_delay import again, first_start


def slave(made: History, *, booted: bool = True, **more: object) -> Process:
    process = made.process("broker", "slave-1", **more)  # type: ignore[arg-type]
    if booted:
        process.write(Boot(broker_name=made.broker_name, broker_id=1, address="127.0.0.1:10921", clean=True))
    return process


def copies(made: History, process: Process, value: int, old: int = -1) -> None:
    """It takes its master's offset of the group."""
    process.write(OffSet(
        broker_name=made.broker_name, group=made.group, topic=TOPIC, queue_id=0, old=old, new=value, by="slave-sync"
    ))  # fmt: skip


def promoted(made: History, *, told: bool = True) -> Process:
    """The slave again, as master, under the name that its master had."""
    process = made.process("broker", "broker-0", boot_id=f"{made.name}promoted".replace("-", ""))
    process.boot(made.broker_name)
    if told:
        process.write(ReplicaEvent(broker_name=made.broker_name, broker_id=0, change="promoted", log_offset=700))
    process.offsets_loaded("main")
    return process


def slave_that_was_told_7(made: History) -> Process:
    """The master is away; a consumer does 6 and tells the slave."""
    process = slave(made)
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    process.offset_set(consumer, 6, 7)
    consumer.kill()
    return process


def master_again(made: History) -> Process:
    process = made.process("broker", "broker-0", boot_id=f"{made.name}again".replace("-", ""))
    process.boot(made.broker_name)
    process.offsets_loaded("main")
    return process


def slave_instead(
    made: History, *, level: Level = Level.FORENSIC, before: int = 0, hole: bool = False, after: int = 0,
    flushed: bool = False, slave_killed: bool = False, told: bool = True,
) -> None:  # fmt: skip
    """The master was told 7 and dies; its slave is made the master. It copied ``before`` that and ``after`` that."""
    master, other = made.broker(), slave(made, level=level)
    if before:
        copies(made, other, before)
    committed_7(made, master)
    if hole:
        other.skip_lines(1)
    if after:
        copies(made, other, after)
    if flushed:
        master.offsets_flushed()
    master.kill()
    if slave_killed:
        other.kill()
    else:
        other.close()
    successor(made, promoted(made, told=told))


story_of("o5", slave_instead, before=6)
story_of("o5-although-it-was-copied", slave_instead, after=7, slave_killed=True)

# It may have copied the offset.
story_of("o5-with-a-hole-at-the-slave", slave_instead, hole=True, after=6)

# Then it looks like the same broker, which was restarted after it had written the offset.
story_of("o5-without-the-promotion", slave_instead, flushed=True, told=False)

story_of("o5-of-a-buffering-slave", slave_instead, level=Level.AUDIT, before=6, slave_killed=True)


@story
def o5_by_a_slave_in_the_masters_absence(made: History) -> None:
    master, other = made.broker(), slave(made)
    copies(made, other, 6)
    committed_7(made, master)
    master.kill()
    successor(made, other)
    other.close()


def master_instead(made: History, *, copied: bool = True) -> None:
    """A slave was told 7; the master is there again and took its own offset. Else a line of it is missing."""
    other = slave_that_was_told_7(made)
    master = master_again(made)
    if copied:
        copies(made, other, 6, old=7)
    else:
        master.skip_lines(1)
    successor(made, master)
    master.close()
    other.close()


story_of("o6", master_instead)
story_of("o6-with-a-hole-at-the-master", master_instead, copied=False)


@story
def o6_told_by_the_slave_that_took_the_masters(made: History) -> None:
    other = slave_that_was_told_7(made)
    copies(made, other, 6, old=7)
    successor(made, other)
    other.close()


@story
def o6_without_the_start_of_the_slave(made: History) -> None:
    other = slave(made, booted=False)
    consumer, queue = owner_that_did_6(made)
    consumer.persist(queue, 7)
    other.offset_set(consumer, 6, 7)
    consumer.kill()
    successor(made, master_again(made))
    other.close()


@story
def o3_of_a_master_with_a_slave(made: History) -> None:
    """The slave had nothing to do with it."""
    master, other = made.broker(), slave(made)
    committed_7(made, master)
    copies(made, other, 7)
    master.kill()
    successor(made, master_again(made))
    other.close()


def progress_copied(made: History, l3: int) -> None:
    """The master dies when it has delivered 6; its slave knows its progress as of then."""
    master, other = first_start(made, TOPIC), slave(made)
    other.progress(l3=l3)
    master.kill()
    other.close()
    again(made, promoted(made), TOPIC)


story_of("b2", progress_copied, 6)
story_of("b2-although-progress-was-copied", progress_copied, 7)


@story
def stored_once_in_what_is_left(made: History) -> None:
    """A message that only the lost end of the old master's log had is sent again, to the slave that is master now."""
    master, other, producer, key = made.broker(), slave(made), made.producer(), made.key(1)
    producer.send(key, request=1, call=1, broker=master)
    master.append(key, 7, producer, request=1)
    producer.send_result(1, "connection_lost", definite=False)
    master.kill()
    other.close()
    heir = promoted(made)
    producer.send(key, request=2, call=1, try_no=2, broker=heir)
    heir.append(key, 7, producer, request=2)
    producer.send_result(2, "ok")
    producer.close()
    consumer = made.consumer("c1")
    consumer.handle(consumer.open_queue(7), 7, 8, key=key, log_offset=700)
    consumer.close()
