"""The tags codes that a run announces beside its records: consumers find messages by them, so they may not lie."""

import numpy as np
from dejamq_proto.names import PROPERTY_TAGS
from dejamq_proto.record import tags_code
from dejamq_proto.run import Ints, Run, demand, properties_of

from dejamq_broker.store.texts import tags_codes


def check_tags(parsed: Run, announced: "np.typing.NDArray[np.int32]") -> None:
    """Raises BadRun for the first record whose code is not that of its TAGS; no codes at all say that none has tags.

    A queue that is built again from the log takes the codes from the records, as RocketMQ does: an entry that says
    something else would be a message that a subscription finds today and not tomorrow.
    """
    found = _of_one(parsed) if len(parsed) == 1 else tags_codes(parsed)
    said = announced if len(announced) else 0
    demand(found == said, "its tags code is not that of its TAGS")


def _of_one(parsed: Run) -> Ints:
    """A record alone, without the columns that many need."""
    start = int(parsed.properties_at[0])
    raw = parsed.data[start : start + int(parsed.properties_size[0])].tobytes()
    if PROPERTY_TAGS.encode() not in raw:
        return np.zeros(1, np.int64)
    return np.array([tags_code(properties_of(parsed, 0).get(PROPERTY_TAGS))], np.int64)
