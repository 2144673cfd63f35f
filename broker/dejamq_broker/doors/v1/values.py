"""Values that several services read from their requests."""

from dejamq_proto import common_pb2
from dejamq_proto.codes import InvalidName
from dejamq_proto.common_pb2 import Caller, QueueKey
from dejamq_proto.names import check_group, check_topic

from dejamq_broker.members.locks import QueueAt
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.topics import TopicConfig

MAX_QUEUE_ID = 65_535


def asker_of(caller: Caller) -> Asker:
    """The caller, and the request that it sent."""
    return Asker(caller.client_id, caller.boot_id, caller.seq)


def queue_at(key: QueueKey) -> QueueAt:
    """The queue of this broker that is meant.

    Raises InvalidName for a text that no name can be: tables keep the names that are asked for.
    """
    check_topic(key.topic)
    if not 0 <= key.queue_id <= MAX_QUEUE_ID:
        raise InvalidName(f"{key.queue_id} is no queue id; they are 0 to {MAX_QUEUE_ID}")
    return QueueAt(key.topic, key.queue_id)


def group_of(name: str) -> str:
    """The group that is meant. Raises InvalidName for a text that no name can be."""
    check_group(name)
    return name


def topic_from_proto(topic: common_pb2.TopicConfig) -> TopicConfig:
    """Not checked; the table does that."""
    return TopicConfig(
        topic.topic, topic.read_queue_nums, topic.write_queue_nums, topic.perm,
        topic_sys_flag=topic.topic_sys_flag, order=topic.order,
    )  # fmt: skip


def topic_to_proto(config: TopicConfig, *, perm_mask: int = 7) -> common_pb2.TopicConfig:
    """``perm_mask`` takes permissions away that the broker as a whole does not give."""
    return common_pb2.TopicConfig(
        topic=config.topic_name, read_queue_nums=config.read_queue_nums, write_queue_nums=config.write_queue_nums,
        perm=config.perm & perm_mask, topic_sys_flag=config.topic_sys_flag, order=config.order,
    )  # fmt: skip
