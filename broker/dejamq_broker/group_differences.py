"""What members of one group do differently that they must do alike. Pure.

RocketMQ checks none of it: messages are then lost, repeated or handled out of order without a word (cause R3). Nothing
is refused here either, because an upgrade changes members one after the other; it is said, with both sides.
"""

from collections.abc import Iterator

from dejamq_broker.groups import Consumer, Member


def differences(one: Member, other: Member) -> Iterator[str]:
    """One sentence for each thing that these two do differently; what a client did not tell is no difference."""
    mine, theirs = _ways(one.consumer), _ways(other.consumer)
    for what in mine:
        if mine[what] and theirs[what] and mine[what] != theirs[what]:
            yield f"{one.client_id} has {what} {mine[what]}, {other.client_id} has {theirs[what]}"


def _ways(consumer: Consumer) -> dict[str, str]:
    subscriptions = sorted(consumer.subscriptions, key=lambda each: each.topic)
    wanted = ", ".join(f"{each.topic} ({each.expression_type} {each.expression})" for each in subscriptions)
    return {
        "the model": consumer.model,
        "the subscriptions": wanted,
        "the handlers": consumer.handlers,
        "the start": consumer.consume_from,
        "the allocation": consumer.allocation,
        "the hand-over": consumer.handover,
    }
