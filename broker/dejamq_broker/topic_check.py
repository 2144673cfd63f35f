"""The topics that a run announces for its records, against those that the records say."""

from collections.abc import Sequence

import numpy as np
from dejamq_proto.run import BadRun, Run, check_topic, every
from dejamq_proto.wire import Words


def check_topics(run: Run, topics: Sequence[str], index: Words) -> None:
    """Demand that record i is of topic ``topics[index[i]]``. Raises BadRun for the first that is not.

    Of all records at once: a run over hundreds of topics has a few of each, and numpy's price is one a call. With 200
    topics, one look at each was 39 % of what a run cost the broker.
    """
    if len(set(topics)) == 1:
        check_topic(run, topics[0].encode())
        return
    names = [topic.encode() for topic in topics]
    width = max(map(len, names))
    columns = np.arange(width)
    wanted = np.array(names, f"S{width}").view(np.uint8).reshape(len(names), width)[index]
    lengths = np.array([len(name) for name in names])[index]
    text = run.data[np.minimum(run.topic_at[:, None] + columns, len(run.data) - 1)]
    text[columns >= lengths[:, None]] = 0  # as the names are filled up
    same = (run.topic_size == lengths) & (text == wanted).all(axis=1)
    if not every(same):
        first = int(np.argmin(same))
        raise BadRun(first, f"its topic is not {topics[int(index[first])]!r}")
