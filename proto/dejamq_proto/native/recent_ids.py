"""Ids of the messages that were stored last, and where these are: what ``_native_ids.c`` does in C."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np


class RecentIds:
    """At most so many ids, as hashes (64 bits). Those that were added first go first."""

    def __init__(self, most: int) -> None:
        if not 0 < most <= 1 << 30:
            raise ValueError("it keeps 1 to 2 ** 30 ids, and is made once")
        self._most, self.pushed_out = most, 0
        self._order: deque[tuple[int, int, int]] = deque()
        """Hash, log offset and store time (ms), the oldest first."""
        self._places: dict[int, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._order)

    @property
    def first(self) -> int:
        """Where the oldest message is stored, or -1."""
        return self._order[0][1] if self._order else -1

    def add(self, hashes: Any, log_offsets: Any, stored_ms: int) -> None:
        """Messages with these ids (uint64; 0: none) are stored there (int64). Raises ValueError."""
        offsets = np.frombuffer(log_offsets, "<i8").tolist()
        for one, log_offset in zip(_numbers(hashes), offsets, strict=True):
            if one:
                if len(self._order) == self._most:
                    self._drop_oldest()
                    self.pushed_out += 1
                entry = (one, log_offset, stored_ms)
                self._order.append(entry)
                self._places[one] = entry

    def fresh(self, hashes: Any) -> bool:
        """Whether none of these is known, and no two are equal; 0 is no hash."""
        wanted = [one for one in _numbers(hashes) if one]
        return len(set(wanted)) == len(wanted) and self._places.keys().isdisjoint(wanted)

    def find(self, hash: int) -> int:
        """Where the message with this id is stored, or -1."""
        found = self._places.get(hash)
        return -1 if found is None else found[1]

    def expire(self, before_ms: int) -> None:
        """Forget what was stored before this time."""
        while self._order and self._order[0][2] < before_ms:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._order.popleft()
        if self._places[oldest[0]] is oldest:
            del self._places[oldest[0]]


def _numbers(hashes: Any) -> Iterable[int]:
    numbers: list[int] = np.frombuffer(hashes, "<u8").tolist()
    return numbers
