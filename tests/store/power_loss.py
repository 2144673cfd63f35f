"""Power losses at every step of a store's life, repeatable from one number.

A *lineage* is a row of lives of one store, each begun on what a power loss left of the one before, so recovery is
crashed too. The store's threads do not run: their turns are steps of the workload, and everything follows from the
seed. At many steps of a life a *wreck* is taken: what a power loss at that moment could leave. Each must come back.
"""

import itertools
import random
import shutil
from collections import Counter
from pathlib import Path

import msgspec
from dejamq_broker.store import ASYNC_FLUSH, SYNC_FLUSH, MessageStore, StoreConfig
from dejamq_proto.records.record import Record
from disk_model import Disk
from store_making import ticking
from wreck import Sent, World, Wreck, check, endless, opened, run_of, served_of, standing_still, unsynced

LIVES, STEPS = 4, 40
WANTED = 0.15
"""Probability of a wreck at the first step of a kind in a life; it falls as steps of that kind come again."""
PAUSES_S = (0.0001, 0.31, 0.7, 1.3, 11.3, 61.7)
LONG_AGO_MS = 1 << 50


class Failure(AssertionError):
    """A wreck that did not come back as it must. The text says how to see it again."""


def config_of(seed: int, rng: random.Random) -> StoreConfig:
    """Small files, so that lives are full of rolls; all that a flush may do at once or later. SYNC_FLUSH when odd."""
    return StoreConfig(
        mapped_file_size_commit_log=rng.choice((8192, 16_384)),
        mapped_file_size_consume_queue=rng.choice((200, 1000, 20_000)),
        flush_disk_type=SYNC_FLUSH if seed % 2 else ASYNC_FLUSH,
        flush_commit_log_timed=rng.random() < 0.5,
        flush_consume_queue_least_pages=rng.choice((1, 2)),
        disk_check_enable=False,
        delete_commit_log_files_interval_ms=1,
        delete_file_batch_max=2,
        max_hash_slot_num=7,
        max_index_num=rng.choice((30, 300)),
    )


def lineage(seed: int, folder: Path, *, lives: int = LIVES) -> "Counter[str]":
    """Live through one lineage. Answers how many wrecks were taken at each kind of step; all came back."""
    rng = random.Random(seed)
    config, clock_ms, messages = config_of(seed, rng), ticking(), endless(rng)
    seen: Counter[str] = Counter()
    wreck = Wreck(folder / "0", "nothing yet", [], 0, 0)
    wreck.directory.mkdir(parents=True)
    for number in range(lives):
        life = Life(wreck, folder / f"wrecks-{number}", World(config, clock_ms, messages, rng))
        with standing_still():
            life.live()
            begin = rng.randrange(len(life.wrecks))
            wreck = msgspec.structs.replace(life.wrecks[begin], directory=folder / str(number + 1))
            shutil.copytree(life.wrecks[begin].directory, wreck.directory)
            for one in life.wrecks:
                _come_back(seed, one, World(config, clock_ms, messages, random.Random(seed)))
                seen[one.kind] += 1
                shutil.rmtree(one.directory)
    return seen


def _come_back(seed: int, wreck: Wreck, world: "World") -> None:
    kept = wreck.directory.with_suffix(".kept")
    shutil.copytree(wreck.directory, kept)
    try:
        with unsynced():
            check(wreck, world)
    except Exception as error:
        raise Failure(
            f"a power loss at [{wreck.kind}]: {error!r}; promised were {wreck.durable} of {len(wreck.messages)}; "
            f"the files are in {kept}; again with: python tests/store/prove_power_loss.py --seed {seed} --lineages 1"
        ) from error
    shutil.rmtree(kept)


class Life:
    """One life of a store, from its opening to the power loss that ends it."""

    def __init__(self, begun_on: Wreck, wrecks: Path, world: World) -> None:
        self.wrecks: list[Wreck] = []
        self._folder, self._world, self._rng = wrecks, world, world.rng
        self._known = begun_on
        self._starts = [-1] * len(begun_on.messages)
        """Where the record of each message begins, for those that were served by or given to this life."""
        self._appending: list[Sent] = []
        self._phase = "open"
        self._kinds: Counter[str] = Counter()
        self._store: MessageStore | None = None
        self._now_s = 0.0
        self._disk = Disk(begun_on.directory, self._on_step)
        wrecks.mkdir()

    def live(self) -> None:
        actions = [self.append] * 12 + [self.turn] * 9 + [self.wait, self.put, self.index] * 3
        actions += [self.expire, self.expire, self.restart]
        with self._disk.watching():
            self._open()
            for _ in range(STEPS):
                action = self._rng.choice(actions)
                self._phase = action.__name__
                action()
            self._take("the end")
        self._opened.inspect().lock.release()

    def append(self) -> None:
        """A run, sometimes a long one that rolls into the next file."""
        self._appending = list(itertools.islice(self._world.messages, self._rng.choice((1, 1, 3, 10, 40))))
        self._stored(self._opened.append_run(run_of(self._appending)).log_offsets.tolist())

    def put(self) -> None:
        """A record of the broker's own."""
        self._appending = [next(self._world.messages)]
        (sent,) = self._appending
        record = Record(sent.topic, sent.queue_id, sent.body, sent.properties)
        self._stored(self._opened.put(record).log_offsets.tolist())

    def turn(self) -> None:
        """What the flush thread does after a while."""
        self._now_s += self._rng.choice(PAUSES_S)
        self._opened.inspect().flusher.turn(self._now_s)

    def wait(self) -> None:
        """A sender that waits for the disk."""
        promise = self._opened.durable(self._opened.log_max)
        self._opened.inspect().flusher.turn(self._now_s)
        assert promise.done()
        self._know(durable=len(self._known.messages))

    def index(self) -> None:
        """What the reput thread does when nothing else is to be done."""
        self._opened.inspect().late.catch_up()
        if self._rng.random() < 0.5:
            self._opened.inspect().index.settle()

    def expire(self) -> None:
        """Retention finds everything old."""
        self._opened.clean_soon()
        self._opened.inspect().retention.clean(LONG_AGO_MS)

    def restart(self) -> None:
        self._opened.close()
        self._know(durable=len(self._known.messages))
        self._phase, self._store = "reopen", None
        self._open()
        assert self._opened.clean_start

    @property
    def _opened(self) -> MessageStore:
        assert self._store is not None
        return self._store

    def _open(self) -> None:
        self._store = opened(self._known.directory, self._world)
        self._now_s = self._store.inspect().flusher._log_turn
        first, served = served_of(self._store, self._known)
        messages = self._known.messages[: first + len(served)]
        self._starts = [-1] * first + [record.log_offset for record in served]
        self._know(messages=messages, durable=len(messages))

    def _know(self, **changes: object) -> None:
        self._known = msgspec.structs.replace(self._known, **changes)

    def _stored(self, starts: list[int]) -> None:
        self._starts += starts
        self._know(messages=self._known.messages + self._appending)
        self._appending = []

    def _on_step(self, kind: str) -> None:
        if self._store is not None:
            flushed, begin = self._store.flushed, self._store.log_min
            durable = max(self._known.durable, sum(start < flushed for start in self._starts))
            expired = max(self._known.expired, sum(start < begin for start in self._starts))
            self._know(durable=durable, expired=expired)
            if self._world.config.sync_flush:
                assert self._store.dispatched <= flushed, "what is not on disk yet is served"
        kind = f"{self._phase}: {kind}"
        self._kinds[kind] += 1
        if self._rng.random() < WANTED / self._kinds[kind]:
            self._take(kind)

    def _take(self, kind: str) -> None:
        directory = self._folder / str(len(self.wrecks))
        self._disk.wreck(directory, self._rng)
        messages = self._known.messages + self._appending
        self.wrecks.append(msgspec.structs.replace(self._known, directory=directory, kind=kind, messages=messages))
