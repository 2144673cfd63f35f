"""Faults as they are asked for: what ``POST /faults`` takes, and which places of the server each one arms.

Beside these shapes there is nothing to know of a fault: the schema of the HTTP page is made of them.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import msgspec

Operation = Literal[
    "send", "receive", "ack", "change_invisible", "commit", "send_back", "heartbeat", "lock", "end_transaction",
    "route", "members", "query_offset",
]  # fmt: skip
OPERATIONS: tuple[str, ...] = get_args(Operation)

# By operation: RocketMQ's names of requests, calls of its protocol v2, then calls of dejamq's own.
CALLS: Mapping[str, tuple[str, ...]] = {
    "send": ("SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "SendMessage", "SendOne"),
    "receive": (
        "PULL_MESSAGE", "LITE_PULL_MESSAGE", "POP_MESSAGE", "ReceiveMessage", "PullMessage", "PullOne", "Receive"
    ),
    "ack": ("ACK_MESSAGE", "BATCH_ACK_MESSAGE", "AckMessage", "Ack"),
    "change_invisible": ("CHANGE_MESSAGE_INVISIBLETIME", "ChangeInvisibleDuration", "ChangeInvisible"),
    "commit": ("UPDATE_CONSUMER_OFFSET", "UpdateOffset"),
    "send_back": ("CONSUMER_SEND_MSG_BACK", "SendBack"),
    "heartbeat": ("HEART_BEAT", "Heartbeat"),
    "lock": ("LOCK_BATCH_MQ", "LockBatch"),
    "end_transaction": ("END_TRANSACTION", "EndTransaction"),
    "route": ("GET_ROUTEINFO_BY_TOPIC", "QueryRoute", "GetRoute", "GetRoutes"),
    "members": ("GET_CONSUMER_LIST_BY_GROUP", "ConsumerList"),
    "query_offset": ("QUERY_CONSUMER_OFFSET", "QueryOffset", "GetOffset"),
}  # fmt: skip
STREAMS = {
    ("send", "request"): "send.request", ("send", "answer"): "send.answer", ("receive", "answer"): "pull.answer",
}  # fmt: skip
"""What dejamq's own streams carry has places of its own."""
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="how many calls it strikes")]
Ms = Annotated[int, msgspec.Meta(ge=0, le=3_600_000, description="milliseconds")]


class ServerFault(msgspec.Struct, frozen=True, tag_field="fault", forbid_unknown_fields=True):
    """What all of them are."""

    @property
    def tag(self) -> str:
        """Its name in JSON."""
        return str(self.__struct_config__.tag)


class OnCalls(ServerFault, frozen=True):
    """A fault of the next ``count`` calls of one operation, in whatever protocol they come."""

    operation: Operation
    count: Count = 1

    part = ""

    @property
    def places(self) -> str:
        """The failpoints that share its count."""
        named = [f"rpc.{call}.{self.part}" for call in CALLS[self.operation]]
        stream = STREAMS.get((self.operation, self.part))
        return "|".join([*named, stream] if stream else named)

    def action(self) -> str:
        """What a failpoint does there."""
        return "drop"


class AnswerLost(OnCalls, frozen=True, tag="answer_lost"):
    """The work is done and the answer is lost."""

    part = "answer"


class RequestLost(OnCalls, frozen=True, tag="request_lost"):
    """The request never arrives."""

    part = "request"


class AnswerLate(OnCalls, frozen=True, tag="answer_late", kw_only=True):
    """The work is done and the answer comes ``ms`` later."""

    ms: Ms

    part = "answer"

    def action(self) -> str:
        return f"pause({self.ms})"


class CutFault(ServerFault, frozen=True, tag="cut"):
    """Nobody reaches the server. ``reset`` breaks connections; ``silent`` leaves them and throws everything away."""

    mode: Literal["reset", "silent"] = "reset"


class DelayFault(ServerFault, frozen=True, tag="delay"):
    """Everything that comes to the server or leaves it takes ``ms`` longer."""

    ms: Ms


class HealFault(ServerFault, frozen=True, tag="heal"):
    """``cut`` and ``delay`` end."""


class PauseFault(ServerFault, frozen=True, tag="pause"):
    """SIGSTOP: the server keeps its connections and says nothing."""


class ResumeFault(ServerFault, frozen=True, tag="resume"):
    """``pause`` ends."""


class KillFault(ServerFault, frozen=True, tag="kill"):
    """SIGKILL: nothing is flushed, nobody is told. The store stays."""


class RestartFault(ServerFault, frozen=True, tag="restart"):
    """The server starts again on its store at the same address, and serves when this returns. If it runs, it ends
    first.
    """


AnyFault = (
    AnswerLost
    | RequestLost
    | AnswerLate
    | CutFault
    | DelayFault
    | HealFault
    | PauseFault
    | ResumeFault
    | KillFault
    | RestartFault
)
KINDS = tuple(str(kind.__struct_config__.tag) for kind in get_args(AnyFault))


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fault that stands. ``struck`` calls of ``count`` have met it so far. It has the fields of its kind."""

    fault: str
    operation: str | None = None
    count: int | None = None
    struck: int | None = None
    mode: str | None = None
    ms: int | None = None


class Faults(msgspec.Struct, frozen=True):
    """The answer on ``/faults``. ``server``: running, paused or stopped."""

    server: str
    faults: list[Standing]


class Advertise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /advertise``: the one address that clients are told from now on."""

    address: str


class Address(msgspec.Struct, frozen=True):
    """The answer to it."""

    advertised: str


class Health(msgspec.Struct, frozen=True):
    """The answer on ``/health``. ``status``: SERVING, or why clients cannot use the server."""

    status: str
    server: str
    namesrv: str
    store: str
    journal: str


class Problem(msgspec.Struct, frozen=True):
    """The answer to a request that is refused: what is wrong, and what to do."""

    error: str
    hint: str
