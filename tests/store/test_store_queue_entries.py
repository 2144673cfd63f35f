"""How the queues take entries of a batch: those of many queues as those of few, wherever a queue stands."""

from pathlib import Path

import numpy as np
import pytest
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.batch import NOT_QUEUED, Batch, Ints, QueueTable, grouped
from dejamq_broker.store.queues.consume_queues import ConsumeQueues
from hypothesis import given, settings
from hypothesis import strategies as st

COUNTS = st.lists(st.integers(NOT_QUEUED, 30), min_size=1, max_size=80)
"""The queue of each record."""


def queues_in(folder: Path) -> tuple[ConsumeQueues, QueueTable]:
    table = QueueTable()
    for number in range(31):
        table.number_of((f"T{number}", 0))
    return ConsumeQueues(StorePaths(folder), 6000, table), table


def batch_of(queue_numbers: list[int], queue_offsets: Ints, begin: int) -> Batch:
    sizes = np.arange(len(queue_numbers)) + 100
    ends = begin + np.cumsum(sizes)
    return Batch(ends - sizes, sizes, sizes * 7, queue_offsets, grouped(np.array(queue_numbers)), int(ends[-1]), 1)


def entries_of(queues: ConsumeQueues) -> dict[object, list[object]]:
    return {
        key: [(queue.min_offset, queue.max_offset, queue.max_log_offset), queue.entries(queue.min_offset, 500).tolist()]
        for key, queue in queues.items()
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(COUNTS, min_size=1, max_size=4), st.sets(st.integers(0, 79), max_size=3))
def test_a_batch_gives_each_queue_what_its_records_alone_would(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[int]], again: set[int]
) -> None:
    """Records of ``again`` come with a queue offset that leaves a gap, as a damaged header could say."""
    together, table = queues_in(tmp_path_factory.mktemp("queues"))
    alone, _ = queues_in(tmp_path_factory.mktemp("queues"))
    begin = 0
    for numbers in runs:
        groups = grouped(np.array(numbers))
        queue_offsets = table.peek(groups, len(numbers))
        table.advance(groups)
        queue_offsets[[place for place in again if place < len(numbers)]] += 2
        batch = batch_of(numbers, queue_offsets, begin)
        together.dispatch(batch)
        for place, number in enumerate(numbers):
            one = slice(place, place + 1)
            alone.dispatch(Batch(
                batch.log_offsets[one], batch.sizes[one], batch.tags_codes[one], queue_offsets[one],
                grouped(np.array([number])), batch.end_log_offset, 1,
            ))  # fmt: skip
        begin = batch.end_log_offset
    assert entries_of(together) == entries_of(alone)
