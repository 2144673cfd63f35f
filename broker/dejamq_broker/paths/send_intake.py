"""The door of one send stream: which of its runs are taken in, and which are refused because they waited too long."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from dejamq_proto.codes import DejamqError
from dejamq_proto.wire.messages import SendRun, SendRunResult

from dejamq_broker.writing.fast_failure import Arrivals, FastFailure

log = logging.getLogger(__name__)
PENDING_ANSWERS = 4
"""Runs of one stream that may be stored and unanswered: a client faster than disk and slaves waits."""
PENDING_REFUSALS = 64
"""Answers to refused runs that may wait for those before them: a client that reads no answers is not read from
either.
"""


class StreamIntake:
    """Belongs to one stream, whose answers leave in the order of its runs."""

    def __init__(self, fast: FastFailure) -> None:
        self._fast = fast
        self._arrivals = Arrivals()
        self._room, self._refusals = asyncio.Semaphore(PENDING_ANSWERS), asyncio.Semaphore(PENDING_REFUSALS)
        self._taken: deque[bool] = deque()

    async def enter(self, size: int) -> DejamqError | None:
        """Wait until a run of this size (bytes) may be stored. The error that it is refused with when that takes long.

        Once for each run, in their order; ``answered`` follows for each.
        """
        refusal = None if not self._room.locked() else await self._wait(size)
        if refusal is None:
            await self._room.acquire()
        else:
            await self._refusals.acquire()
        self._taken.append(refusal is None)
        self._fast.waiting += 1
        return refusal

    def check(self, run: SendRun) -> None:
        """Raises SYSTEM_BUSY for a run that waited for the loop, or when as many runs wait as may."""
        self._fast.check_arrived(self._arrivals.of(run.sent_ms, self._fast.now_ms()))
        self._fast.check_room()

    def answered(self) -> None:
        """The answer to the next run has left."""
        self._fast.waiting -= 1
        (self._room if self._taken.popleft() else self._refusals).release()

    @contextmanager
    def open(self) -> Iterator["StreamIntake"]:
        """For as long as the stream is."""
        try:
            yield self
        finally:
            self._fast.waiting -= len(self._taken)
            self._taken.clear()

    async def _wait(self, size: int) -> DejamqError | None:
        patience_ms = self._fast.patience_ms()
        began_ms = self._fast.now_ms()
        try:
            with self._fast.waits(size):
                async with asyncio.timeout(None if patience_ms is None else patience_ms / 1000):
                    await self._room.acquire()
        except TimeoutError:
            return self._fast.late(self._fast.now_ms() - began_ms)
        except DejamqError as overload:
            return overload
        self._room.release()
        return None


def refused(run: SendRun, error: DejamqError, bad_record: int = -1) -> SendRunResult:
    """The answer to a run of which nothing was stored. Texts of strangers are cut, so they do not fill the log."""
    log.info("send_refused client=%.100s code=%s remark=%.300s", run.client_id, error.code.name, error)
    return SendRunResult(seq=run.seq, code=int(error.code), remark=str(error), bad_record=bad_record)
