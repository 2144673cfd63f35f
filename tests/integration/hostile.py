"""What a stranger may send: messages of every RPC, made from the descriptors, so that a new RPC is covered by itself.

Three kinds: messages whose every field is legal protobuf and may be absurd; the same with bytes changed; runs of
records with something wrong in them.
"""

import importlib
import pkgutil
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import dejamq_proto
from dejamq_proto.names import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    NOT_FOR_SENDING,
    RETRY_PREFIX,
)
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from hostile_runs import hostile_run

TOPICS = [f"t-{number}" for number in range(4)]
GROUPS = [f"g-{number}" for number in range(4)]
CLIENTS = [f"c-{number}" for number in range(4)]
WORDS = [
    "", ".", "..", "../../../../tmp/x", "/etc/passwd", "a" * 127, "a" * 128, "a" * 255, "a" * 256, "a" * 70_000, "a b",
    "a@b", "a\x00b", "\x01\x02", "\n", "\r\n- ", "%s%n%d", "%", "|", "名前", "🦆" * 50, "é" * 127, "-1", "0" * 5000,
    *sorted(NOT_FOR_SENDING), AUTO_CREATE_TOPIC, RETRY_PREFIX, DLQ_PREFIX, f"{RETRY_PREFIX}g-0", f"{DLQ_PREFIX}g-0",
    f"{RETRY_PREFIX}{RETRY_PREFIX}g-0", "%RETRY%../x", "DefaultCluster_REPLY_TOPIC", "CID_RMQ_SYS_TRANS",
]  # fmt: skip
EXPRESSIONS = [
    "*", "a || b", "||", "|| " * 2000, "a > 1", "a = 'x'", "(" * 3000, "NOT " * 3000 + "a", "a IN (" + "'x'," * 2000,
    "a BETWEEN 1 AND", "1" * 5000, "TAGS IS NULL", "a = 1e999999", "'" * 99, "a " * 9999, "a = 1 AND " * 1500 + "b = 2",
]  # fmt: skip
PLACES = ["127.0.0.1:1", "x", ":", "h:0", "h:99999", "[::1]:9", "7F00000100002A9F0000000000000000", "G" * 32, "0" * 56]
KINDS = ["TAG", "SQL92", "CLUSTERING", "BROADCASTING", "PUSH", "FIRST_OFFSET", "OrderTopicConfig"]
NUMBERS = [
    0, 1, 2, 3, 4, 6, 7, 8, 15, 16, 17, 18, 19, 100, 1000, 65_535, 65_536, 1 << 20, -1, -2, -100, (1 << 31) - 1,
    -(1 << 31), (1 << 32) - 1, 1 << 32, 1 << 53, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 1_700_000_000_000,
]  # fmt: skip
HOLDS = {"suspend_ms": [0, 0, 0, 0, 1, 5, -1, -(1 << 63)]}
"""Fields that say how long to wait, so that most inputs are answered at once."""
RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(1 << 31), (1 << 31) - 1),
}
RUN_FIELDS = "dejamq.v1.SendRun"
DEEPEST = 4
LONG = 1000
MOST_VALUES = 1500
"""Of one message: lists of lists would take minutes to make."""


class Method(NamedTuple):
    """One RPC: its path, its service, the descriptor of its request, and whether requests come as a stream."""

    path: str
    service: str
    request: Any
    streams: bool


def methods() -> list[Method]:
    """Every RPC of every service that there is a stub for."""
    found = []
    for module in pkgutil.iter_modules(dejamq_proto.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"dejamq_proto.{module.name}").DESCRIPTOR
            found += [_method(each) for service in file.services_by_name.values() for each in service.methods]
    return sorted(found)


def _method(method: MethodDescriptor) -> Method:
    service = method.containing_service.full_name
    return Method(f"/{service}/{method.name}", service, method.input_type, bool(method.client_streaming))


class Hostile:
    """Frames for any method, the same for the same seed. ``seq`` numbers every caller that is made."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.seq = self._values = 0

    def frame(self, method: Method) -> bytes:
        """One message's bytes, or something that is no message."""
        chance, self._values = self._random.random(), 0
        if chance < 0.02:
            return self._random.randbytes(self._random.choice((0, 1, 7, 300, 5000)))
        if method.request.full_name == RUN_FIELDS and chance < 0.7:
            self.seq += 1
            frame = hostile_run(self._random, self.seq, self._topic())
        else:
            frame = self.message(method.request).SerializeToString()
        return self._damaged(frame) if self._random.random() < 0.2 else frame

    def message(self, descriptor: Any, depth: int = 0) -> Any:
        """An instance whose fields are all legal protobuf, known names and absurd values mixed."""
        made = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if self._random.random() < 0.8 and depth < DEEPEST:
                self._fill(made, field, depth)
        return made

    def _fill(self, made: Any, field: Any, depth: int) -> None:
        if _is_map(field):
            for _ in range(self._count()):
                self._put_pair(getattr(made, field.name), field, depth)
        elif _repeated(field):
            getattr(made, field.name).extend(self._value(field, depth) for _ in range(self._count()))
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(self._value(field, depth))
        else:
            setattr(made, field.name, self._value(field, depth))

    def _put_pair(self, target: Any, field: Any, depth: int) -> None:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        if value.message_type is None:
            target[self._value(key, depth)] = self._value(value, depth)
        else:
            target[self._value(key, depth)].CopyFrom(self._value(value, depth))

    def _value(self, field: Any, depth: int) -> Any:
        kind = field.cpp_type
        self._values += 1
        if field.message_type is not None:
            return self.message(field.message_type, depth + 1)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self._random.random() < 0.5
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return self._random.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
        if kind in RANGES:
            return self._number(field)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._bytes()
        return self._word(field.name)

    def _number(self, field: Any) -> int:
        if field.name == "seq":
            self.seq += 1
            return self.seq
        low, high = RANGES[field.cpp_type]
        value = self._random.choice(HOLDS.get(field.name) or NUMBERS)
        return value if low <= value <= high else self._random.randint(0, 9)

    def _word(self, name: str) -> str:
        """Half of the time a name that fits the field, so that requests get past the first check."""
        likely = {"topic": TOPICS, "group": GROUPS, "expression": EXPRESSIONS, "client_id": CLIENTS}
        pools: list[list[str]] = [WORDS, EXPRESSIONS, PLACES, KINDS, GROUPS, TOPICS]
        fitting = next((pool for part, pool in likely.items() if part in name), None)
        pool = fitting if fitting and self._random.random() < 0.6 else self._random.choice(pools)
        word = self._random.choice(pool)
        return word if len(word) < LONG or self._random.random() < 0.05 else word[:LONG]

    def _topic(self) -> str:
        return self._word("topic") if self._random.random() < 0.3 else self._random.choice(TOPICS)

    def _bytes(self) -> bytes:
        return self._random.randbytes(self._random.choice((0, 1, 91, 1000, 70_000)))

    def _count(self) -> int:
        if self._values > MOST_VALUES:
            return 0
        return self._random.choice((0, 1, 1, 2, 3)) if self._random.random() < 0.99 else 1000

    def _damaged(self, frame: bytes) -> bytes:
        """Some bytes lost, changed, added or said twice."""
        ways: list[Callable[[bytes, int], bytes]] = [
            lambda data, at: data[:at],
            lambda data, at: data[:at] + self._random.randbytes(1) + data[at + 1 :],
            lambda data, at: data[:at] + b"\xff\xfe\xc3\x28" + data[at + 4 :],
            lambda data, at: data[:at] + self._random.randbytes(9) + data[at:],
            lambda data, at: data + data[at:],
        ]
        for _ in range(self._random.choice((1, 1, 2, 8))):
            frame = self._random.choice(ways)(frame, self._random.randrange(len(frame) + 1))
        return frame


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)
