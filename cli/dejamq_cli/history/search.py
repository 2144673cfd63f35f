"""Finds the lines that speak of one message: first those that name it, then those about its places and requests."""

from collections.abc import Iterator
from pathlib import Path

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.events import Append, Boot, Deliver, Fault, Gap, MemberEvent, Sendback, State
from dejamq_proto.journal.lines import begins, decode, whole_lines
from dejamq_proto.journal.readings import messages
from dejamq_proto.records.hosts import host_text, parse_offset_message_id

from dejamq_cli.history.around import Around
from dejamq_cli.history.files import Attendance
from dejamq_cli.history.naming import Naming, by_key, by_origin
from dejamq_cli.history.trace import Copy, Trace

LIFE = begins(State, Boot, Fault, Gap, MemberEvent)
"""How the lines begin that tell of a process rather than of messages."""
RECORDS, GIVEN_BACK = begins(Append, Deliver), begins(Sendback)
NOBODY = "\0"  # stands in no line: such a reading only finds the processes that wrote journals
MOST_ROUNDS = 64  # tries of a message; each needs a reading of its own when nothing but its origin names it


def find(paths: list[Path], message_id: str) -> Trace:
    """Everything about the message with this id, client-made or broker-made. Raises DejamqError when it is unknown."""
    text = message_id.strip()
    trace = _named(paths, text)
    if not trace.events:
        copy, key = _resolved(paths, text)
        trace = _named(paths, key) if key else _followed(paths, copy)
    trace.complete()
    around = Around(trace)
    for path in paths:
        for line in whole_lines(path):
            around.take(line)
    around.end()
    return trace


def _named(paths: list[Path], key: str) -> Trace:
    """By its own id: one reading finds all."""
    trace, needle = Trace(key), key.encode()
    naming = Naming(trace, by_key(key))
    attendance = Attendance()
    for path in paths:
        first = last = b""
        lines = 0
        for last in whole_lines(path):
            lines += 1
            first = first or last
            if needle in last or last.startswith(LIFE):
                naming.take(last)
        attendance.count(path, lines, first, last)
    trace.witnesses = attendance.by_boot
    naming.describe_witnesses()
    return trace


def _followed(paths: list[Path], copy: Copy) -> Trace:
    """From copy to copy: send-backs and delays name what they were made from, in whichever file that is."""
    trace = _named(paths, NOBODY)
    trace.key, trace.copies = "", {copy.place: copy}
    naming = Naming(trace, by_origin(trace))
    known = 0
    for _ in range(MOST_ROUNDS):
        if len(trace.copies) + len(trace.deliveries) == known:
            break
        known = len(trace.copies) + len(trace.deliveries)
        for path in paths:
            for line in whole_lines(path):
                if line.startswith((*RECORDS, *GIVEN_BACK)):
                    naming.take(line)
    return trace


def _resolved(paths: list[Path], text: str) -> tuple[Copy, str]:
    """The copy with this broker-made id, and the message's own id. Raises DejamqError when nobody speaks of it."""
    try:
        host, log_offset = parse_offset_message_id(text)
    except ValueError:
        raise _unknown(text) from None
    address, addresses, found = host_text(host), set[tuple[str, str]](), list[tuple[Copy, str, str]]()
    digits = str(log_offset).encode()
    for path in paths:
        for line in whole_lines(path):
            if line.startswith(begins(Boot)) and (boot := decode(line, Boot)):
                addresses.add((boot.broker_name, boot.address))
            elif line.startswith(RECORDS) and digits in line:
                found += _at(line, log_offset)
    for copy, key, told in found:
        if told == address or (not told and (copy.place.broker_name, address) in addresses):
            copy.host = address
            return copy, key
    raise _unknown(text)


def _at(line: bytes, log_offset: int) -> Iterator[tuple[Copy, str, str]]:
    """Records of this run at the log offset, with their keys and what the line says of their broker's address."""
    event = decode(line, Append, Deliver)
    for one in () if event is None else messages(event):
        if one.log_offset == log_offset:
            yield Copy(1, one.place, log_offset), one.unique_key, getattr(one, "store_host", "")


def _unknown(text: str) -> DejamqError:
    return DejamqError(
        f"no journal speaks of message {text}: is the id whole, and are the journals of its producer, its broker and "
        "its consumer among the folders given?",
        code=Code.QUERY_NOT_FOUND,
    )
