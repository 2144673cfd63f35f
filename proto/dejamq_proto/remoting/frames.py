"""Frames of RocketMQ's remoting protocol: read from bytes as they come, written in one piece. No sockets here.

====== ============ ==========================================================
bytes  field        meaning
====== ============ ==========================================================
4      length       of everything after this field, big-endian
1      header form  0 JSON, 1 ROCKETMQ (``header.py``)
3      header size
n      header
rest   body         raw; absent and empty are the same here
====== ============ ==========================================================

Source: RocketMQ ``RemotingCommand``, ``NettyDecoder``.
"""

import msgspec

from dejamq_proto.codes import cut
from dejamq_proto.remoting.header import JSON, BadHeader, Command, decode_header, encode_header

__all__ = ["MAX_FRAME_BYTES", "BadFrame", "FrameReader", "answer", "encode"]

MAX_FRAME_BYTES = 16 << 20
"""Of a whole frame, in both directions: Java's clients close a connection that brings a larger one."""
MAX_HEADER_BYTES = 1 << 20
"""Of one frame. A send's properties are the most that a header holds: 32 KiB, each letter an escape of six at worst."""
LENGTH_BYTES, MARK_BYTES = 4, 4
RESPONSE, ONEWAY = 1, 2
"""Bits of a command's flag."""
VERSION = 479
"""RocketMQ's V5_3_3. Clients decide by a broker's version what it can do."""


class BadFrame(ValueError):
    """These bytes are no frame: the connection ends, as there is nobody to answer (RocketMQ: NettyDecoder)."""


class FrameReader:
    """Takes bytes in any pieces and gives commands. Nothing of a frame over the limit is kept."""

    def __init__(self, most_bytes: int = MAX_FRAME_BYTES) -> None:
        self._held, self._most = bytearray(), most_bytes

    @property
    def held(self) -> int:
        """Bytes that came and are no command yet."""
        return len(self._held)

    def receive(self, data: bytes | memoryview) -> None:
        """These bytes came."""
        self._held += data

    def next_command(self) -> Command | None:
        """The next whole command; None: more bytes are needed. Raises BadFrame, and then nothing more will come."""
        held = self._held
        if len(held) < LENGTH_BYTES:
            return None
        size = int.from_bytes(held[:LENGTH_BYTES], "big", signed=True)
        if size < MARK_BYTES or size + LENGTH_BYTES > self._most:
            raise BadFrame(f"a frame of {size} bytes is announced, {MARK_BYTES} to {self._most} are taken")
        end = LENGTH_BYTES + size
        if len(held) < end:
            return None
        frame = bytes(memoryview(held)[LENGTH_BYTES:end])
        del held[:end]
        return decode(frame)


def decode(frame: bytes) -> Command:
    """The command of one frame, its length left out. Raises BadFrame."""
    form, size = frame[0], int.from_bytes(frame[1:MARK_BYTES])
    body_at = MARK_BYTES + size
    if body_at > len(frame):
        raise BadFrame(f"a header of {size} bytes is announced in a frame of {len(frame)}")
    if size > MAX_HEADER_BYTES:
        raise BadFrame(f"a header of {size} bytes is announced, at most {MAX_HEADER_BYTES} are read")
    try:
        command = decode_header(form, frame[MARK_BYTES:body_at])
    except BadHeader as error:
        raise BadFrame(str(error)) from None
    command.body = frame[body_at:]
    return command


def encode(command: Command, form: int = JSON) -> bytes:
    """One frame. Answers are JSON always, as a RocketMQ's are: clients look at the form of each frame."""
    header, body = encode_header(command, form), command.body
    mark = (form << 24 | len(header)).to_bytes(MARK_BYTES)
    return b"".join(((MARK_BYTES + len(header) + len(body)).to_bytes(LENGTH_BYTES), mark, header, body))


def answer(
    request: Command, code: int = 0, remark: str | None = None, fields: msgspec.Struct | None = None,
    body: bytes = b"",
) -> Command:  # fmt: skip
    """The answer to this request. Its fields are there even when it has none: C++ and Java read them unasked.

    A remark that repeats a name of any length is cut.
    """
    return Command(
        code=code, opaque=request.opaque, flag=RESPONSE, version=VERSION,
        remark=remark if remark is None else cut(remark),
        ext={} if fields is None else texts_of(fields), body=body,
    )  # fmt: skip


def texts_of(fields: msgspec.Struct) -> dict[str, str]:
    """Fields by their names on the wire, each value as a text, as C++ reads no other."""
    found = {}
    for name, key in zip(fields.__struct_fields__, fields.__struct_encode_fields__, strict=True):
        value = getattr(fields, name)
        if value is not None:
            found[key] = value if isinstance(value, str) else str(value).lower()
    return found
