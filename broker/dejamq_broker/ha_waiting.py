"""Who may answer a producer only when slaves have its messages. Source: RocketMQ ``GroupTransferService``."""

import asyncio
from collections import deque

import msgspec
from dejamq_proto.codes import Code


class Waiting(msgspec.Struct, frozen=True):
    """One of them: it waits for everything before this log offset."""

    log_end: int
    deadline: float
    done: "asyncio.Future[Code]"


class SlaveWaits:
    """In the order of the log, which is that of deadlines too. Owned by the event loop."""

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_s = timeout_ms / 1000
        self._waiting: deque[Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, log_end: int, done: "asyncio.Future[Code]") -> None:
        """Resolve it with SUCCESS when that much is confirmed, with FLUSH_SLAVE_TIMEOUT when it takes too long."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        self._waiting.append(Waiting(log_end, deadline, done))
        if self._timer is None:
            self._set_timer()

    def confirm(self, log_end: int) -> None:
        """Enough slaves have everything before this log offset."""
        waiting = self._waiting
        while waiting and waiting[0].log_end <= log_end:
            _resolve(waiting.popleft(), Code.SUCCESS)

    def close(self) -> None:
        """Nobody is told any more that it took too long."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self._waiting[0].deadline, self._on_deadline) if self._waiting else None

    def _on_deadline(self) -> None:
        now, waiting = asyncio.get_running_loop().time(), self._waiting
        while waiting and waiting[0].deadline <= now:
            _resolve(waiting.popleft(), Code.FLUSH_SLAVE_TIMEOUT)
        self._set_timer()


def _resolve(waiting: Waiting, code: Code) -> None:
    if not waiting.done.done():
        waiting.done.set_result(code)
