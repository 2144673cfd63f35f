"""Message ids made by the client, in RocketMQ's layout: unique without asking anybody.

===== ============================================================
bytes 16 in all, written as 32 upper-case hex digits
===== ============================================================
4     this machine's IPv4 address
2     low half of the process id
4     id of this start of the process (random here, a class loader's hash in Java)
4     milliseconds since the start of the month
2     counter
===== ============================================================

Source: RocketMQ ``MessageClientIDSetter``. Where RocketMQ could repeat (the next month, a clock set back, 65,536 ids in
one millisecond, a fork, a thread that stands still meanwhile) a new start id or a later millisecond is taken instead.
"""

import os
import socket
import threading
from collections.abc import Callable
from datetime import datetime
from itertools import count
from time import time

from dejamq.native import COMPILED, IdSource

_HEX = tuple(f"{byte:02X}" for byte in range(256))
Moment = tuple[float, float, int, int, str]
"""From when to when (s since 1970), and from which number to which, ids begin with these 28 digits."""
_IDS_PER_MS = 65_536


class UniqueIds:
    """A source of ids; ``take`` may be called from any thread."""

    def __init__(self, ip: str, *, clock: Callable[[], float] = time) -> None:
        self._clock, self._ip = clock, socket.inet_aton(ip)
        self._numbers = count()
        self.forget()

    def forget(self, pid: int | None = None) -> None:
        """Begin anew as another process: after ``fork`` no id of the parent comes again."""
        self._lock, self._inside = threading.RLock(), False  # of a thread that the child may not have
        self._host = (self._ip + ((os.getpid() if pid is None else pid) & 0xFFFF).to_bytes(2, "big")).hex()
        self._used_ms = -1
        self._start, self._month_began_ms, self._month_ends_ms = "", 0, 0
        self._moment: Moment = (0.0, 0.0, 0, -1, "")

    def take(self) -> str:
        """A new id, 32 hex digits.

        Without a lock: the counter is one step of the interpreter, and a thread whose number is none of the
        millisecond's moves on to the next one. Its number may be too low, when it stood still since it took it.
        """
        number = next(self._numbers)
        begins, ends, first, last, prefix = self._moment  # replaced as a whole: threads see a consistent one
        if not (begins <= self._clock() < ends and first <= number <= last):
            prefix = self.advance(number)[-1]
        return prefix + _HEX[number >> 8 & 255] + _HEX[number & 255]

    def advance(self, number: int) -> Moment:
        """The next millisecond: the clock's, or one after the last where that is used up or the clock went back.

        ``number`` is that of the id it is needed for. No two moments have the same digits and overlapping numbers.
        """
        clock_ms = int(self._clock() * 1000)
        with self._lock:
            if self._inside:  # a signal's handler, or a finalizer, has interrupted this thread right here
                return (0.0, 0.0, number, number, self._new_start() + "0" * 8)
            self._inside = True
            try:
                return self._advance(number, clock_ms)
            finally:
                self._inside = False

    def _advance(self, number: int, clock_ms: int) -> Moment:
        first, last = self._moment[2:4]
        if clock_ms > self._used_ms or not first <= number <= last:
            self._used_ms = max(clock_ms, self._used_ms + 1)
            first, last = number, number + _IDS_PER_MS - 1
            if self._used_ms >= self._month_ends_ms:
                self._begin_month(self._used_ms)
        prefix = f"{self._start}{self._used_ms - self._month_began_ms:08X}"
        self._moment = (clock_ms / 1000, (clock_ms + 1) / 1000, first, last, prefix)
        return self._moment

    def _new_start(self) -> str:
        return (self._host + os.urandom(4).hex()).upper()

    def _begin_month(self, now_ms: int) -> None:
        """Count from this month's beginning, under a new start id: the same millisecond of another month differs."""
        began = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        ends = began.replace(year=began.year + began.month // 12, month=began.month % 12 + 1)
        self._month_began_ms, self._month_ends_ms = int(began.timestamp() * 1000), int(ends.timestamp() * 1000)
        self._start = self._new_start()


def local_ip() -> str:
    """The IPv4 address this machine uses towards others, 127.0.0.1 without a network. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET: choosing a source address needs no answer
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


_ids = UniqueIds(local_ip())
os.register_at_fork(after_in_child=_ids.forget)
next_unique_id = _ids.take
"""A new UNIQ_KEY of this process."""
if COMPILED:
    _source = IdSource(_ids.advance)
    os.register_at_fork(after_in_child=_source.forget)
    next_unique_id = _source.take
