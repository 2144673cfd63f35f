"""Receipt handles: texts that name one delivery of one message. Pure. Source: RocketMQ ``ExtraInfoUtil``.

Nine fields with one space between them: start offset, pop time, invisible time, number of the revive queue, kind of
topic, broker name, queue id, queue offset, log offset. RocketMQ's clients make them themselves, without the last one.
"""

from collections.abc import Iterable, Iterator

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError

NORMAL, RETRY_V1, RETRY_V2 = KINDS = 0, 1, 2
ORDER_QUEUE = 999
"""In place of the revive queue's number, where messages are popped in order."""
FIELDS = 9
MOST_CHARACTERS = 512


class Handle(msgspec.Struct, frozen=True):
    """``invisible_ms`` counts from ``pop_time``, which is ms since 1970."""

    start_offset: int
    pop_time: int
    invisible_ms: int
    revive_queue_id: int
    kind: int
    broker_name: str
    queue_id: int
    queue_offset: int
    log_offset: int = -1

    def __str__(self) -> str:
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_ms} {self.revive_queue_id} {self.kind} "
            f"{self.broker_name} {self.queue_id} {self.queue_offset} {self.log_offset}"
        )

    @classmethod
    def read(cls, text: str) -> "Handle":
        """Raises MESSAGE_ILLEGAL for a text that is no handle."""
        fields = text.split(" ", FIELDS) if len(text) <= MOST_CHARACTERS else []
        try:
            start, popped, invisible, revive, kind = map(int, fields[:5])
            queue, offset, *log = map(int, fields[6:FIELDS])
        except ValueError:
            raise DejamqError(f"{text!r:.60} is no receipt handle", code=Code.MESSAGE_ILLEGAL) from None
        if kind not in KINDS:
            raise DejamqError(f"a receipt handle names no topic of the kind {kind}", code=Code.MESSAGE_ILLEGAL)
        return cls(start, popped, invisible, revive, kind, fields[5], queue, offset, log[0] if log else -1)


def read_all(texts: Iterable[str]) -> Iterator[Handle | DejamqError]:
    """As ``Handle.read``, an error in place of a raise. Handles of one delivery differ in their last two fields."""
    known: dict[str, Handle] = {}
    for text in texts:
        head, *ends = text.rsplit(" ", 2)
        one = known.get(head)
        try:
            if one is None or len(text) > MOST_CHARACTERS:
                one = Handle.read(text)
                if text.count(" ") == FIELDS - 1:
                    known[head] = one
                yield one
                continue
            offset, log = map(int, ends)
        except DejamqError as error:
            yield error
        except ValueError:
            yield DejamqError(f"{text!r:.60} is no receipt handle", code=Code.MESSAGE_ILLEGAL)
        else:
            yield Handle(
                one.start_offset, one.pop_time, one.invisible_ms, one.revive_queue_id, one.kind, one.broker_name,
                one.queue_id, offset, log,
            )  # fmt: skip


def physical_topic(group: str, topic: str, kind: int) -> str:
    """The topic in whose queue a popped message lies: the one that was asked for, or a retry topic of it."""
    return topic if kind == NORMAL else names.pop_retry_topic(group, topic, v2=kind == RETRY_V2)
