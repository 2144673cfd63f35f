"""Lines of a journal as events."""

from typing import Union

import msgspec
from dejamq_proto.journal.events import EVENTS, Append, Deliver, Event, SendTry
from dejamq_proto.loose_json import BAD_JSON

LIFE = tuple(b'{"event":"%s"' % name for name in (b"STATE", b"BOOT", b"FAULT", b"GAP", b"MEMBER"))
"""How the lines begin that tell of a process rather than of messages."""

_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Union[EVENTS])  # noqa: UP007  # a tuple of types


def decode(line: bytes) -> Event | None:
    """None for a line that is damaged, or of an event that this version does not know."""
    try:
        event = _decoder.decode(line)
    except BAD_JSON:
        return None
    return event if _is_whole(event) else None


def _is_whole(event: Event) -> bool:
    """Columns have one element a message; only damage makes them differ."""
    if isinstance(event, SendTry):
        return len(event.tries) == len(event.unique_keys)
    if not isinstance(event, Append | Deliver):
        return True
    needed: list[list[int] | list[str]] = [event.log_offsets, event.unique_keys]
    if isinstance(event, Append):
        known = range(min(len(event.topics), len(event.queue_ids)))
        if not all(number in known for number in event.queue_index):
            return False
        needed.append(event.queue_index)
        optional: list[list[int] | list[str]] = [event.origin_refs, event.reconsume_times]
    else:
        needed.append(event.delivery_ids)
        optional = [event.origin_ids, event.store_hosts if len(event.store_hosts) != 1 else []]
    count = len(event.queue_offsets)
    return all(len(column) == count for column in needed) and all(len(column) in (0, count) for column in optional)


def event_name(line: bytes) -> bytes:
    """``b"APPEND"``, without decoding: the tag is what a line begins with."""
    return line[10 : line.find(b'"', 10)] if line.startswith(b'{"event":"') else b""
