"""Who calls."""

from typing import Protocol

from dejamq_proto.common_pb2 import Caller


class Identity(Protocol):
    """Names the caller: every request carries a fresh sequence number of this client's start."""

    def caller(self, seq: int = 0) -> Caller: ...
