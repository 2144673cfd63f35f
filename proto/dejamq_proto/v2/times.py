"""Times of the protocol in milliseconds. Strangers send any number, and protobuf's own methods raise at many."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.statuses import StatusError

LAST_MS = 253_402_300_799_999
"""The end of the year 9999, which is protobuf's."""


def ms_of(time: Timestamp | Duration, status: "pb.Code.ValueType" = pb.BAD_REQUEST) -> int:
    """Raises the status for a time before 1970, a duration below 0, or one beyond the year 9999."""
    milliseconds = time.seconds * 1000 + time.nanos // 1_000_000
    if not 0 <= milliseconds <= LAST_MS:
        raise StatusError(status, f"{time.seconds} s and {time.nanos} ns is no time")
    return milliseconds


def set_ms(time: Timestamp | Duration, milliseconds: int) -> None:
    """The nearest that the field holds."""
    time.FromMilliseconds(max(0, min(milliseconds, LAST_MS)))
