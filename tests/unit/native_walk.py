"""A program that calls each compiled function while every collection of garbage walks over all young objects."""

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import dejamq.native._native as client
import dejamq_proto.native._native as proto
import numpy as np
from dejamq import Message
from dejamq.sending.backlog import Backlog
from dejamq.sending.encoding import template
from dejamq.values.message import _check_types

CALLS = 60
COUNT = 50
MESSAGES = [Message("orders", b"x") for _ in range(COUNT)]
ONES = np.ones(1, "<i8")


def shortcut() -> Callable[[], object]:
    loop, backlog = asyncio.new_event_loop(), Backlog(1 << 20, 400)
    columns: list[list[Any]] = [[], [], [], []]
    made = client.Shortcut(Message, backlog, asyncio.Future, {"loop": loop}, 1 << 20, 400, 4096)
    common = template("orders", 0, None)
    made.open("sync", columns[0], columns[1], columns[2], columns[3], lambda: None)
    made.learn(MESSAGES[0], common, common.size)
    return lambda: made.take(MESSAGES[1], "sync")


def order() -> object:
    return client.Permutation(MESSAGES).deal([list(MESSAGES)], [20, COUNT])


def id_source() -> object:
    return client.IdSource(lambda number: (0.0, time.time() + 1, number, number + 10, "0" * 28)).take()


class Batch(client.Layout):
    pass


class Received:
    __slots__ = ("_batch", "_index")

    body, id = client.BodyProperty(lambda one: b""), client.IdProperty(lambda one: "")

    def __init__(self) -> None:
        self._batch, self._index = Batch(), 0
        self._batch.lay(b"body", *(np.array([at], "<i8") for at in (0, 4, 0)))


def joined() -> object:
    alike, queue_ids = [(bytes(88), b"", b"", COUNT)], np.zeros(COUNT, "<i4")
    return proto.join(alike, [b"x"] * COUNT, ["0" * 32] * COUNT, lambda body: 1, queue_ids, 0)


def recent_ids() -> object:
    ids = proto.RecentIds(COUNT)
    ids.add(np.arange(1, COUNT + 2, dtype="<u8"), np.arange(COUNT + 1, dtype="<i8"), 0)
    ids.expire(1)
    return ids.fresh(ONES), ids.find(1), ids.first


RECEIVED = Received()
RUN: dict[str, Callable[[], object]] = {
    "dejamq.native._native.stretches": lambda: client.stretches(MESSAGES * 2),
    "dejamq.native._native.Permutation": order,
    "dejamq.native._native.IdSource": id_source,
    "dejamq.native._native.MessageCheck": lambda: client.MessageCheck(_check_types, {})(MESSAGES[0]),
    "dejamq.native._native.Shortcut": shortcut(),
    "dejamq.native._native.Tally": client.Tally,
    "dejamq.native._native.Layout": Received,
    "dejamq.native._native.BodyProperty": lambda: RECEIVED.body,
    "dejamq.native._native.IdProperty": lambda: RECEIVED.id,
    "dejamq_proto.native._native.scan": lambda: proto.scan(bytes(91), ONES * 91),
    "dejamq_proto.native._native.join": joined,
    "dejamq_proto.native._native.id_hashes": lambda: proto.id_hashes(bytes(91), ONES * 91, 7),
    "dejamq_proto.native._native.RecentIds": recent_ids,
    "dejamq_proto.native._native.crcs_fit": lambda: proto.crcs_fit(bytes(91), ONES * 0, lambda body: 0),
    "dejamq_proto.native._native.counted": lambda: proto.counted(0, COUNT),
    "dejamq_proto.native._native.numbers": lambda: proto.numbers(ONES, 0, 1),
    "dejamq_proto.native._native.keys": lambda: proto.keys(bytes(91), ONES * 0, 0, 1),
    "dejamq_proto.native._native.announced": lambda: proto.announced(
        ONES * 0, ONES * 0, ONES * 0, ONES * 0, ONES * 0, b"", b"", bytes(91), [("orders", 0)], 10
    ),
}


def look(phase: str, info: dict[str, int]) -> None:
    """Before garbage goes: what is just being made is among the youngest objects."""
    for one in gc.get_objects(generation=0) if phase == "start" else ():
        if type(one) in (list, tuple):
            for _ in one:
                pass


def main() -> None:
    gc.callbacks.append(look)
    for name, call in RUN.items():
        kept = []
        gc.collect()
        for at in range(CALLS):
            gc.set_threshold(1 + at % 7)  # a collection at each allocation of a call in its turn
            kept.append(call())
        gc.set_threshold(0)
        print(name, flush=True)


if __name__ == "__main__":
    main()
    sys.exit(0)
