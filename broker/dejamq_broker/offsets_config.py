"""Settings of groups' progress."""

from dataclasses import dataclass

from dejamq_proto.settings import setting


@dataclass(frozen=True)
class OffsetSettings:
    """What a broker does with offsets that clients commit and operators reset."""

    use_server_side_reset_offset: bool = setting(
        True, rocketmq="useServerSideResetOffset",
        help="a reset also reaches members that are online, by their next pull; false: only those that open a queue",
    )  # fmt: skip
    refuse_lower_offsets: bool = setting(
        False, help="keep an offset that a client wants to lower, as long as the queue has it (RocketMQ takes it)"
    )
