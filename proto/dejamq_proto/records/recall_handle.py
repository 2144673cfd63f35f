"""The name of a message that waits for its time, as senders get it. Source: RocketMQ ``RecallMessageHandle``."""

import base64
import binascii

import msgspec

from dejamq_proto.codes import Code, DejamqError

VERSION = "v1"
LONGEST_NUMBER = 15
"""Digits of a time in ms: Python refuses to read numbers of thousands of them."""


class RecallHandle(msgspec.Struct, frozen=True):
    """A waiting message by its topic and broker, the first time (ms) that is in its slot, and its unique key."""

    topic: str
    broker_name: str
    timestamp_ms: int
    message_id: str

    @classmethod
    def in_slot(cls, topic: str, broker_name: str, out_ms: int, message_id: str) -> "RecallHandle":
        """Of a message that waits in the slot that begins at ``out_ms``."""
        return cls(topic, broker_name, out_ms + 1, message_id)

    def encode(self) -> str:
        raw = f"{VERSION} {self.topic} {self.broker_name} {self.timestamp_ms} {self.message_id}"
        return base64.urlsafe_b64encode(raw.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> "RecallHandle":
        """Raises ILLEGAL_OPERATION for a text that is no handle."""
        try:
            version, topic, broker_name, stamp, message_id, *_ = base64.urlsafe_b64decode(text).decode().split(" ")
        except (binascii.Error, ValueError):
            raise _invalid() from None
        if version != VERSION or not (stamp.isascii() and stamp.isdigit() and len(stamp) <= LONGEST_NUMBER):
            raise _invalid()
        return cls(topic, broker_name, int(stamp), message_id)


def _invalid() -> DejamqError:
    return DejamqError("recall handle is invalid", code=Code.ILLEGAL_OPERATION, definite=True)
