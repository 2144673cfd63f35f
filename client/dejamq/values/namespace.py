"""Namespaces: one cluster shared by several installations whose topics and groups have equal names. Pure.

``orders`` of namespace ``eu`` is ``eu%orders`` for brokers and name servers; the program sees ``orders``. What
belongs to the cluster itself (system topics, reply topics) has no namespace. Source: RocketMQ ``NamespaceUtil`` (its
first version: the names themselves carry the namespace).
"""

from collections.abc import Sequence

import msgspec
from dejamq_proto.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, NOT_FOR_SENDING, REPLY_SUFFIX, RETRY_PREFIX

from dejamq.values.allocation import Strategy
from dejamq.values.message import MessageQueue

SEPARATOR = "%"
SYSTEM_TOPICS = NOT_FOR_SENDING | {AUTO_CREATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}
SYSTEM_PREFIXES = ("rmq_sys_", "CID_RMQ_SYS_")


def wrap(namespace: str, name: str) -> str:
    """The name inside of the namespace; itself where it is there already, or belongs to the system.

    >>> wrap("eu", "orders"), wrap("eu", "%RETRY%billing"), wrap("eu", "eu%orders"), wrap("", "orders")
    ('eu%orders', '%RETRY%eu%billing', 'eu%orders', 'orders')
    """
    if not namespace or not name or is_system(name):
        return name
    kind, bare = _parts(name)
    return name if bare.startswith(namespace + SEPARATOR) else f"{kind}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str, name: str) -> str:
    """The name as programs know it; a name of another namespace stays as it is.

    >>> unwrap("eu", "eu%orders"), unwrap("eu", "%DLQ%eu%billing"), unwrap("eu", "us%orders")
    ('orders', '%DLQ%billing', 'us%orders')
    """
    if not namespace or is_system(name):
        return name
    kind, bare = _parts(name)
    return kind + bare.removeprefix(namespace + SEPARATOR)


def wrap_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """The same queue, its topic inside of the namespace."""
    return msgspec.structs.replace(queue, topic=wrap(namespace, queue.topic)) if namespace else queue


def unwrap_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """The same queue, its topic as programs know it."""
    return msgspec.structs.replace(queue, topic=unwrap(namespace, queue.topic)) if namespace else queue


def strategy_outside(namespace: str, strategy: Strategy) -> Strategy:
    """A program's own allocation, which knows nothing of the namespace."""
    if not namespace:
        return strategy

    def inside(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
        share = strategy([unwrap_queue(namespace, queue) for queue in queues], members, me)
        return [wrap_queue(namespace, queue) for queue in share]

    return inside


def is_system(name: str) -> bool:
    """Topics and groups that a cluster has for itself, one for all namespaces.

    Reply topics count here, as each cluster has one for all of its clients. RocketMQ's clients put the namespace
    before them too, which makes a topic that is no reply topic.
    """
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIXES) or name.endswith(REPLY_SUFFIX)


def _parts(name: str) -> tuple[str, str]:
    """Retry or dead-letter prefix, and the rest."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
