"""Records that waited for a delay, for a retry, or for the end of a transaction: who stored each of them.

A commit log tells it by itself. What waited keeps its unique key and its time of birth, the number of its try tells
which failure it answers, and a committed record names its half message. ``brokers`` get the APPEND of each.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import count, pairwise

import msgspec
from dejamq_proto.names import RETRY_PREFIX

from dejamq_analytics.evidence.brokers import Brokers, BrokerStart
from dejamq_analytics.evidence.client import ClientStart, GivenMessage, origin_of
from dejamq_analytics.evidence.clients import ClientStarts
from dejamq_analytics.evidence.mark import MS, Mark
from dejamq_analytics.evidence.stored import Records, Stored, Waited

FIRST_REQUEST = 1_000_000
"""Requests that no line numbers are counted from here, away from those of sends."""
FOREVER = 1 << 62
Step = tuple[str, str, int]
"""A group, a message, and the number of its try."""


class Failures:
    """What handlers were given, by the step of the retry chain that each was."""

    def __init__(self, given: Iterable[GivenMessage]) -> None:
        self._by_step: dict[Step, list[GivenMessage]] = defaultdict(list)
        for one in given:
            said = one.mark.said
            self._by_step[said["group"], said["unique_key"], said["times"]].append(one)

    def before(self, retry: Stored) -> GivenMessage | None:
        """The one delivery whose failure a record of a retry topic answers."""
        if not retry.waits_for.startswith(RETRY_PREFIX):
            return None
        group = retry.waits_for.removeprefix(RETRY_PREFIX)
        fitting = self._by_step[group, retry.unique_key, retry.reconsume_times - 1]
        return fitting[0] if len(fitting) == 1 else None


def delays(records: Records, failures: Failures, brokers: Brokers) -> None:
    """What came out of the schedule topic, and from which of its records: where each one's is known."""
    for records_of_one in records.by_key.values():
        steps: dict[tuple[str, int], list[Stored]] = defaultdict(list)
        for one in records_of_one:
            if one.waits_for == one.queue.topic:
                steps[one.queue.topic, one.reconsume_times].append(one)
        for some in steps.values():
            _delays(some, records.waiting, failures, brokers)


def _delays(due: list[Stored], waiting: Mapping[Waited, list[Stored]], failures: Failures, brokers: Brokers) -> None:
    """The records of one message at one step of its retries."""
    sources = [_waited(one, waiting) for one in due]
    known = [one for one in sources if one is not None]
    if len(known) < len(due):
        return
    for source in dict.fromkeys(known):
        _stored_to_wait(source, failures.before(source), brokers)
    for one, source in zip(due, known, strict=True):
        brokers.appended(one, "schedule", origin_refs=[f"{source.queue.queue_id + 1}:{source.queue_offset}"])


def _waited(due: Stored, waiting: Mapping[Waited, list[Stored]]) -> Stored | None:
    """The record that it was, where only one at its broker fits."""
    fitting = [
        one for one in waiting.get(due.waited, [])
        if one.store_host == due.store_host and one.log_offset < due.log_offset and one.by_consumer == due.by_consumer
    ]  # fmt: skip
    return fitting[0] if len(fitting) == 1 else None


def _stored_to_wait(source: Stored, failed: GivenMessage | None, brokers: Brokers) -> None:
    """By the broker, which was asked to take a message back, or by the consumer itself.

    The request of a consumer's own send has the number of the delivery that failed.
    """
    if failed is None:
        return
    if source.by_consumer:
        brokers.appended(
            source, "client", client_id=failed.process.client_id, client_boot_id=failed.process.boot_id,
            request_seq=failed.delivery_id,
        )  # fmt: skip
    else:
        asked = [f"{failed.process.boot_id}:{failed.delivery_id}"]
        brokers.appended(source, "sendback", client_boot_id=failed.process.boot_id, origin_refs=asked)


# transactions


def transactions(traced: Iterable[Mark], records: Records, clients: ClientStarts, brokers: Brokers) -> None:
    """Messages that were committed more than once: their half messages, marks, and commits.

    Only what the commit log settles is told: what the second commit ended was there before the first one, or the mark
    of the first is there, or the broker was killed between the two and has no mark.
    """
    request, decided = count(FIRST_REQUEST), defaultdict[tuple[str, bool], list[Mark]](list)
    for mark in traced:
        if mark.what == "decided" and mark.said["state"] == "COMMIT_MESSAGE":
            decided[mark.said["unique_key"], mark.said["from_check"]].append(mark)
    for key, records_of_one in records.by_key.items():
        finals = sorted((one for one in records_of_one if one.committed), key=lambda one: one.log_offset)
        origin = origin_of(key)
        if len(finals) > 1 and origin is not None:
            halves = _chain(records.halves.get(key, []), finals)
            if halves is not None and _settled(finals, halves, records, brokers):
                producer = clients.of_origin(origin, "", halves[0].born_ms * MS)
                _tell(halves, records, brokers, producer.boot_id)
                by_offset = {one.log_offset: one for one in halves}
                for final in finals:
                    half, number = by_offset[final.prepared], next(request)
                    _commit(final, half, brokers, producer.boot_id, number)
                    told = decided[key, half.checks > 0]
                    if len(told) == 1:
                        _decide(producer, told.pop(), final, half, number)


def _chain(halves: list[Stored], finals: list[Stored]) -> list[Stored] | None:
    """The half messages in order, each but the first one put there by a check; None where any is not known."""
    halves = sorted(halves, key=lambda one: one.log_offset)
    stores = {(one.store, one.store_host) for one in (*halves, *finals)}
    first = [one for one in halves if not one.checks]
    known = {one.log_offset for one in halves}
    whole = len(first) == 1 and halves[0] is first[0] and {one.prepared for one in finals} <= known
    return halves if whole and len(stores) == 1 else None


def _settled(finals: list[Stored], halves: list[Stored], records: Records, brokers: Brokers) -> bool:
    by_offset, ended = {one.log_offset: one for one in halves}, Counter(one.prepared for one in finals)

    def is_settled(before: Stored, after: Stored) -> bool:
        # a lost mark makes a check, which stores the half message anew: one from before the first commit needs no mark
        if by_offset[after.prepared].log_offset < before.log_offset:
            return True
        half = by_offset[before.prepared]
        began = brokers.starts_between(before.queue.broker_name, before.stored_ms * MS, after.stored_ms * MS)
        # a mark behind the second commit is the first one's as well, where nothing else ended this half message
        if _marked(before, half, records, after.log_offset if ended[half.log_offset] > 1 else FOREVER):
            return not began
        return len(began) == 1 and _crashed(before, after, half, halves, records, began[0])

    return all(is_settled(before, after) for before, after in pairwise(finals))


def _marked(final: Stored, half: Stored, records: Records, until: int) -> bool:
    """Whether the mark of this half message stands behind the commit and before that log offset."""
    return any(
        one.store == final.store and final.log_offset < one.log_offset < until
        and half.queue_offset in one.half_offsets
        for one in records.ended
    )  # fmt: skip


def _crashed(
    before: Stored, after: Stored, half: Stored, halves: list[Stored], records: Records, began: BrokerStart
) -> bool:
    """Whether the broker was killed between two commits, and asked about the first one's half message only then."""
    asked = next((one for one in halves if one.log_offset > half.log_offset), None)
    late = asked is not None and asked.stored_ms * MS > began.began_us
    return began.killed_before and late and records.has_all_between(before, after)


def _tell(halves: list[Stored], records: Records, brokers: Brokers, producer: str) -> None:
    for before, half in zip([None, *halves], halves, strict=False):
        if before is None:
            brokers.appended(half, "tx_half", client_boot_id=producer)
        else:
            brokers.appended(half, "tx_check", origin_refs=[f"{before.queue_offset}:{before.log_offset}"])
    for mark in records.ended:
        if mark.store == halves[0].store and {one.queue_offset for one in halves} & {*mark.half_offsets}:
            progress = {"half_offsets": mark.half_offsets, "log_offset": mark.log_offset}
            broker = brokers.at(halves[0].queue.broker_name, mark.stored_ms * MS)
            broker.add(
                mark.mark(), "PROGRESS_FLUSH", broker_name=broker.name, service="transaction_op",
                progress=msgspec.json.encode(progress).decode(),
            )  # fmt: skip


def _decide(producer: ClientStart, mark: Mark, final: Stored, half: Stored, request: int) -> None:
    """What the producer's trace says of this commit."""
    producer.has.add("trace")
    if not producer.holds:
        producer.role = "producer"
    producer.add(
        mark, "TX", group=mark.said["group"], broker_name=final.queue.broker_name, unique_key=final.unique_key,
        half_queue_offset=half.queue_offset, half_log_offset=half.log_offset, state="commit",
        from_check=half.checks > 0, request_seq=request,
    )  # fmt: skip


def _commit(final: Stored, half: Stored, brokers: Brokers, producer: str, request: int) -> None:
    """A check asks about the half message that it has stored anew: so the one that was ended tells who was answered."""
    brokers.appended(final, "tx_final", client_boot_id=producer, request_seq=request)
    name = final.queue.broker_name
    # the line of the answer says by itself whose commit it was
    line = brokers.answers_to_checks.get((name, half.log_offset))
    said = final.mark() if line is None else line._replace(at_us=final.stored_ms * MS)
    brokers.at(name, final.stored_ms * MS).add(
        said, "END_TRANSACTION", broker_name=name, group="", unique_key=final.unique_key,
        half_queue_offset=half.queue_offset, half_log_offset=half.log_offset, state="commit",
        from_check=half.checks > 0, outcome="committed", client_boot_id=producer, request_seq=request,
    )  # fmt: skip


def pops(records: Records, brokers: Brokers) -> None:
    """What brokers kept about popped messages."""
    for (host, _, _), mark in records.popped.items():
        said, name = mark.said, brokers.names.get(host, mark.host)
        place = {
            "broker_name": name, "group": said["group"], "topic": said["topic"], "queue_id": said["queue_id"],
            "client_id": "", "client_boot_id": "", "request_seq": 0, "queue_offsets": said["offsets"],
            "pop_time": said["pop_time"],
        }  # fmt: skip
        broker = brokers.at(name, mark.at_us)
        if mark.what == "popped":
            more = {"start_offset": said["start"], "invisible_ms": said["invisible_ms"]}
            broker.add(mark, "POP", **place, **more, next_offset=max(said["offsets"], default=said["start"]) + 1)
        else:
            broker.add(mark, "ACK", **place)
