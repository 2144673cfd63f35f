"""Whether delayed messages came when they should and as often as they should: judged from the store and the journals.

A message that waits and what is delivered of it share the unique key and the number of tries. Which copy is a repeat,
and whether a broker that forgot its progress may have made it, is told by where the starts of brokers lie in the log.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
Line = dict[str, Any]
Key = tuple[str, int]


class Judged(msgspec.Struct):
    """``lost`` waited and was never delivered; ``early`` came before its time; ``repeated`` came more often than it was
    stored; ``outside`` is what of that no crash explains.
    """

    waited: int = 0
    lost: list[Key] = []
    early: list[Key] = []
    repeated: list[Key] = []
    outside: list[Key] = []

    def check(self) -> None:
        """Raises AssertionError with the first that is wrong."""
        assert not self.lost, f"never delivered: {self.lost[:3]}"
        assert not self.early, f"delivered before its time: {self.early[:3]}"
        assert not self.outside, f"delivered again without a crash: {self.outside[:3]}"


def judge(records: Iterable[Line], lines: Iterable[Line], levels_ms: tuple[int, ...]) -> Judged:
    """``records`` as a dump of the log tells them, ``lines`` of one broker's journals in their order."""
    waiting: dict[Key, list[Line]] = defaultdict(list)
    copies: dict[Key, list[Line]] = defaultdict(list)
    for record in records:
        properties = record.get("properties", {})
        key = properties.get("UNIQ_KEY", ""), record.get("reconsume_times", 0)
        if record.get("topic") == SCHEDULE:
            waiting[key].append(record)
        elif "REAL_TOPIC" in properties:
            copies[key].append(record)
    crashes = Crashes(lines)
    judged = Judged(waited=sum(map(len, waiting.values())))
    for key, stored in waiting.items():
        due_ms = min(one["store_timestamp"] + levels_ms[one["queue_id"]] for one in stored)
        found = copies.get(key, [])
        if not found:
            judged.lost.append(key)
        if any(copy["store_timestamp"] < due_ms for copy in found):
            judged.early.append(key)
        if len(found) > len(stored):
            judged.repeated.append(key)
            repeats = [crashes.explain(one, found) for one in stored]
            if sum(repeats) < len(found) - len(stored):
                judged.outside.append(key)
    return judged


class Crashes:
    """Where in the log brokers started after a crash, and what progress each start wrote."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._starts: list[tuple[int, bool]] = []
        self._progress: list[list[dict[str, int]]] = []
        for line in lines:
            if line["event"] == "BOOT":
                self._starts.append((line.get("log_max", 0), not line["clean"]))
                self._progress.append([])
            elif line["event"] == "PROGRESS_FLUSH":
                self._progress[-1].append(msgspec.json.decode(line["progress"]))

    def explain(self, waiting: Line, copies: list[Line]) -> int:
        """How many of the copies may be repeats of one delivery: each by a start after a crash, while the start before
        it had not written progress past the place, except in its last write, which a kill may have cut short.
        """
        starts = [self._start_of(place) for place in sorted(copy["log_offset"] for copy in copies)]
        return sum(self._forgot(waiting, start, later) for start, later in pairwise(starts))

    def _start_of(self, log_offset: int) -> int:
        """The number of the start that stored what lies there."""
        return max(number for number, (log_max, _) in enumerate(self._starts) if log_max <= log_offset)

    def _forgot(self, waiting: Line, start: int, later: int) -> bool:
        crashed = any(crash for _, crash in self._starts[start + 1 : later + 1])
        level = str(waiting["queue_id"] + 1)
        past = [one for one in self._progress[start][:-1] if one.get(level, 0) > waiting["queue_offset"]]
        return crashed and not past
