"""Pulls of topic ``orders`` by one consumer, without network."""

from typing import Any

import numpy as np
from broker_parts import Parts
from dejamq_broker.paths.rules import PullQuery
from dejamq_broker.tables.offsets import Asker, Position
from dejamq_proto.records.record import decode
from dejamq_proto.wire.messages import PullAnswer

ME = Asker("me", "boot", 1)
AT = Position("g", "orders", 0)


def pull(queue_offset: int = 0, **more: Any) -> PullQuery:
    asked: dict[str, Any] = {"asker": ME, "group": "g", "topic": "orders", "queue_id": 0, "queue_offset": queue_offset}
    return PullQuery(**(asked | more))


def asked(parts: Parts, request: PullQuery, *, first: bool = True, last: bool = False) -> PullAnswer | None:
    parts.settle()
    parts.puller.begin(request, 0, None)
    return parts.puller.look(request, first=first, last=last)


def answered(parts: Parts, request: PullQuery) -> PullAnswer:
    answer = asked(parts, request)
    assert answer is not None
    return answer


def bodies(answer: PullAnswer) -> list[bytes]:
    data, at, found = b"".join(answer.records), 0, []
    for size in np.array(answer.sizes).tolist():
        found.append(decode(data, at).body)
        at += size
    return found
