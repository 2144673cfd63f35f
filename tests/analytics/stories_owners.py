"""Histories of queues that two members held at once. They join the other stories."""

from typing import Any

from journals import History, Process
from stories import story, story_of

BOTH = ("c1", "c2")


def first_owner(made: History, *members: str, done: bool = True, **assigned: str) -> tuple[Process, int]:
    """Has queue 0 by its round and delivered 6; ``done``: with success."""
    owner = made.consumer("c1")
    owner.assign(*(members or BOTH), queues="0", **assigned)
    queue = owner.open_queue(6)
    if done:
        owner.handle(queue, 6, 7)
    else:
        owner.deliver(queue, 6)
    return owner, queue


def second_owner(made: History, broker: Process, *members: str, last: int = 6, **assigned: str) -> tuple[Process, int]:
    """Takes queue 0 by its round while the other still has it, and delivers 6."""
    owner = made.consumer("c2")
    owner.assign(*(members or BOTH), queues="0", **assigned)
    return owner, begins_at_6(broker, owner, last=last)


def begins_at_6(broker: Process, owner: Process, *, last: int = 6) -> int:
    """Opens queue 0 where the broker says that the group is, and does what is there up to ``last``."""
    broker.offset_get(owner, 6)
    queue = owner.open_queue(6)
    for offset in range(6, last + 1):
        owner.handle(queue, offset, offset + 1)
    return queue


def ends(*processes: Process) -> None:
    for process in processes:
        process.close()


def disagreeing_routes(made: History, *, hole: bool = False, unassigned: str = "") -> None:
    """c2's name server has lost a broker, so that its share of the queues is another one."""
    broker = made.broker()
    full, short = made.process("namesrv", "namesrv-1"), made.process("namesrv", "namesrv-0")
    older, _ = first_owner(made) if unassigned != "c1" else owner_without_a_round(made)
    full.route(older, "a", "b")
    newer = made.consumer("c2")
    short.route(newer, "a")
    if unassigned != "c2":
        newer.assign(*BOTH, queues="0", route_digest="three")
    begins_at_6(broker, newer)
    if hole:
        older.skip_lines(1)
    if unassigned != "c1":
        older.assign(*BOTH, queues="0")
    ends(older, newer, full, short, broker)


def owner_without_a_round(made: History) -> tuple[Process, int]:
    owner = made.consumer("c1")
    queue = owner.open_queue(6)
    owner.handle(queue, 6, 7)
    return owner, queue


@story
def r1(made: History) -> None:
    broker = made.broker()
    full, short = made.process("namesrv", "namesrv-1"), made.process("namesrv", "namesrv-0")
    older = made.consumer("c1")
    full.route(older, "a", "b")
    older.assign(*BOTH, queues="0")
    older.handle(older.open_queue(6), 6, 7)
    newer = made.consumer("c2")
    short.route(newer, "a")
    newer.assign(*BOTH, queues="0", route_digest="three")
    begins_at_6(broker, newer)
    older.assign(*BOTH, queues="0")
    ends(older, newer, full, short, broker)


@story
def r1_with_the_new_owner_faster(made: History) -> None:
    """Who delivers first says nothing about who had the queue first."""
    broker, older = made.broker(), made.consumer("c1")
    older.assign(*BOTH, queues="0")
    queue = older.open_queue(6)
    newer, _ = second_owner(made, broker, route_digest="three")
    older.handle(queue, 6, 7)
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)


story_of("r1-with-a-hole", disagreeing_routes, hole=True)
story_of("r1-without-the-first-round", disagreeing_routes, unassigned="c1")
story_of("r1-without-the-second-round", disagreeing_routes, unassigned="c2")


@story
def o8_by_a_route_that_was_old(made: History) -> None:
    """The older owner learnt of the new queues a round later, and gave this one up."""
    broker = made.broker()
    older, queue = first_owner(made, route_digest="three")
    newer, _ = second_owner(made, broker)
    older.assign(*BOTH, queues="")
    hand_over(broker, older, queue)
    ends(older, newer, broker)


def hand_over(broker: Process, older: Process, queue: int, *, closing: bool = False) -> None:
    """Gives the queue up, because its round left it to another or it closes, and commits that 6 is done."""
    dropped, persisted = ("shutdown", "shutdown") if closing else ("reassigned", "drop")
    older.drop_queue(queue, 7, dropped)
    older.persist(queue, 7, reason=persisted)
    broker.offset_set(older, 6, 7)


def disagreeing_brokers(made: History, *, later_round: bool = True) -> None:
    """The broker that c2 asked does not know c1; the one that c1 asks knows both."""
    broker, other = made.broker(), made.broker("broker-1")
    older = made.consumer("c1")
    for each in (broker, other):
        each.member(older)
    broker.member_list(older, *BOTH)
    older.assign(*BOTH, queues="0")
    older.handle(older.open_queue(6), 6, 7)
    other.member(older, "-", "close")
    newer = made.consumer("c2")
    other.member_list(newer, "c2")
    newer.assign("c2", queues="0 1", broker_name=other.name)
    begins_at_6(broker, newer)
    if later_round:
        broker.member_list(older, *BOTH)
        older.assign(*BOTH, queues="0")
    ends(older, newer, broker, other)


story_of("r2", disagreeing_brokers)
story_of("r2-without-the-next-round", disagreeing_brokers, later_round=False)


@story
def o8_although_the_members_differed_for_a_moment(made: History) -> None:
    """c2 joins; c1 hears of it a round later, agrees and gives the queue up: nobody disagreed."""
    broker = made.broker()
    older, queue = first_owner(made, "c1")
    newer, _ = second_owner(made, broker)
    older.assign(*BOTH, queues="")
    hand_over(broker, older, queue)
    ends(older, newer, broker)


def round_under_way(made: History, *, later_round: bool = True) -> None:
    """c1 was told that it is alone, c2 joined and took the queue, and c1 made what it had been told its round."""
    broker = made.broker()
    older, queue = first_owner(made, "c1")
    broker.member_list(older, "c1")
    newer = made.consumer("c2")
    broker.member_list(newer, *BOTH)
    newer.assign(*BOTH, queues="0")
    begins_at_6(broker, newer)
    older.assign("c1", queues="0 1")
    if later_round:
        broker.member_list(older, *BOTH)
        older.assign(*BOTH, queues="")
    hand_over(broker, older, queue)
    ends(older, newer, broker)


story_of("o8-although-a-round-was-under-way", round_under_way)


@story
def o8_although_it_took_the_queue_again_when_it_was_alone(made: History) -> None:
    """c1 was told of c2 just before that opened the queue, gave it up just after, and took it back when c2 had left."""
    broker = made.broker()
    older, queue = first_owner(made, "c1")
    newer = made.consumer("c2")
    broker.member_list(newer, *BOTH)
    newer.assign(*BOTH, queues="0")
    broker.member_list(older, *BOTH)
    begins_at_6(broker, newer)
    older.assign(*BOTH, queues="")
    hand_over(broker, older, queue)
    newer.close()
    broker.member_list(older, "c1")
    older.assign("c1", queues="0")
    ends(older, broker)


def takes_its_share(made: History, broker: Process, older: Process, *others: str) -> Process:
    """c2 is told that it is a member beside c1, whom nobody tells anything, and these; it takes the queue."""
    newer = made.consumer("c2")
    members = (older.name, newer.name, *others)
    broker.member_list(newer, *members)
    newer.assign(*members, queues="0")
    begins_at_6(broker, newer)
    return newer


def visited(made: History, /, *, asleep_ms: int = 0, **assigned: Any) -> None:
    """c2 comes, takes the queue and goes before c1 looks again, which then is alone as before."""
    broker = made.broker()
    older, queue = first_owner(made, "c1", **assigned)
    takes_its_share(made, broker, older).close()
    if asleep_ms:
        older.slept(asleep_ms)
    older.persist(queue, 7)
    broker.offset_set(older, 6, 7)
    broker.member_list(older, older.name)
    older.assign(older.name, queues="0")
    ends(older, broker)


story_of("o8-although-the-members-changed-between-two-rounds", visited)
story_of("r6-asleep-while-another-came-and-went", visited, asleep_ms=1_000)


@story
def o8_although_a_third_member_left_between_two_rounds(made: History) -> None:
    """c2 shares with c3, too, and takes the queue; of two members it is c1's again, which never looked in between."""
    broker = made.broker()
    older, queue = first_owner(made, "c1")
    newer = takes_its_share(made, broker, older, "c3")
    both = (older.name, newer.name)
    older.persist(queue, 7)
    broker.offset_set(older, 6, 7)
    broker.member_list(older, *both)
    older.assign(*both, queues="0")
    ends(older, newer, broker)


story_of("o8-although-another-came-by-a-newer-route-and-went", visited, route_digest="three")


def closed_before_it_looked_again(made: History, /, **assigned: Any) -> None:
    """c2 comes and takes the queue of c1, which was alone and closes before its next round."""
    broker = made.broker()
    older, queue = first_owner(made, "c1", **assigned)
    newer, _ = second_owner(made, broker)
    hand_over(broker, older, queue, closing=True)
    ends(older, newer, broker)


story_of("closed-before-it-saw-a-newer-route", closed_before_it_looked_again, route_digest="three")
story_of("closed-before-it-saw-one-of-another-strategy", closed_before_it_looked_again, strategy="AVG_BY_CIRCLE")
story_of("a-round-under-way-and-none-after-it", round_under_way, later_round=False)


@story
def o9_although_the_members_differed_for_a_moment(made: History) -> None:
    broker = made.broker()
    older, queue = first_owner(made, "c1", done=False)
    newer, _ = second_owner(made, broker)
    older.assign(*BOTH, queues="")
    older.drop_queue(queue, 6, "reassigned", in_flight=1)
    older.result(queue, 1, 6, 6, pq_dropped=True)
    ends(older, newer, broker)


def overtaken(made: History, *, lag: bool = False, hole: bool = False, unopened: bool = False) -> None:
    """The newer owner asks, and is done with 6 before the older one, which held it, delivers it as well.

    ``lag``: the older one hears of the newer's route a round later; else of the member. ``unopened``: nobody knows
    where the newer began.
    """
    broker, older = made.broker(), made.consumer("c1")
    older.assign(*(BOTH if lag else ("c1",)), queues="0", **({"route_digest": "three"} if lag else {}))
    queue = older.open_queue(6)
    newer = made.consumer("c2")
    newer.assign(*BOTH, queues="0")
    if unopened:
        newer.skip_lines(1)
    taken = begins_at_6(broker, newer)
    older.handle(queue, 6, 7)
    if hole:
        older.skip_lines(1)
    older.assign(*BOTH, queues="")
    hand_over(broker, older, queue)
    newer.drop_queue(taken, 7, "shutdown")
    ends(older, newer, broker)


story_of("o8-with-the-new-owner-faster", overtaken)
story_of("o8-with-the-new-owner-faster-by-a-route-that-was-old", overtaken, lag=True)
story_of("o8-with-the-new-owner-faster-and-a-hole", overtaken, hole=True)
story_of("o8-with-the-new-owner-faster-and-a-hole-where-it-began", overtaken, unopened=True)


@story
def r3(made: History) -> None:
    broker = made.broker()
    older, _ = first_owner(made)
    newer, _ = second_owner(made, broker, strategy="AVG_BY_CIRCLE")
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)


@story
def two_owners_who_agree(made: History) -> None:
    """Same queues, members and strategy, and yet both have the queue: nobody can say why."""
    broker = made.broker()
    older, _ = first_owner(made)
    newer, _ = second_owner(made, broker)
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)


def one_name_twice(made: History, second_name: str) -> None:
    broker = made.broker()
    for number, name in enumerate(("c1", second_name)):
        process = made.consumer(name, boot_id=f"{made.name}boot{number}".replace("-", ""))
        process.assign("c1", "c1", queues="0")
        broker.offset_get(process, 6)
        process.handle(process.open_queue(6), 6, 7)
    ends(*made.processes)


story_of("r4", one_name_twice, "c1")
story_of("no-r4-with-a-name-each", one_name_twice, "c2")


def paused_by_its_program(made: History, *, resumed: bool = False) -> None:
    """The program suspends c1, which allocates no more and still handles what it has; c2 joins."""
    broker = made.broker()
    older, queue = first_owner(made, "c1")
    older.state("suspended")
    if resumed:
        older.state("resumed")
    newer, _ = second_owner(made, broker)
    if not resumed:
        older.state("resumed")
    older.assign(*BOTH, queues="")
    hand_over(broker, older, queue)
    ends(older, newer, broker)


story_of("r5", paused_by_its_program)
story_of("o8-although-it-was-paused-before", paused_by_its_program, resumed=True)


@story
def r6(made: History) -> None:
    """c1 is stopped and forgotten, c2 takes over, c1 goes on."""
    broker = made.broker()
    older, queue = first_owner(made, done=False)
    broker.member(older)
    broker.member(older, "-", "expire")
    newer, _ = second_owner(made, broker, "c2")
    older.slept(130_000)
    older.result(queue, 1, 6, 7)
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)


@story
def r6_asleep_while_another_joined(made: History) -> None:
    """Nobody forgot c1; when it wakes up it gives the queue up."""
    broker = made.broker()
    older, queue = first_owner(made, "c1")
    broker.member(older)
    newer, _ = second_owner(made, broker)
    older.slept(5_000)
    older.assign(*BOTH, queues="")
    hand_over(broker, older, queue)
    ends(older, newer, broker)


@story
def r1_although_it_slept(made: History) -> None:
    """A pause explains nothing of an owner that keeps the queue when it is awake."""
    broker = made.broker()
    older, _ = first_owner(made)
    broker.member(older)
    newer, _ = second_owner(made, broker, route_digest="three")
    older.slept(2_000)
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)


@story
def r6_stopped_for_good(made: History) -> None:
    """Nobody let it go on, so that only who stopped it can tell."""
    broker, lab = made.broker(), made.process("harness", "lab")
    older, _ = first_owner(made, done=False)
    lab.fault(older, "pause")
    newer, _ = second_owner(made, broker, "c2")
    older.fault(older, "none")
    older.kill()
    ends(newer, broker, lab)


def cut_off(made: History, *, everywhere: bool = True, whole: bool = True) -> None:
    """No broker hears of c1 any more, which handles what it has; ``everywhere`` else only one of two."""
    broker, other = made.broker(), made.broker("broker-1")
    older, queue = first_owner(made, done=False)
    for each in (broker, other):
        each.member(older)
    for each in (broker, other) if everywhere else (other,):
        each.member(older, "-", "close")
    if not whole:
        broker.skip_lines(1)
    newer, _ = second_owner(made, broker, "c2")
    older.result(queue, 1, 6, 7)
    ends(older, newer, broker, other)


story_of("r6-cut-off", cut_off)
story_of("r6-cut-off-with-a-hole-at-the-broker", cut_off, whole=False)
story_of("cut-off-from-one-broker-and-silent", cut_off, everywhere=False)


@story
def two_owners_without_the_first_opening(made: History) -> None:
    broker, older = made.broker(), made.consumer("c1")
    older.assign(*BOTH, queues="0")
    older.deliver(77, 6)
    newer, _ = second_owner(made, broker, route_digest="three")
    older.assign(*BOTH, queues="0")
    ends(older, newer, broker)
