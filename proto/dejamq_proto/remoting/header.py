"""The two forms of a remoting header: JSON, and RocketMQ's own binary one.

Reading is tolerant, since each client has habits of its own: numbers among the texts (C++), nulls, missing fields,
languages that nobody knows. Writing is JSON without blanks, keys sorted: Go splits some of it by hand.

Binary: code 2, language 1, version 2, opaque 4, flag 4, remark 4 + text, then 4 bytes of size and the fields, each
as key 2 + text and value 4 + text. Source: RocketMQ ``RemotingSerializable``, ``RocketMQSerializable``.
"""

import struct
from typing import Annotated, Any

import msgspec

JSON, ROCKETMQ = 0, 1
LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)  # fmt: skip
OTHER = LANGUAGES.index("OTHER")
FIXED = struct.Struct(">hbhii")
SHORT_SIZE, SIZE = struct.Struct(">h"), struct.Struct(">i")
I32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
I64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Java's int and long."""


class BadHeader(ValueError):
    """These bytes are no header."""


class Command(msgspec.Struct, kw_only=True):
    """A request or an answer. ``code`` is the kind of a request, and RocketMQ's response code of an answer.

    ``opaque`` pairs the two. ``flag`` bit 0: an answer, bit 1: nobody waits for one. ``ext`` are the fields.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: str = "JAVA"
    version: int = 0
    remark: str | None = None
    ext: dict[str, str] = {}
    body: bytes = b""

    @property
    def is_answer(self) -> bool:
        return bool(self.flag & 1)

    @property
    def oneway(self) -> bool:
        return bool(self.flag & 2)


class _JsonHeader(msgspec.Struct, kw_only=True, rename="camel"):
    """As clients send it."""

    code: I32
    opaque: I32 = 0
    flag: I32 = 0
    language: Any = None
    version: I32 = 0
    remark: str | None = None
    ext_fields: dict[str, Any] | None = None


_json = msgspec.json.Decoder(_JsonHeader, strict=False)


def decode_header(form: int, raw: bytes) -> Command:
    """Raises BadHeader for bytes, or a form, that cannot be read."""
    if form == JSON:
        return _decode_json(raw)
    if form == ROCKETMQ:
        try:
            return _decode_binary(raw)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise BadHeader(f"a binary header cannot be read: {error}") from None
    raise BadHeader(f"{form} is no form of a header: 0 is JSON, 1 ROCKETMQ")


def encode_header(command: Command, form: int = JSON) -> bytes:
    """JSON unless told otherwise; fields that the command does not have are left out."""
    if form == ROCKETMQ:
        return _encode_binary(command)
    header: dict[str, Any] = {
        "code": command.code, "extFields": command.ext, "flag": command.flag, "language": command.language,
        "opaque": command.opaque,
    }  # fmt: skip
    if command.remark is not None:
        header["remark"] = command.remark
    return msgspec.json.encode(header | {"serializeTypeCurrentRPC": "JSON", "version": command.version})


def _decode_json(raw: bytes) -> Command:
    try:
        read = _json.decode(raw)
        fields = {key: _text(value) for key, value in (read.ext_fields or {}).items() if value is not None}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadHeader(f"a JSON header cannot be read: {error}") from None
    language = read.language if isinstance(read.language, str) else LANGUAGES[OTHER]
    return Command(
        code=read.code, opaque=read.opaque, flag=read.flag, language=language, version=read.version,
        remark=read.remark, ext=fields,
    )  # fmt: skip


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _decode_binary(raw: bytes) -> Command:
    code, language, version, opaque, flag = FIXED.unpack_from(raw)
    remark, at = _read_text(raw, FIXED.size, SIZE, len(raw))
    size = SIZE.unpack_from(raw, at)[0]
    at += SIZE.size
    end = at + size
    if not size >= 0 or end > len(raw):
        raise BadHeader(f"fields of {size} bytes are announced in a header of {len(raw)}")
    fields: dict[str, str] = {}
    while at < end:
        key, at = _read_text(raw, at, SHORT_SIZE, end)
        value, at = _read_text(raw, at, SIZE, end)
        if key is not None and value is not None:
            fields[key] = value
    known = 0 <= language < len(LANGUAGES)
    return Command(
        code=code, opaque=opaque, flag=flag, language=LANGUAGES[language if known else OTHER], version=version,
        remark=remark, ext=fields,
    )  # fmt: skip


def _read_text(raw: bytes, at: int, width: struct.Struct, end: int) -> tuple[str | None, int]:
    """An empty text is read as none, as RocketMQ does."""
    size = width.unpack_from(raw, at)[0]
    at += width.size
    if not 0 <= size <= end - at:
        raise BadHeader(f"a text of {size} bytes is announced where {end - at} are left")
    return raw[at : at + size].decode() if size else None, at + size


def _encode_binary(command: Command) -> bytes:
    fields = b"".join(
        SHORT_SIZE.pack(len(key.encode())) + key.encode() + SIZE.pack(len(value.encode())) + value.encode()
        for key, value in command.ext.items()
    )
    remark = (command.remark or "").encode()
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else OTHER
    fixed = FIXED.pack(command.code, language, command.version, command.opaque, command.flag)
    return b"".join((fixed, SIZE.pack(len(remark)), remark, SIZE.pack(len(fields)), fields))
