"""Checks of a run's records before any of them is stored: a run is stored as a whole or refused."""

from collections.abc import Sequence

import msgspec
import numpy as np
from dejamq_proto.names import PROPERTY_TAGS
from dejamq_proto.native import announced
from dejamq_proto.records.record import SYS_TRANSACTION_MASK, decode_properties, tags_code
from dejamq_proto.records.run import BadRun, Ints, Run, check_crcs, check_topic, demand, every, raw_properties
from dejamq_proto.records.small_runs import FEW, SmallRecord, pieces
from dejamq_proto.wire.messages import SendRun, Words

from dejamq_broker.store.log.record_texts import tags_codes

# The topics that a run announces for its records, against those that the records say.


def check_topics(run: Run, topics: Sequence[str], index: Words) -> None:
    """Demand that record i is of topic ``topics[index[i]]``. Raises BadRun for the first that is not.

    Of all records at once: a run over hundreds of topics has a few of each, and numpy's price is one a call. With 200
    topics, one look at each was 39 % of a run's cost for the broker.
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


# The tags codes that a run announces beside its records: consumers find messages by them, so they may not lie.

_NAME = PROPERTY_TAGS.encode()


def check_tags(parsed: Run, announced: "np.typing.NDArray[np.int32]") -> None:
    """Raises BadRun for the first record whose code does not belong to its TAGS; no codes at all say that no record has
    tags.

    A queue that is built again from the log takes the codes from the records, as RocketMQ does. With another code in
    its entry, a subscription would find the message today and not tomorrow.
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


class Few(msgspec.Struct, frozen=True, gc=False):
    """The records of a run of a few, and of each the number of its queue in the run and its tags code."""

    pieces: list[SmallRecord]
    key_index: list[int]
    tags_codes: list[int]


def few_of(run: SendRun, max_body: int) -> Few | None:
    """The run in plain numbers, if it is a few records that ``check_records`` has nothing against. Else None: it says
    what it has.
    """
    count = len(run.sizes)
    found = pieces(run.records[0], run.sizes.tolist()) if count <= FEW else None
    if found is None:
        return None
    few = Few(found, run.queue_index.tolist() or [0] * count, run.tags_codes.tolist() or [0] * count)
    topics = [topic.encode() for topic, _ in run.queues]
    for piece, number, code in zip(found, few.key_index, few.tags_codes, strict=True):
        fits = 0 < piece.body_size <= max_body and not piece.sys_flag & SYS_TRANSACTION_MASK
        there = piece.queue_id == run.queues[number][1] and piece.topic == topics[number]
        if not (fits and there and code == tags_code_in(piece.properties)):
            return None
    return few


def check_records(parsed: Run, run: SendRun, max_body: int) -> None:
    """Everything that recovery would reject, and records that the broker may not take. Raises BadRun for the first at
    fault.

    RocketMQ computes CRCs itself and ignores the client's; here a damaged body is refused before it is stored.
    A record that announces another queue than the run does would make consumers of that queue read it from the
    wrong place.
    """
    if announced(
        parsed.positions, parsed.topic_at, parsed.topic_size, parsed.properties_at, parsed.properties_size,
        run.queue_index, run.tags_codes, parsed.data, run.queues, max_body,
    ):  # fmt: skip
        check_crcs(parsed)
        return
    headers = parsed.headers
    demand(headers["body_size"] > 0, "its body is empty; a message needs at least one byte")
    demand(headers["body_size"] <= max_body, f"its body is larger than {max_body} bytes")
    demand(headers["sys_flag"] & SYS_TRANSACTION_MASK == 0, "its sys flag is a transaction's; TRAN_MSG begins one")
    check_crcs(parsed)
    check_tags(parsed, run.tags_codes)
    wanted = np.array([queue_id for _, queue_id in run.queues])
    if len(run.queues) > 1:
        wanted = wanted[run.queue_index]
    demand(headers["queue_id"] == wanted, "its queue id is not the one announced")
    check_topics(parsed, [topic for topic, _ in run.queues], run.queue_index)
