"""From the log to the structures derived from it. Source: RocketMQ ``ReputMessageService``.

Appends hand their runs over in memory. The log itself is read back only at start (``replay``), and for work that may
come late (``catch_up.py``). Dispatchers are plain callables, and nobody here knows them by name.

The appender dispatches its own run where it may. That costs less than waking a thread, which has to take the
interpreter's lock from it and to reach its event loop from outside. The saving is a fifth to a third of a small run in
all. With SYNC_FLUSH, records have to wait for the disk; the thread that brought them there dispatches them. The thread
is for records that come while another one is at it.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.log.batch import Batch, QueueKey, QueueTable, Single

logger = logging.getLogger(__name__)

Dispatch = Callable[[Batch | Single], None]


class Reput:
    """Owns the reput thread. ``position`` is the log offset up to which everything is dispatched.

    One party at a time dispatches: the one that has the turn. Failures are kept in ``failure`` for the next append.
    """

    def __init__(
        self,
        position: int,
        table: QueueTable,
        dispatchers: Sequence[Dispatch],
        limit: Callable[[], int],
        on_arrival: Callable[[list[QueueKey]], None],
        late_turn: Callable[[Callable[[], bool]], float | None],
    ) -> None:
        """``limit`` says up to which log offset may be dispatched: the log end, or the flushed part of it.

        The thread calls ``late_turn`` when there is nothing to dispatch; it answers after how many seconds again.
        """
        self.position = position
        self.failure: StoreError | None = None
        self._table, self._dispatchers, self._limit, self._on_arrival = table, dispatchers, limit, on_arrival
        self._late_turn = late_turn
        self._bound: Callable[[], int] | None = None
        self._batches: deque[Batch | Single] = deque()
        self._event = threading.Event()
        self._turn = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dejamq-reput")

    def start(self) -> None:
        self._thread.start()

    def hand_over(self, batch: Batch | Single) -> None:
        """Take what was just appended. Called by the appender, in log order; ``dispatch`` follows."""
        self._batches.append(batch)

    def dispatch(self) -> None:
        """Dispatch here and now what the limit allows, or leave it to the thread that is at it. Any thread."""
        if not self._turn.acquire(False):
            self.wake()
            return
        try:
            self._drain()
        finally:
            self._turn.release()

    def hold_back(self, bound: Callable[[], int]) -> None:
        """Dispatch nothing behind this log offset either, until ``stop``. Who moves it calls ``dispatch``."""
        self._bound = bound

    def between(self, action: Callable[[], None]) -> None:
        """Do this while nothing is dispatched. Any thread but one that dispatches."""
        with self._turn:
            action()

    def wake(self) -> None:
        """Look again: the limit may have moved. Any thread."""
        if not self._event.is_set():
            self._event.set()

    def stop(self) -> None:
        """Dispatch what the limit allows, also what was held back, then end the thread."""
        self._bound = None  # nobody reads any more, and a whole store starts quicker
        self._stopping = True
        self._event.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._event.wait(self._late_turn(self._event.is_set))
            self._event.clear()
            with self._turn:
                self._drain()
        # the limit may have moved while the last turn was at it
        with self._turn:
            self._drain()

    def _drain(self) -> None:
        """Dispatch what the limit allows at this moment. The caller has the turn."""
        batches, limit, bound = self._batches, self._limit(), self._bound
        if bound is not None:
            limit = min(limit, bound())
        arrived: list[int] = []
        try:
            while batches and batches[0].end_log_offset <= limit and not self.failure:
                batch = batches.popleft()
                for dispatch in self._dispatchers:
                    dispatch(batch)
                self.position = batch.end_log_offset
                arrived += batch.queue_numbers
        except Exception as error:
            # kept, and raised by the next append: a store whose queues stand still must not take more
            self.failure = error if isinstance(error, StoreError) else StoreError(f"the queues cannot grow: {error!r}")
            logger.error("reput_failed position=%d error=%s", self.position, error)
        if arrived:
            self._tell(arrived)

    def _tell(self, numbers: list[int]) -> None:
        keys = self._table.keys
        try:
            if len(numbers) == 1:
                self._on_arrival([keys[numbers[0]]])
            else:
                self._on_arrival([keys[number] for number in set(numbers)])
        except Exception:
            # a listener's fault must not stop the queues
            logger.exception("arrival_listener_failed")
