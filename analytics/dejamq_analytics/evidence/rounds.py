"""Whether a client's log is whole: a client tells the offset of every queue it has every few seconds.

So a missing round shows that lines are missing, and traces outside of the log's time show that its begin or end is, or
that its time zone is another.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from dejamq_analytics.evidence.client import ClientStart, GivenMessage, Hold
from dejamq_analytics.evidence.mark import MS, SECOND, Mark, QueueName

ROUND_US = 5 * SECOND
"""RocketMQ's clients tell their offsets every 5 s, and first after 10 s."""
FIRST_ROUND_US = 10 * SECOND
ONE_ROUND_US = SECOND
"""Lines of one round are this close to one another, at the most."""
LATE = 1.6
ENOUGH = 3


def check(client: ClientStart) -> None:
    """Take the log from what there is of the client if it has a hole, or not all of its traces' time."""
    if "log" in client.has and (_misses_traces(client) or _misses_rounds(client) or _misses_drops(client)):
        client.has.discard("log")


def check_end(client: ClientStart) -> None:
    """Find out if the log is whole to its end: closed in order, or the next round was not due when it was lost."""
    if client.closed_us is not None:
        client.has.add("tail")
    elif client.lost_us is not None and "log" in client.has:
        every = rounds(client)
        start = client.marks[0].at_us if client.marks else 0
        due = every[-1] + _interval(every) if every else start + FIRST_ROUND_US
        if client.lost_us <= due:
            client.has.add("tail")


def rounds(client: ClientStart) -> list[int]:
    """When the client told its offsets, each round once. A Go client's line is the same when it drops a queue."""
    drops: dict[QueueName, list[int]] = defaultdict(list)
    for hold in client.holds:
        if hold.ended_us is not None:
            drops[hold.queue].append(hold.ended_us)
    for times in drops.values():
        times.sort()
    told = [mark.at_us for mark in client.marks_of("not_persisted")]
    told += [
        mark.at_us for mark in client.marks_of("persisted") if _is_round(mark.said) and not _at_a_drop(mark, drops)
    ]
    told.sort()
    return [at for before, at in pairwise([-FIRST_ROUND_US, *told]) if at - before > ONE_ROUND_US]


def _at_a_drop(mark: Mark, drops: Mapping[QueueName, Sequence[int]]) -> bool:
    queue = mark.said.get("queue")
    times = drops.get(queue, ()) if queue else ()
    next_one = bisect_left(times, mark.at_us)
    return next_one < len(times) and times[next_one] - mark.at_us < ONE_ROUND_US


def _is_round(said: dict[str, object]) -> bool:
    return said["reason"] == "persistAll"


def _interval(every: list[int]) -> int:
    gaps = [after - before for before, after in pairwise(every)]
    return min(ROUND_US, round(median(gaps))) if len(gaps) >= ENOUGH else ROUND_US


def _set_us(client: ClientStart) -> int | None:
    """The interval that its settings have, as the line of its start says."""
    said = [mark.said["interval_ms"] * MS for mark in client.marks_of("created") if "interval_ms" in mark.said]
    return said[0] if said else None


def _misses_traces(client: ClientStart) -> bool:
    if not client.marks:
        return True
    first, last = client.marks[0].at_us, client.marks[-1].at_us + FIRST_ROUND_US + ROUND_US
    return any(not first <= given.mark.at_us <= last or _through_nothing(given) for given in client.given)


def _through_nothing(given: GivenMessage) -> bool:
    """Whether the log has no line on the queue that the message came through."""
    return given.record is not None and given.hold is None


def _misses_rounds(client: ClientStart) -> bool:
    """Between two rounds is too much time, or a queue that it had is not in each round."""
    every = rounds(client)
    gaps = [*pairwise(every)]
    usual = median(after - before for before, after in gaps) if len(gaps) >= ENOUGH else _set_us(client) or ROUND_US
    known = [*_first_due(client, every), *every]
    for before, after in pairwise([*known, *_held_until(client, known)]):
        if after - before > usual * LATE and not _stood_still(client, before, after):
            return True
    return any(_skips(hold, every) for hold in client.holds)


def _misses_drops(client: ClientStart) -> bool:
    """Whether a queue was opened that the client had, as it does not tell that it had dropped it."""
    had = {(hold.group, hold.queue): client.holds_of(hold.group, hold.queue) for hold in client.holds}
    return any(hold.ended_us is None for holds in had.values() for hold in holds[:-1])


def _first_due(client: ClientStart, every: list[int]) -> list[int]:
    """When it first had an offset to tell, if that was before it told any: its first round is one interval later."""
    done = [
        given.ended.at_us for hold in client.holds for given in hold.entered if given.ended is not None
        and given.ended.said["success"] and _tells(client, hold)
    ]  # fmt: skip
    if not done or _set_us(client) is None:
        return []
    due = max(min(done), client.marks[0].at_us + FIRST_ROUND_US - ROUND_US)
    return [due] if not every or due < every[0] else []


def _held_until(client: ClientStart, every: list[int]) -> list[int]:
    """The last moment at which it had a queue that it tells of: until then it had to tell."""
    last = client.marks[-1].at_us if client.marks else 0
    until = [
        last if hold.ended_us is None else hold.ended_us
        for hold in client.holds
        if hold.persisted or (hold.entered and _tells(client, hold))
    ]
    return [at for at in (max(until, default=0),) if every and at > every[-1]]


def _tells(client: ClientStart, hold: Hold) -> bool:
    """A member of a group that broadcasts writes its offsets into a file."""
    return hold.group not in client.broadcasting


def _stood_still(client: ClientStart, before: int, after: int) -> bool:
    """Whether the process did not run in the time of a hole: it wrote nothing, and brokers took it for gone."""
    lost = client.lost is not None and before < client.lost.at_us < after
    wrote = [mark for mark in client.marks if before + ONE_ROUND_US < mark.at_us < after - ROUND_US]
    if not lost or wrote:
        return False
    awake = next(mark for mark in client.marks if mark.at_us >= after - ROUND_US)
    client.add(awake, "GAP", missing_ms=(awake.at_us - before) // MS)
    return True


def _skips(hold: Hold, every: list[int]) -> bool:
    """Whether a queue that was told once is not told in a later round, although it was not dropped."""
    told = sorted([*(at for at, _ in hold.persisted), *hold.not_told])
    if not told:
        return False
    end = hold.ended_us if hold.ended_us is not None else every[-1] if every else 0
    due = [at for at in every if told[0] < at <= end - ONE_ROUND_US]
    return any(not _near(told, at) for at in due)


def _near(told: list[int], at_us: int) -> bool:
    """Whether one of these moments, which are in order, is within a round of that one."""
    place = bisect_left(told, at_us - ONE_ROUND_US)
    return place < len(told) and told[place] <= at_us + ONE_ROUND_US
