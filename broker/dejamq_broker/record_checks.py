"""What the records of a run have to be before any of them is stored: a run is stored as a whole or refused."""

import msgspec
import numpy as np
from dejamq_proto.few import FEW, Piece, pieces
from dejamq_proto.native import announced
from dejamq_proto.record import SYS_TRANSACTION_MASK
from dejamq_proto.run import Run, check_crcs, demand
from dejamq_proto.wire import SendRun

from dejamq_broker.tag_check import check_tags, tags_code_in
from dejamq_broker.topic_check import check_topics


class Few(msgspec.Struct, frozen=True, gc=False):
    """The records of a run of a few, and of each the number of its queue in the run and its tags code."""

    pieces: list[Piece]
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
    """Everything that recovery would reject, and what the broker may not take. Raises BadRun for the first at fault.

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
