"""Deliveries and their results, from trace records of handlers, each with the record it was and the process queue."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Set
from typing import Any

from dejamq_analytics.evidence.client import DROPPED, ENDED, ENTERED, LAST, ClientStart, GivenMessage, Hold, origin_of
from dejamq_analytics.evidence.clients import ClientStarts
from dejamq_analytics.evidence.mark import MS, SECOND, Mark, QueueName
from dejamq_analytics.evidence.stored import Records, Stored

KEPT_US = 8 * SECOND
"""A client handles a message again 5 s after no broker took it back. A retry comes after 10 s or more."""
FOREVER_US = 1 << 62
FAILED = ("exception", "reconsume", "wrong_value", "cancelled")


GivenList = tuple[str, frozenset[tuple[str, int]]]
"""One call of a handler: its group, and the messages by unique key and number of retries."""


def deliver(marks: Iterable[Mark], clients: ClientStarts, records: Records) -> list[GivenMessage]:
    """Deliveries and their ends, from trace records of handlers."""
    ends: dict[tuple[str, str], Mark] = {}
    entered: list[Mark] = []
    for mark in marks:
        if mark.what == "ended":
            ends.setdefault((mark.said["request"], mark.said["unique_key"]), mark)
        elif mark.what == "entered":
            entered.append(mark)
    seen: set[tuple[str, str]] = set()
    found: list[GivenMessage] = []
    for mark in sorted(entered, key=lambda one: one.at_us):
        request, key = mark.said["request"], mark.said["unique_key"]
        origin = origin_of(request)
        if (request, key) in seen or origin is None:  # the same trace message in an exported file too
            continue
        seen.add((request, key))
        process = clients.of_origin(origin, mark.said["group"], mark.at_us)
        process.has.add("trace")
        process.groups.add(mark.said["group"])
        given = GivenMessage(mark, len(process.given) + 1, process, ended=ends.get((request, key)))
        process.given.append(given)
        found.append(given)
    _place(found, records)
    return found


def _place(found: list[GivenMessage], records: Records) -> None:
    """The record of each delivery, where only one fits; and the process queue it came through."""
    by_message: dict[tuple[str, str, int], list[GivenMessage]] = defaultdict(list)
    for given in found:
        said = given.mark.said
        by_message[said["group"], said["unique_key"], said["times"]].append(given)
    for (group, key, times), some in by_message.items():
        fitting = records.of_delivery(key, group, times)
        in_order = all(group in given.process.orderly for given in some)
        if not fitting and times and (in_order or all(_kept_it(given) for given in some)):
            fitting = records.of_delivery(key, group, 0)
            for given in some:
                given.kind = "suspend_retry" if in_order else "local_retry"
        if len(some) == 1 or not _elsewhere(some, group, fitting, records):
            _give(some, group, fitting)
    for given in found:
        if given.record is not None:
            _hold(given, given.record)


def _kept_it(given: GivenMessage) -> bool:
    """Whether its process says that no broker took a message back: it tries again by itself then, after 5 s."""
    at_us = given.mark.at_us
    return bool(given.process.marks_between("not_sent_back", at_us - KEPT_US, at_us))


def _elsewhere(some: list[GivenMessage], group: str, fitting: list[Stored], records: Records) -> bool:
    """Whether a record may lie where these members had queues of the topic and no store is there, or one that ends
    before an offset that they told. A member without a log may have had queues of any broker.
    """
    topics, members = {one.queue.topic for one in fitting}, {given.process.key: given.process for given in some}
    for process in members.values():
        holds = [hold for hold in process.holds if hold.group == group and hold.queue.topic in topics]
        if not holds and records.absent:
            return True
        if any(
            hold.queue.broker_name not in records.brokers or hold.highest > records.end_of(hold.queue)
            for hold in holds
        ):  # fmt: skip
            return True
    return False


def _give(some: list[GivenMessage], group: str, fitting: list[Stored]) -> None:
    """The record that each of these deliveries of one message was of."""
    reached = [
        one for one in fitting if any(given.process.hold_at(group, one.queue, given.mark.at_us) for given in some)
    ] or fitting
    if len(reached) == 1 and (len(some) == 1 or len(fitting) == 1):  # else a log may lack the queue of another one
        for given in some:
            given.record = reached[0]
    elif len(reached) == len(some) and not _opened_again(some, group, reached):
        for given, record in zip(some, reached, strict=True):
            given.record = record


def _hold(given: GivenMessage, record: Stored) -> None:
    group = given.mark.said["group"]
    given.hold = given.process.hold_at(group, record.queue, given.mark.at_us)
    if given.hold is not None:
        if group in given.process.orderly and record in given.hold.last_entered:
            given.kind = "suspend_retry"
        given.hold.enter(given, record)


def _opened_again(some: list[GivenMessage], group: str, reached: list[Stored]) -> bool:
    """Whether any of these queues was opened more than once: then one record may have come twice."""
    queues = {one.queue for one in reached}
    holds = {
        (given.process.key, hold.pq_id): queue
        for given in some
        for queue in queues
        for hold in given.process.holds_of(group, queue)
    }
    # of two records in one queue each came once where that queue is known to have been opened once
    one_each = len(queues) == len(reached) or queues == set(holds.values())
    return len(holds) != len(set(holds.values())) or not one_each


def events(client: ClientStart, records: Records) -> None:
    """Its deliveries and their results, with the low-water mark of the process queue after each."""
    _mark_thrown_away(client)
    _expired(client)
    by_request: dict[str, list[GivenMessage]] = defaultdict(list)
    interrupted = _interrupted(client)
    for given in client.given:
        by_request[given.mark.said["request"]].append(given)
    for number, some in enumerate(by_request.values(), 1):
        _entered(client, some, number)
        if all(given.ended is not None for given in some):
            _ended(client, some, records, interrupted)
        else:
            for given in some:
                _untold(client, given)
    _direct(client, records)


def _direct(client: ClientStart, records: Records) -> None:
    """Messages that an operator had the client handle: no hook runs then, so they are in no trace."""
    if len(client.groups) != 1:
        return  # the line does not say of which group
    (group,) = client.groups
    for number, mark in enumerate(client.marks_of("direct"), 1):
        for _, offset, times, key in mark.said["messages"]:
            fitting = [one for one in records.of_delivery(key, group, times) if one.queue_offset == offset]
            if len(fitting) == 1:
                _delivered_directly(client, mark, group, fitting[0], number)


def _delivered_directly(client: ClientStart, mark: Mark, group: str, record: Stored, number: int) -> None:
    queue = record.queue
    client.add(
        mark, "DELIVER", ENTERED, pq_id=0, group=group, topic=queue.topic, broker_name=queue.broker_name,
        queue_id=queue.queue_id, client_id=client.client_id, delivery_ids=[len(client.given) + number],
        queue_offsets=[record.queue_offset], log_offsets=[record.log_offset], unique_keys=[record.unique_key],
        kind="direct", reconsume_times=[record.reconsume_times], store_hosts=[record.store_host],
    )  # fmt: skip


def _place_of(some: list[GivenMessage]) -> dict[str, Any]:
    """Where the messages of one call of the handler came from, all of one queue."""
    record = next((given.record for given in some if given.record is not None), None)
    hold = next((given.hold for given in some if given.hold is not None), None)
    queue = record.queue if record else QueueName("", "", -1)
    return {
        "pq_id": hold.pq_id if hold else 0, "group": some[0].mark.said["group"], "topic": queue.topic,
        "broker_name": queue.broker_name, "queue_id": queue.queue_id,
        "delivery_ids": [given.delivery_id for given in some],
        "queue_offsets": [given.record.queue_offset if given.record else -1 for given in some],
    }  # fmt: skip


def _entered(client: ClientStart, some: list[GivenMessage], number: int) -> None:
    records = [given.record for given in some]
    client.add(
        some[0].mark, "DELIVER", ENTERED, **_place_of(some), client_id=client.client_id,
        log_offsets=[record.log_offset if record else -1 for record in records],
        unique_keys=[given.mark.said["unique_key"] for given in some], kind=some[0].kind,
        reconsume_times=[given.mark.said["times"] for given in some],
        store_hosts=[record.store_host if record else "" for record in records],
        batch_id=number if len(some) > 1 else 0,
    )  # fmt: skip


def _untold(client: ClientStart, given: GivenMessage) -> None:
    """A client that was killed had not sent its last traces: the handler may have ended after all."""
    if client.closed_us is not None or given.hold is None or not _behind(given, given.hold):
        return
    last = client.marks[-1].at_us if client.marks else 0
    at = given.mark._replace(at_us=max(last, given.mark.at_us))
    client.add(at, "RESULT", LAST, **_place_of([given]), status="untold", mem_off=_low_water(given.hold, at.at_us))


def _ended(client: ClientStart, some: list[GivenMessage], records: Records, interrupted: Set[GivenList]) -> None:
    group, hold = some[0].mark.said["group"], some[0].hold
    end = some[-1].ended
    assert end is not None
    status, reason, place = end.said["status"], "", _place_of(some)
    in_order, thrown_away = group in client.orderly, some[0].thrown_away
    if status == "exception" and interrupted and _given_list(some) in interrupted:
        status = "cancelled"
    if status == "timeout":
        reason = "success" if end.said["success"] else "reconsume"
    elif in_order and status == "reconsume":
        status = "suspend"
    elif in_order and status == "success" and any(_uncommitted(given, end) for given in some):
        status = "uncommitted"
    client.add(
        end, "RESULT", ENDED, **place, status=status, reason=reason, pq_dropped=thrown_away,
        mem_off=0 if thrown_away or hold is None else _low_water(hold, end.at_us),
    )  # fmt: skip
    failed = status in FAILED or reason == "reconsume"
    if failed and not in_order and not thrown_away and group not in client.broadcasting:
        for given in some:
            if given.expired is None:
                _sent_back(client, given, end, records)


def _interrupted(client: ClientStart) -> set[GivenList]:
    """Of which handlers its log says that they threw an interrupt: a trace tells no exception from another."""
    return {
        (mark.said["group"], frozenset((key, times) for _, _, times, key in mark.said["messages"]))
        for mark in client.marks_of("interrupted")
    }


def _given_list(some: list[GivenMessage]) -> GivenList:
    told = [one.mark.said for one in some]
    return told[0]["group"], frozenset((said["unique_key"], said["times"]) for said in told)


def _uncommitted(given: GivenMessage, end: Mark) -> bool:
    """Whether its process told its offset once more as not done, or handed it out again.

    In order that happens only where a program commits by itself.
    """
    if given.hold is None or given.record is None:
        return False
    if given.hold.last_entered[given.record] > end.at_us:
        return True
    told = given.hold.persisted
    later = bisect_right(told, end.at_us + MS, key=lambda one: one[0])
    return later < len(told) and told[later][1] <= given.record.queue_offset


def _sent_back(client: ClientStart, given: GivenMessage, end: Mark, records: Records) -> None:
    """A handler that failed asks for a retry. That a broker took it shows in the record of the retry.

    A client whose broker does not say that it took it sends the message to the retry topic itself.
    """
    said = given.mark.said
    retries = records.of_delivery(said["unique_key"], said["group"], said["times"] + 1)
    taken = any(not one.by_consumer for one in retries)
    itself = any(one.by_consumer for one in retries) and _not_taken(client, end)
    _give_back(client, given, end, outcome="ok" if taken and not itself else "indefinite")
    if itself:
        _give_back(client, given, end, path="fallback", request_seq=given.delivery_id)


def _not_taken(client: ClientStart, end: Mark) -> bool:
    """Whether its log says, soon after a handler ended, that a broker did not take a message back."""
    return bool(client.marks_between("not_sent_back", end.at_us - end.within_us, end.at_us + KEPT_US))


def _give_back(
    client: ClientStart, given: GivenMessage, mark: Mark, path: str = "rpc", outcome: str = "ok", **more: Any
) -> None:
    place = _place_of([given])
    place.pop("pq_id")
    key = given.mark.said["unique_key"]
    client.add(mark, "SENDBACK", DROPPED, **place, unique_keys=[key], path=path, outcome=outcome, **more)


def _expired(client: ClientStart) -> None:
    """Messages that were given back because their handlers took too long: these still ran, or had just ended."""
    expired, by_key = client.marks_of("expired"), defaultdict[str, list[GivenMessage]](list)
    for given in client.given if expired else ():
        by_key[given.mark.said["unique_key"]].append(given)
    for mark in expired:
        fitting = [one for one in by_key[mark.said["unique_key"]] if _is_of(one, mark)]
        if len(fitting) == 1:
            fitting[0].expired = mark
            _give_back(client, fitting[0], mark, reason="expired")


def _is_of(given: GivenMessage, expired: Mark) -> bool:
    """Whether a line that a message's time is over is about this delivery of it."""
    said, record = expired.said, given.record
    here = record is not None and (record.queue.queue_id, record.queue_offset) == (said["queue_id"], said["offset"])
    return here and given.mark.at_us < expired.at_us


def _behind(given: GivenMessage, hold: Hold) -> bool:
    """Whether an earlier offset of the process queue is not known to be done: then its own result may be lost too."""
    return given.record is not None and _low_water(hold, FOREVER_US) < given.record.queue_offset


def _low_water(hold: Hold, at_us: int) -> int:
    """The lowest offset that is not known to be done at a moment.

    A queue is handed out in order, whatever order its handlers begin in. An offset without a trace counts as not done:
    the group may filter it out, or its trace may be lost.
    """
    if hold.low_waters is None:
        hold.low_waters = _low_waters(hold)
    before = bisect_right(hold.low_waters, at_us, key=lambda one: one[0])
    return hold.low_waters[before - 1][1]


def _low_waters(hold: Hold) -> list[tuple[int, int]]:
    """That offset after each end of a handler, in the order of time."""
    low = hold.start
    if low is None:
        return [(-FOREVER_US, 0)]
    ends = sorted(
        (one.ended.at_us, one.record.queue_offset)
        for one in hold.entered
        if one.record is not None and one.ended is not None
    )
    found, done = [(-FOREVER_US, low)], set[int]()
    for at_us, offset in ends:
        done.add(offset)
        while low in done:
            low += 1
        found.append((at_us, low))
    return found


def _mark_thrown_away(client: ClientStart) -> None:
    """Results that came after the queue was dropped."""
    for given in client.given:
        if given.hold is not None and given.hold.ended_us is not None and given.ended is not None:
            given.thrown_away = given.ended.at_us > given.hold.ended_us
