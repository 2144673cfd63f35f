"""What a queue takes in memory to which nothing was added since the start; a store has tens of thousands of them."""

import numpy as np
from dejamq_broker.store.log.batch import Single
from dejamq_broker.store.queues.entry_tail import EntryTail


def test_empty_tails_share_one_array_that_nothing_is_written_to() -> None:
    one, other = EntryTail(5), EntryTail(7)
    assert one.entries is other.entries
    assert not one.put_one(Single(0, 50, 1, 5, 0, 50, 1))
    larger = one.larger(5, 5, 6)
    assert larger.entries is not one.entries
    assert np.shares_memory(larger.between(5, 6), larger.entries)
