"""The hot message of replication, ``LogSlice``, as protobuf bytes written and read by hand; see ``messages.py``.

The payload is joined once on the way out and stays a view on the way in.
"""

import msgspec

from dejamq_proto.wire.fields import BadMessage, chunk, fields_of, integer, text_of, with_payload


class LogSlice(msgspec.Struct, kw_only=True):
    """Bytes of the master's log from ``log_offset`` on; none in a sign of life. ``master_end`` is a log offset too."""

    log_offset: int = 0
    master_end: int = 0
    master_timestamp_ms: int = 0
    deleted_topics: list[str] = []
    data: bytes | memoryview = b""

    def encode(self) -> bytes:
        head = [integer(1, self.log_offset), integer(2, self.master_end), integer(3, self.master_timestamp_ms)]
        head += [chunk(4, topic.encode()) for topic in self.deleted_topics]
        return b"".join(with_payload(head, (self.data,) if len(self.data) else ()))

    @classmethod
    def decode(cls, frame: bytes) -> "LogSlice":
        """Read a frame. Raises BadMessage."""
        found = cls(deleted_topics=[])
        for number, value in fields_of(frame):
            if isinstance(value, memoryview):
                if number == 15:
                    found.data = value
                elif number == 4:
                    found.deleted_topics.append(text_of(value))
            elif number in _NUMBERS:
                setattr(found, _NUMBERS[number], value)
        if min(found.log_offset, found.master_end) < 0:
            raise BadMessage("a log offset is below 0")
        return found


_NUMBERS = {1: "log_offset", 2: "master_end", 3: "master_timestamp_ms"}
