"""What a topic is for, by its name."""

from collections.abc import Iterable

from dejamq.admin.links import BrokerInfo
from dejamq_proto.names import DLQ_PREFIX, RETRY_PREFIX, is_system, reply_topic


def kind_of(topic: str, own: set[str]) -> str:
    """``user``, or what else it is for; ``own`` are those that brokers name after themselves and their cluster."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead letters"
    return "system" if is_system(topic) or topic in own else "user"


def own_topics(brokers: Iterable[BrokerInfo]) -> set[str]:
    """Topics that brokers name after themselves and their cluster."""
    known = list(brokers)
    clusters = {broker.cluster for broker in known}
    return clusters | {broker.broker_name for broker in known} | {reply_topic(name) for name in clusters}
