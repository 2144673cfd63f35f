"""Files that a RocketMQ may have left and that this store does not read: found before anything is changed, and refused.

Passing over it would show queues without their messages, or filter by numbers that mean something else.
Source: RocketMQ ``ConsumeQueueExt``, ``BatchConsumeQueue``, ``QueueTypeUtils``.
"""

from pathlib import Path

import numpy as np
from dejamq_proto.loose_json import loads_loose

from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.batch import Ints

LARGEST_EXT_ADDRESS = -(1 << 31) - 1
"""A tags code of a queue entry up to here is an address in ``consumequeue_ext`` (``ConsumeQueueExt.MAX_ADDR``)."""

_QUEUE_TYPE, _BATCH = "queue.type", "BatchCQ"


def refuse_unsupported(paths: StorePaths) -> None:
    """Raises StoreError that names the files and the way out. Changes nothing."""
    ext = _first_file(paths.consume_queues_ext)
    if ext:
        raise StoreError(
            f"{ext}: extended consume queues are not supported; set enableConsumeQueueExt=false in the RocketMQ that "
            "wrote this store, then move consumequeue_ext and consumequeue away: queues are made again from the log"
        )
    batch = _first_file(paths.batch_consume_queues)
    if batch:
        raise StoreError(
            f"{batch}: batch consume queues are not supported; let a RocketMQ serve this store until their topics are "
            "consumed, then delete those topics there"
        )
    topic = _batch_topic(paths.topics)
    if topic:
        raise StoreError(
            f"{paths.topics}: topic {topic} has queue.type=BatchCQ, which is not supported; let a RocketMQ serve this "
            "store until the topic is consumed, then delete it there"
        )


def has_ext_addresses(folder: Path, tags_codes: Ints) -> bool:
    """Whether one of a queue's tags codes is an address in an extended queue. Raises StoreError when most of them are.

    A single one is no address but garbage.
    """
    count = int(np.count_nonzero(tags_codes <= LARGEST_EXT_ADDRESS))
    if 2 * count > len(tags_codes):
        raise StoreError(
            f"{folder}: its entries point into an extended consume queue, which is not supported; move this folder "
            "away: the queue is made again from the log"
        )
    return count > 0


def _first_file(folder: Path) -> Path | None:
    return next((path for path in sorted(folder.rglob("*")) if path.is_file()), None) if folder.is_dir() else None


def _batch_topic(topics: Path) -> str | None:
    """A topic whose queues are batch queues. A file that cannot be read is its owner's to complain about."""
    try:
        content = loads_loose(topics.read_text(encoding="utf-8"))
        table = content["topicConfigTable"].items()
        return next((name for name, topic in table if _is_batch(topic)), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_batch(topic: object) -> bool:
    attributes = topic.get("attributes") if isinstance(topic, dict) else None
    return isinstance(attributes, dict) and attributes.get(_QUEUE_TYPE) == _BATCH
