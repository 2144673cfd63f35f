"""The store against a plain list, in any order of what can happen to it. The store's threads do not run."""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
from dejamq_broker.store import ASYNC_FLUSH, SYNC_FLUSH, MessageStore, StoreConfig
from dejamq_broker.store.index.query import KeyQuery
from dejamq_proto.records.record import OVERHEAD, Record, encode_properties
from disk_model import Disk
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from power_loss import LONG_AGO_MS
from store_making import overwrite, ticking
from wreck import QUEUES, Sent, World, Wreck, opened, run_of, served_of, standing_still

BODIES = st.sampled_from((0, 1, 100, 700, 3000))
MESSAGES = st.lists(st.tuples(st.sampled_from(QUEUES), BODIES), min_size=1, max_size=12)
LOG_FILE = 8192


class StoreMachine(RuleBasedStateMachine):
    """``known`` is the list: all messages ever given, how many are promised, how many may have expired."""

    @initialize(
        flush=st.sampled_from((ASYNC_FLUSH, SYNC_FLUSH)), queue_file=st.sampled_from((200, 1000, 20_000)),
        index_entries=st.sampled_from((5, 40)),
    )  # fmt: skip
    def begin(self, flush: str, queue_file: int, index_entries: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="dejamq-machine-"))
        self.lives, self.number = 0, 0
        config = StoreConfig(
            mapped_file_size_commit_log=LOG_FILE, mapped_file_size_consume_queue=queue_file, flush_disk_type=flush,
            disk_check_enable=False, delete_commit_log_files_interval_ms=1, max_hash_slot_num=3,
            max_index_num=index_entries,
        )  # fmt: skip
        self.world = World(config, ticking(), iter(()), random.Random(0))
        self.known = Wreck(self.root / "0", "", [], 0, 0)
        self.known.directory.mkdir()
        self.stack = ExitStack()
        self.stack.enter_context(standing_still())
        self.open()

    # What users do.

    @rule(messages=MESSAGES)
    def append(self, messages: list[tuple[tuple[str, int], int]]) -> None:
        sent = [self.message(queue, size) for queue, size in messages]
        appended = self.store.append_run(run_of(sent))
        self.stored(sent, appended.log_offsets.tolist())

    @rule(queue=st.sampled_from(QUEUES), size=BODIES)
    def put(self, queue: tuple[str, int], size: int) -> None:
        sent = self.message(queue, size)
        appended = self.store.put(Record(sent.topic, sent.queue_id, sent.body, sent.properties))
        self.stored([sent], appended.log_offsets.tolist())

    @rule(left=st.integers(8, 40))
    def roll(self, left: int) -> None:
        """A record that leaves just so many bytes in its file, if that can be: the next one begins another."""
        sent = self.message(("T", 0), 0)
        room = LOG_FILE - self.store.log_max % LOG_FILE - OVERHEAD - 1 - len(sent.properties) - len(sent.body) - left
        sent = msgspec.structs.replace(sent, body=sent.body + b"." * max(0, room))
        appended = self.store.append_run(run_of([sent]))
        self.stored([sent], appended.log_offsets.tolist())

    @rule()
    def wait_for_the_disk(self) -> None:
        promise = self.store.durable(self.store.log_max)
        self.store.inspect().flusher.turn(self.now_s)
        assert promise.done()
        self.know(durable=len(self.known.messages))

    @precondition(lambda self: self.known.messages)
    @rule(data=st.data())
    def query(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.known.messages) - 1))
        sent, start = self.known.messages[number], self.starts[number]
        found = self.store.query(KeyQuery(sent.topic, sent.key)).records
        assert found == ([self.store.record_at(start)] if self.is_visible(start) else [])
        assert self.store.query(KeyQuery(sent.topic, "no such key")).records == []

    # What its threads do.

    @rule(seconds=st.sampled_from((0.001, 0.6, 1.1, 11.0, 61.0)))
    def flush_turn(self, seconds: float) -> None:
        self.now_s += seconds
        self.store.inspect().flusher.turn(self.now_s)

    @rule(settle=st.booleans())
    def index_turn(self, settle: bool) -> None:
        self.store.inspect().late.catch_up()
        if settle:
            self.store.inspect().index.settle()

    @rule()
    def expire(self) -> None:
        self.store.clean_soon()
        self.store.inspect().retention.clean(LONG_AGO_MS)
        self.know(expired=max(self.known.expired, sum(start < self.store.log_min for start in self.starts)))

    # What happens to it.

    @rule()
    def reopen(self) -> None:
        self.close()
        self.open()
        assert self.store.clean_start

    @rule(what=st.sampled_from(("consumequeue", "consumequeue/T/0", "index", "index.json", "checkpoint", "one file")))
    def lose_what_is_derived_and_reopen(self, what: str) -> None:
        self.close()
        lost = self.store_folder / what
        if what == "one file":
            lost = self.world.rng.choice(sorted((self.store_folder / "consumequeue").rglob("0*")) or [lost])
        shutil.rmtree(lost) if lost.is_dir() else lost.unlink(missing_ok=True)
        self.open()

    @rule()
    def kill(self) -> None:
        """The process is gone, and all that it wrote is there."""
        self.next_life(lambda target: shutil.copytree(self.known.directory, target))
        self.know(durable=len(self.known.messages))
        self.open()
        assert not self.store.clean_start

    @precondition(lambda self: self.store.log_max > self.store.log_min)
    @rule(data=st.data())
    def kill_with_a_torn_tail(self, data: st.DataObject) -> None:
        """The last record ends in garbage, which shows as soon as it takes one byte that is checked."""
        last = self.starts[-1]
        size = len(self.store.record_at(last) or b"")
        least = len(self.known.messages[-1].properties) + 1
        torn = data.draw(st.integers(least, size)) if size else 0
        self.next_life(lambda target: shutil.copytree(self.known.directory, target))
        if torn:
            at = last + size - torn
            overwrite(self.store_folder / "commitlog" / f"{at - at % LOG_FILE:020d}", at % LOG_FILE, b"\xff" * torn)
            self.know(messages=self.known.messages[:-1])
        self.know(durable=len(self.known.messages))
        self.open()

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        flushed = sum(start < self.store.flushed for start in self.starts)
        self.know(durable=max(self.known.durable, flushed))
        self.next_life(lambda target: self.disk.wreck(target, random.Random(seed)))
        self.open()

    @invariant()
    def queues_give_what_the_list_has(self) -> None:
        store = self.store
        first, served = served_of(store, self.known)
        assert [record.log_offset for record in served] == [start for start in self.starts if self.is_visible(start)]
        assert not store.recovery.damages
        ends: Counter[tuple[str, int]] = Counter()
        for sent in self.known.messages[: first + len(served)]:
            ends[sent.topic, sent.queue_id] += 1
        for queue in QUEUES:
            assert store.max_offset(*queue) == ends[queue]

    # The parts.

    def open(self) -> None:
        self.disk = Disk(self.known.directory)
        self.watching = self.disk.watching()
        self.watching.__enter__()
        self.store: MessageStore = opened(self.known.directory, self.world)
        self.now_s = self.store.inspect().flusher._log_turn
        first, served = served_of(self.store, self.known)
        messages = self.known.messages[: first + len(served)]
        self.starts = [-1] * first + [record.log_offset for record in served]
        self.know(messages=messages, durable=len(messages))

    def close(self) -> None:
        self.store.close()
        self.watching.__exit__(None, None, None)
        self.know(durable=len(self.known.messages))

    def next_life(self, leave: Callable[[Path], object]) -> None:
        """``leave`` makes the directory that the next life begins on; this one just ends."""
        self.lives += 1
        target = self.root / str(self.lives)
        leave(target)
        self.store.inspect().lock.release()
        self.watching.__exit__(None, None, None)
        self.know(directory=target)

    def message(self, queue: tuple[str, int], size: int) -> Sent:
        self.number += 1
        key = f"k{self.number}"
        return Sent(*queue, b"%d:" % self.number + b"." * size, encode_properties({"KEYS": key, "TAGS": "red"}), key)

    def stored(self, sent: list[Sent], starts: list[int]) -> None:
        self.starts += starts
        self.know(messages=self.known.messages + sent)

    def is_visible(self, start: int) -> bool:
        return self.store.log_min <= start < self.store.dispatched

    def know(self, **changes: object) -> None:
        self.known = msgspec.structs.replace(self.known, **changes)

    @property
    def store_folder(self) -> Path:
        return self.known.directory / "store"

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            if hasattr(self, "store"):
                self.store.inspect().lock.release()
            self.watching.__exit__(None, None, None)
            self.stack.close()
            shutil.rmtree(self.root)
