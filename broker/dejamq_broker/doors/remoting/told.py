"""The domain's values as bodies of answers that several handlers give."""

from collections.abc import Mapping

from dejamq_proto.names import trimmed
from dejamq_proto.records.record import java_hash
from dejamq_proto.remoting import bodies
from dejamq_proto.remoting.frames import VERSION

from dejamq_broker.members.groups import GroupSubscription

WHOLE_NUMBERS = ("pageCacheLockTimeMills", "putMessageEntireTimeMax", "getMessageEntireTimeMax")
POOLS = ("ack", "litePull", "pull", "query", "send")
NO_STORE_POOL = str((1 << 31) - 1)
"""RocketMQ's ``remainTransientStoreBufferNumbs`` where appends take no buffer of such a pool."""


def subscription_told(found: GroupSubscription) -> bodies.SubscriptionTold:
    """With the tags that the expression names, in its order."""
    tags = [] if found.expression_type != "TAG" else [trimmed(tag) for tag in found.expression.split("||")]
    named = [tag for tag in dict.fromkeys(tags) if tag not in ("", "*")]
    return bodies.SubscriptionTold(
        topic=found.topic, sub_string=found.expression, expression_type=found.expression_type,
        sub_version=found.version, tags_set=named, code_set=[java_hash(tag) for tag in named],
    )  # fmt: skip


def runtime_told(values: Mapping[str, str]) -> dict[str, str]:
    """A broker's numbers in the forms that RocketMQ's tools and its exporter read, with all the keys that they need.

    They take no fraction of a ms. Numbers of thread pools are 0, for there are none here; the timer's rates are not
    measured.
    """
    nothing = {
        f"{pool}ThreadPoolQueue{what}": "0" for pool in POOLS for what in ("Size", "Capacity", "HeadWaitTimeMills")
    }
    nothing |= dict.fromkeys(("timerEnqueueTps", "timerDequeueTps"), "0.0")
    nothing |= dict.fromkeys(("EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity"), "0")
    nothing |= {"dispatchMaxBuffer": "0", "remainTransientStoreBufferNumbs": NO_STORE_POOL}
    told = nothing | dict(values) | {"brokerVersion": str(VERSION)}
    told |= {name: str(round(float(told[name]))) for name in WHOLE_NUMBERS if name in told}
    told["getTransferedTps"] = told["getTransferredTps"]  # as RocketMQ wrote it before 4.9
    told["remainHowManyDataToFlush"] = f"{told['remainHowManyDataToFlush']} B"
    return told
