"""Sends of messages that are stored more than once: which try, and which call, wrote each copy.

Only a try with a good answer is traced. A try whose answer was lost shows in the producer's log, with its queue and how
long it took, and without the message's id: the copy that was born at that moment in that queue is its doing.
"""

from collections import defaultdict
from collections.abc import Iterable

from dejamq_proto.records.hosts import offset_message_id

from dejamq_analytics.evidence.brokers import Brokers
from dejamq_analytics.evidence.client import ClientStart, origin_of
from dejamq_analytics.evidence.clients import ClientStarts
from dejamq_analytics.evidence.mark import MS, Mark
from dejamq_analytics.evidence.stored import Records, Stored

UNKNOWN_CALL = 0
"""The number of a call where nobody knows which tries are of one call."""
NEAR_MS = 200
"""The line of a failed try comes this much after it at the most, on a busy machine."""


def _id_of(one: Stored) -> str:
    """The id that its broker made of it."""
    host, _, port = one.store_host.rpartition(":")
    return offset_message_id((host.strip("[]"), int(port)), one.log_offset)


def tell(marks: Iterable[Mark], clients: ClientStarts, brokers: Brokers, records: Records) -> None:
    """Lines of the tries that wrote each copy, at the producer, and of the copies, at the broker."""
    sent: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        if mark.what == "sent":
            for key in mark.said["unique_keys"]:
                sent[key].append(mark)
            if origin := origin_of(mark.said["unique_keys"][0]):
                clients.of_origin(origin, "", mark.at_us).has.add("trace")
    calls = 0
    for copies in records.copies():
        origin = origin_of(copies[0].unique_key)
        if origin is None:
            continue
        pubs = {mark.said["offset_message_id"]: mark for mark in sent[copies[0].unique_key]}
        producer = clients.of_origin(origin, "", copies[0].born_ms * MS)
        calls = _tell_one(producer, brokers, sorted(copies, key=lambda one: (one.born_ms, one.log_offset)), pubs, calls)


def _tell_one(producer: ClientStart, brokers: Brokers, copies: list[Stored], pubs: dict[str, Mark], calls: int) -> int:
    """The number of the last call. Nothing is told where one copy's try is not known, or one try has several copies."""
    marks = [pubs.get(_id_of(copy)) or _failed_try(producer, copy) for copy in copies]
    known = [mark for mark in marks if mark is not None]
    if len(known) < len(copies) or len({mark.source + str(mark.at_us) for mark in known}) < len(copies):
        return calls
    if any(mark.what == "sent" and not mark.said["success"] for mark in known):
        # stored less durably than asked: the program and its client may both have sent it again
        for number, (copy, mark) in enumerate(zip(copies, known, strict=True), 1):
            _try(producer, brokers, copy, mark, UNKNOWN_CALL, number)
        return calls
    tried = 0
    for before, copy, mark in zip([None, *known], copies, known, strict=False):
        again = before is not None and before.what == "tried_again" and _at_once(before, copy)
        calls, tried = (calls, tried + 1) if again else (calls + 1, 1)
        _try(producer, brokers, copy, mark, calls, tried)
    return calls


def _at_once(failed: Mark, copy: Stored) -> bool:
    """Whether a copy was born when the client said that it sends again."""
    return abs(copy.born_ms - failed.at_us // MS) <= NEAR_MS


def _failed_try(producer: ClientStart, copy: Stored) -> Mark | None:
    """The one line of a try that failed, whose time less its duration is when the copy was born, for its queue."""
    fitting = [
        mark for mark in producer.marks_of("tried_again")
        if mark.said["then"] == "resend at once" and mark.said["queue"] == copy.queue
        and -NEAR_MS <= mark.at_us // MS - mark.said["cost_ms"] - copy.born_ms <= NEAR_MS
    ]  # fmt: skip
    return fitting[0] if len(fitting) == 1 else None


def _try(producer: ClientStart, brokers: Brokers, copy: Stored, mark: Mark, call: int, number: int) -> None:
    if not producer.holds:
        producer.role = "producer"
    failed = mark.what == "tried_again"
    producer.has.add("log" if failed else "trace")
    request = len(producer.steps) + 1
    begun = mark._replace(at_us=copy.born_ms * MS)
    cost_ms = mark.said["cost_ms"]
    producer.add(
        begun, "SEND_TRY", request_seq=request, broker_name=copy.queue.broker_name, address=copy.store_host,
        group=mark.said.get("group", ""), topics=[copy.queue.topic], call_ids=[call], tries=[number],
        unique_keys=[copy.unique_key],
    )  # fmt: skip
    good = not failed and mark.said["success"]
    producer.add(
        begun._replace(at_us=begun.at_us + cost_ms * MS), "SEND_RESULT", request_seq=request,
        outcome="ok" if good else "timeout" if failed else "not_ok_status", definite=not failed,
    )  # fmt: skip
    brokers.appended(copy, "client", client_id=producer.client_id, client_boot_id=producer.boot_id, request_seq=request)
