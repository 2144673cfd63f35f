"""What clients are told of their settings. Pure. Source: RocketMQ ``GrpcClientSettingsManager``."""

from collections.abc import Sequence

import msgspec
from google.protobuf.duration_pb2 import Duration

from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.statuses import OK

MOST_BODY = 4 << 20
PRODUCER_ATTEMPTS, PRODUCER_BACKOFF_MS = 3, (10, 1_000)
BATCH = 32
NODE_UNITS = 1000
"""Node's client takes the seconds of a backoff for milliseconds."""


class SubscriptionSettings(msgspec.Struct, frozen=True):
    """``backoff_ms`` are the times before each next try, the last one serves all further ones."""

    in_order: bool = False
    max_attempts: int = 17
    backoff_ms: Sequence[int] = (
        1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000,
        600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
    )  # fmt: skip


def settings_answer(
    asked: pb.Settings, group: SubscriptionSettings, longest_poll_ms: int, most_body: int = MOST_BODY
) -> pb.TelemetryCommand:
    """The settings of a client, completed. Without one of these fields some client does not start or never waits."""
    told = pb.Settings()
    told.CopyFrom(asked)
    told.metric.on = False
    if asked.WhichOneof("pub_sub") == "subscription":
        told.subscription.fifo = group.in_order
        told.subscription.receive_batch_size = BATCH
        told.subscription.long_polling_timeout.FromMilliseconds(longest_poll_ms)
        told.backoff_policy.CopyFrom(_backoff(group, node=asked.user_agent.language == pb.NODE_JS))
    else:
        told.publishing.max_body_size = most_body
        told.publishing.validate_message_type = True
        told.backoff_policy.CopyFrom(_exponential(2, *PRODUCER_BACKOFF_MS))
        told.backoff_policy.max_attempts = PRODUCER_ATTEMPTS
    return pb.TelemetryCommand(status=OK, settings=told)


def _backoff(group: SubscriptionSettings, *, node: bool) -> pb.RetryPolicy:
    """Python's push consumer reads the table alone, Node's the formula alone; Java, Go and Rust take both."""
    if not node:
        return pb.RetryPolicy(
            max_attempts=group.max_attempts,
            customized_backoff=pb.CustomizedBackoff(next=map(_duration, group.backoff_ms)),
        )
    policy = _exponential(2, group.backoff_ms[0] * NODE_UNITS, group.backoff_ms[-1] * NODE_UNITS)
    policy.max_attempts = group.max_attempts
    return policy


def _exponential(multiplier: float, initial_ms: int, max_ms: int) -> pb.RetryPolicy:
    return pb.RetryPolicy(exponential_backoff=pb.ExponentialBackoff(
        initial=_duration(initial_ms), max=_duration(max_ms), multiplier=multiplier
    ))  # fmt: skip


def _duration(milliseconds: int) -> Duration:
    made = Duration()
    made.FromMilliseconds(milliseconds)
    return made
