"""What became of the message: each delivery with its result, and how each group stands."""

from collections import defaultdict
from collections.abc import Iterable

from dejamq_lab.duplicates import ASKED_FOR_AGAIN
from dejamq_proto import events as ev
from dejamq_proto.names import TRANSACTION_GROUP

from dejamq_cli.history.story import GroupEnd, Handled
from dejamq_cli.history.trace import Delivery, Trace


def handled(trace: Trace, events: Iterable[ev.Event], names: dict[str, str]) -> list[Handled]:
    """Every delivery in the order of their times."""
    results: dict[Delivery, str] = {}
    groups: dict[Delivery, str] = {}
    for event in events:
        if isinstance(event, ev.Result):
            results |= {Delivery(event.boot_id, number): event.status for number in event.delivery_ids}
        elif isinstance(event, ev.Deliver):
            groups |= {Delivery(event.boot_id, number): event.group for number in event.delivery_ids}
    return [
        Handled(
            number, f"{one.boot_id}-{one.number}", groups[one], names[one.boot_id],
            trace.copies[trace.deliveries[one]].number, results.get(one, ""),
        )
        for one, number in trace.delivery_numbers().items()
    ]  # fmt: skip


def group_ends(trace: Trace, events: Iterable[ev.Event], deliveries: list[Handled]) -> list[GroupEnd]:
    """Every group that handled the message or has committed past a copy of it, by name."""
    found: dict[str, GroupEnd] = {}
    for one in deliveries:
        end = found.setdefault(one.group, GroupEnd(one.group, 0, [], [], 0))
        end.unasked += bool(end.results) and end.results[-1] not in ASKED_FOR_AGAIN
        end.results.append(one.result)
        end.deliveries += 1
    for group, numbers in _committed(trace, events).items():
        found.setdefault(group, GroupEnd(group, 0, [], [], 0)).committed_past = sorted(numbers)
    return sorted(found.values(), key=lambda end: end.group)


def _committed(trace: Trace, events: Iterable[ev.Event]) -> dict[str, set[int]]:
    """The numbers of the copies that each group is past, as the brokers' last words are."""
    past: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if isinstance(event, ev.OffSet) and event.group != TRANSACTION_GROUP:
            queue = event.broker_name, event.topic, event.queue_id
            numbers = past[event.group]
            for copy in (copy for copy in trace.copies.values() if copy.place[:3] == queue):
                (numbers.add if copy.place.queue_offset < event.new else numbers.discard)(copy.number)
    return past
