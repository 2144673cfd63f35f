"""Power losses while the store's own threads run: the moments are theirs, so a seed does not bring them back.

What is left when a check fails does: the files stay.
"""

import dataclasses
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from unittest import mock

import msgspec
from dejamq_broker.store import MessageStore
from dejamq_broker.store.log import sync
from disk_model import Disk
from power_loss import Failure, config_of
from store_making import ticking
from wreck import Sent, World, Wreck, check, endless, run_of, standing_still, unsynced

RUNS = 60
MOST_WRECKS = 12


class ThreadedLife:
    """A store that appends from one thread, flushes and dispatches from its own, and is promised durability.

    Now and then the appender flushes too, as a broker's loop does.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.wrecks: list[Wreck] = []
        rng = random.Random(seed)
        config = dataclasses.replace(
            config_of(seed, rng), flush_interval_commit_log_ms=1, flush_interval_consume_queue_ms=2,
            flush_commit_log_least_pages=1, flush_consume_queue_thorough_interval_ms=5, sync_flush_in_event_loop=True,
        )  # fmt: skip
        self.world = World(config, ticking(), endless(rng), rng)
        self._folder, self._rng = folder, rng
        self._given: list[Sent] = []
        self._promised = 0
        self._kinds: Counter[str] = Counter()
        self._due: deque[Callable[[], None]] = deque()
        (folder / "live").mkdir(parents=True)
        self._disk = Disk(folder / "live", self._on_step)

    def live(self) -> None:
        with self._disk.watching(), mock.patch.multiple(sync, WAKING_S=0, QUICK_S=3600):
            world = self.world
            store = MessageStore.open(
                self._folder / "live" / "store", world.config, clock_ms=world.clock_ms, soon=self._due.append
            )
            for _ in range(RUNS):
                run = list(itertools.islice(world.messages, self._rng.choice((1, 1, 3, 20))))
                self._given += run
                self._when_durable(store.durable(store.append_run(run_of(run)).end_log_offset), len(self._given))
                while self._due and self._rng.random() < 0.7:
                    self._due.popleft()()
            store.close()

    def _when_durable(self, promise: "Future[None]", count: int) -> None:
        def promised(done: "Future[None]") -> None:
            done.result()
            self._promised = max(self._promised, count)

        promise.add_done_callback(promised)

    def _on_step(self, kind: str) -> None:
        """One at a time, whatever thread it is; what is promised now was promised before the wreck."""
        self._kinds[kind] += 1
        if len(self.wrecks) < MOST_WRECKS and self._rng.random() < 0.3 / self._kinds[kind] + 0.01:
            directory = self._folder / str(len(self.wrecks))
            promised, given = self._promised, list(self._given)
            self._disk.wreck(directory, random.Random(self._rng.random()))
            self.wrecks.append(Wreck(directory, f"threads: {kind}", given, promised, 0))


def threaded_life(seed: int, folder: Path) -> "Counter[str]":
    """Live once, with threads. Answers how many wrecks were taken at each kind of step; all came back."""
    life = ThreadedLife(folder, seed)
    life.live()
    for wreck in life.wrecks:
        try:
            with standing_still(), unsynced():
                check(wreck, msgspec.structs.replace(life.world, rng=random.Random(seed)))
        except Exception as error:
            raise Failure(f"[{wreck.kind}]: {error!r}; the files, opened once, are in {wreck.directory}") from error
    return Counter(wreck.kind for wreck in life.wrecks)
