"""Histories of ordered queues whose next owner came under a running handler, and of clocks. They join the others."""

from dejamq_proto.journal.events import Lock, Unlock
from journals import TOPIC, History, Process
from stories import story_of
from stories_owners import BOTH, ends

LIFE_MS = 60_000


def lock(broker: Process, client: Process, owner: Process | None = None, age_ms: int = 0) -> None:
    broker.write(Lock(
        broker_name=broker.home.broker_name, group=broker.home.group, topic=TOPIC, queue_id=0, client_id=client.name,
        client_boot_id=client.boot_id, granted=True, owner=owner.name if owner else "", age_ms=age_ms, life_ms=LIFE_MS,
    ))  # fmt: skip


def unlock(client: Process, queue: int, *, forced: bool) -> None:
    client.write(Unlock(
        broker_name=client.home.broker_name, group=client.home.group, topic=TOPIC, queue_id=0, client_id=client.name,
        pq_id=queue, forced=forced,
    ))  # fmt: skip


def pass_ms(made: History, ms: int) -> None:
    made.clock.now_us += ms * 1000


def working_owner(made: History, broker: Process) -> tuple[Process, int, int]:
    """Has the queue's lock and is at 6."""
    owner = made.consumer("c1")
    owner.assign(*BOTH, queues="0")
    lock(broker, owner)
    queue = owner.open_queue(6)
    return owner, queue, owner.deliver(queue, 6)


def begins(owner: Process, broker: Process) -> None:
    """Opens the queue, for which it has the lock, and handles 6 as well."""
    broker.offset_get(owner, 6)
    owner.handle(owner.open_queue(6), 6, 7)


def expired(made: History, *, locked: bool = True, ran_on: bool = True, jump_ms: int = 0) -> None:
    """c1 cannot renew its lock, and c2 gets it."""
    broker = made.broker()
    older, queue, delivery = working_owner(made, broker)
    newer = made.consumer("c2")
    newer.assign(*BOTH, queues="0")
    broker.jump(jump_ms)
    pass_ms(made, LIFE_MS + 1000 - jump_ms)
    if not ran_on:
        older.result(queue, delivery, 6, 7)
    if locked:
        lock(broker, newer, older, age_ms=LIFE_MS + 1000)
    begins(newer, broker)
    if ran_on:
        older.result(queue, delivery, 6, 7)
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)


story_of("r9", expired)
story_of("r9-without-the-lock", expired, locked=False)
story_of("no-r9-when-the-handler-had-ended", expired, ran_on=False)

# The broker's clock jumps by 50 of the 61 s that the lock seems old.
story_of("r12-under-a-lock", expired, jump_ms=50_000)

# The lock would have ended all the same.
story_of("r9-although-the-clock-jumped-a-little", expired, jump_ms=600)


def forgotten(
    made: History, *, renewed_ms: int = 1000, gave_back: bool = False, same_start: bool = False, hole: bool = False,
    contested: bool = True,
) -> None:  # fmt: skip
    """c1 is at 6 when its broker is started again, which then gives the lock to c2."""
    broker = made.broker()
    older, queue, delivery = working_owner(made, broker)
    if not contested:
        older.drop_queue(queue, 6, "reassigned", in_flight=1)
    if not same_start:
        broker.kill()
        broker = made.broker(boot_id=f"{made.name}again".replace("-", ""))
    pass_ms(made, renewed_ms)
    if gave_back:
        unlock(older, queue, forced=False)
    if hole:
        older.skip_lines(1)
    newer = made.consumer("c2")
    newer.assign(*BOTH, queues="0")
    lock(broker, newer)
    begins(newer, broker)
    older.result(queue, delivery, 6, 6 if not contested else 7, pq_dropped=not contested)
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)


story_of("r10", forgotten)

# c1 had to give the queue up and kept the lock for its handler.
story_of("r10-after-the-queue-was-given-up", forgotten, contested=False)

# The line that is missing may be the one by which c1 gave its lock back.
story_of("r10-with-a-hole", forgotten, contested=False, hole=True)

story_of("no-r10-when-the-lock-had-ended", forgotten, renewed_ms=LIFE_MS + 1000)

# c1 had given its lock back.
story_of("o9-although-the-broker-was-started-again", forgotten, contested=False, gave_back=True)


def forced(made: History, *, really: bool = True, ran_on: bool = True) -> None:
    """c1 loses the queue under a handler, waits, and gives its lock back."""
    broker = made.broker()
    older, queue, delivery = working_owner(made, broker)
    older.drop_queue(queue, 6, "reassigned", in_flight=1)
    newer = made.consumer("c2")
    newer.assign(*BOTH, queues="0")
    if not ran_on:
        older.result(queue, delivery, 6, 6, pq_dropped=True)
    unlock(older, queue, forced=really)
    lock(broker, newer)
    begins(newer, broker)
    if ran_on:
        older.result(queue, delivery, 6, 6, pq_dropped=True)
    ends(older, newer, broker)


story_of("r11", forced)
story_of("o9-with-a-lock-that-was-not-forced", forced, really=False)

# The handler ended before the next owner came.
story_of("o9-although-the-lock-was-forced", forced, ran_on=False)


def alone_again(
    made: History, reason: str, *, jump_ms: int = 0, overlap: bool = True, result: bool = True, hole: bool = False
) -> None:
    """c1 drops its queue and opens it again while a handler runs, or had just ended."""
    broker, owner = made.broker(), made.consumer("c1")
    queue = owner.open_queue(6)
    delivery = owner.deliver(queue, 6)
    owner.jump(jump_ms)
    if hole:
        owner.skip_lines(1)
    owner.drop_queue(queue, 6, reason, in_flight=1)
    broker.offset_get(owner, 6)
    again = owner.open_queue(6)
    if not overlap:
        owner.result(queue, delivery, 6, 6, pq_dropped=True)
    owner.handle(again, 6, 7)
    if overlap and result:
        owner.result(queue, delivery, 6, 6, pq_dropped=True)
    ends(owner, broker)


story_of("r7", alone_again, "pull_idle")
story_of("r7-without-a-result", alone_again, "pull_idle", result=False)
story_of("r7-with-a-hole", alone_again, "pull_idle", hole=True)
story_of("r12-at-the-owner", alone_again, "pull_idle", jump_ms=130_000)
story_of("r8", alone_again, "reassigned")
story_of("r8-with-a-hole", alone_again, "reassigned", hole=True)

# The first handler had ended when the second one began.
story_of("o9-although-it-came-back", alone_again, "reassigned", overlap=False)


def forgotten_member(made: History, *, jump_ms: int = 0) -> None:
    """A broker drops c1 as too long silent."""
    broker = made.broker()
    older = made.consumer("c1")
    older.assign(*BOTH, queues="0")
    queue = older.open_queue(6)
    delivery = older.deliver(queue, 6)
    broker.member(older)
    broker.jump(jump_ms)
    broker.member(older, "-", "expire")
    newer = made.consumer("c2")
    newer.assign("c2", queues="0")
    begins(newer, broker)
    older.result(queue, delivery, 6, 7)
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)


story_of("r12-of-a-member", forgotten_member, jump_ms=120_000)
story_of("r6-without-a-jump", forgotten_member)


def chosen(made: History, *strategies: str) -> None:
    """Both programs take the queue, by themselves where the strategy is manual."""
    broker = made.broker()
    for name, strategy in zip(("c1", "c2"), strategies, strict=True):
        owner = made.consumer(name)
        owner.assign(queues="0", strategy=strategy)
        broker.offset_get(owner, 6)
        owner.handle(owner.open_queue(6), 6, 7)
    ends(*made.processes)


story_of("r13", chosen, "manual", "manual")
story_of("r13-by-lists-that-overlap", chosen, "by_config", "by_config")
story_of("no-r13-when-one-was-given-its-queues", chosen, "averagely", "averagely")
