"""Runs that leave the choice of the queue to the broker: queue id -1, as clients of other languages may send them."""

import random
from collections.abc import Callable

import msgspec
import numpy as np
from dejamq_proto.record import BadRecord, decode, encode
from dejamq_proto.run import BadRun, parse
from dejamq_proto.wire import SendRun, Words

from dejamq_broker.topics import TopicConfig


def placed(run: SendRun, topic_for: Callable[[str], TopicConfig]) -> tuple[SendRun, Words]:
    """The same run to queues that exist, one random queue for each topic, and the queue id of each record.

    Raises BadRun for what is no run of records, and what ``topic_for`` raises. Each record is encoded again, as only
    the record's codec knows where its queue id is; whoever wants to be fast chooses the queue.

    RocketMQ: SendMessageProcessor (randomQueueId).
    """
    queues = [
        (topic, queue_id if queue_id >= 0 else random.randrange(topic_for(topic).write_queue_nums))
        for topic, queue_id in run.queues
    ]
    index = run.queue_index.tolist() if len(run.queues) > 1 else [0] * len(run.sizes)
    queue_ids = [queues[number][1] for number in index]
    data, parsed = run.records[0], parse(run.records[0], run.sizes)
    records = []
    for number, queue_id in enumerate(queue_ids):
        try:
            record = decode(data, int(parsed.positions[number]), check_crc=False)
        except BadRecord as error:
            raise BadRun(number, str(error)) from None
        records.append(encode(msgspec.structs.replace(record, queue_id=queue_id)))
    changed = msgspec.structs.replace(run, queues=queues, records=(b"".join(records),))
    return changed, np.array(queue_ids, "<u4")
