"""A run over many topics says of each record what the record says itself."""

import numpy as np
import pytest
from dejamq_broker.writing.record_checks import check_topics
from dejamq_proto.records.record import Record, encode
from dejamq_proto.records.run import BadRun, Run, parse


def run_of(*topics: str) -> Run:
    records = [encode(Record(topic=topic, queue_id=0, body=b"x")) for topic in topics]
    return parse(b"".join(records), np.array([len(record) for record in records]))


def index_of(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.array(numbers, np.uint32)


TOPICS = ["a", "orders", "orders-2", "a"]


def test_records_of_several_topics_may_be_announced_in_any_order() -> None:
    check_topics(run_of("orders-2", "a", "orders", "a"), TOPICS, index_of(2, 0, 1, 3))


@pytest.mark.parametrize("said", ["orders-2", "order", "orders-", "Orders", "o"])
def test_the_first_record_of_another_topic_is_named(said: str) -> None:
    with pytest.raises(BadRun, match="'orders'") as caught:
        check_topics(run_of("a", said, said), TOPICS, index_of(0, 1, 1))
    assert caught.value.index == 1


def test_one_topic_with_many_queues_is_one_topic() -> None:
    check_topics(run_of("a", "a"), ["a", "a"], index_of(0, 1))
    with pytest.raises(BadRun) as caught:
        check_topics(run_of("a", "b"), ["a", "a"], index_of(0, 1))
    assert caught.value.index == 1
