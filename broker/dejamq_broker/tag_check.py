"""The tags codes that a run announces beside its records: consumers find messages by them, so they may not lie."""

import numpy as np
from dejamq_proto.names import PROPERTY_TAGS
from dejamq_proto.record import decode_properties, tags_code
from dejamq_proto.run import Ints, Run, demand, raw_properties

from dejamq_broker.store.texts import tags_codes

_NAME = PROPERTY_TAGS.encode()


def check_tags(parsed: Run, announced: "np.typing.NDArray[np.int32]") -> None:
    """Raises BadRun for the first record whose code is not that of its TAGS; no codes at all say that none has tags.

    A queue that is built again from the log takes the codes from the records, as RocketMQ does: an entry that says
    something else would be a message that a subscription finds today and not tomorrow.
    """
    said = announced if len(announced) else 0
    demand(_found(parsed) == said, "its tags code is not that of its TAGS")


def _found(parsed: Run) -> Ints:
    """One alone, a reply or what a client gives back, does without the columns that many need: a tenth of the price."""
    if len(parsed) == 1:
        return np.array([tags_code_in(raw_properties(parsed, 0))], np.int64)
    return tags_codes(parsed)


def tags_code_in(properties: bytes) -> int:
    """Of one record, by its properties as they travel."""
    if _NAME not in properties:
        return 0
    return tags_code(decode_properties(properties).get(PROPERTY_TAGS))
