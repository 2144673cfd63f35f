"""The store against a list: append, restart, crash, lose queues, in any order."""

import shutil
import tempfile
from pathlib import Path

from dejamq_broker.store import MessageStore
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from store_making import bodies_of, crashed_copy, open_small, run_of, settle

QUEUES = [("T", 0), ("T", 1), ("%RETRY%G", 0)]
MESSAGES = st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(0, 3000)), min_size=1, max_size=40)


class StoreMachine(RuleBasedStateMachine):
    """What was appended, in order, is what every queue gives, whatever happens to the process in between."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="dejamq-model-"))
        self.lives = 0
        self.number = 0
        self.expected: dict[tuple[str, int], list[bytes]] = {key: [] for key in QUEUES}
        self.store: MessageStore = open_small(self.root / "0")

    @rule(messages=MESSAGES)
    def append(self, messages: list[tuple[tuple[str, int], int]]) -> None:
        run = []
        for (topic, queue_id), size in messages:
            self.number += 1
            body = str(self.number).encode() + b"." * size
            run.append((topic, queue_id, body))
        appended = self.store.append_run(run_of(run))
        for (topic, queue_id, body), queue_offset in zip(run, appended.queue_offsets.tolist(), strict=True):
            assert queue_offset == len(self.expected[topic, queue_id])
            self.expected[topic, queue_id].append(body)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = open_small(self.directory)
        assert self.store.clean_start

    @rule()
    def crash(self) -> None:
        before = self.directory
        self.lives += 1
        crashed_copy(before, self.directory)
        self.store.close()
        self.store = open_small(self.directory)
        assert not self.store.clean_start

    @rule(key=st.sampled_from(QUEUES))
    def lose_a_queue(self, key: tuple[str, int]) -> None:
        self.store.close()
        shutil.rmtree(self.directory / "consumequeue" / key[0] / str(key[1]), ignore_errors=True)
        self.store = open_small(self.directory)

    @invariant()
    def every_queue_gives_what_it_got(self) -> None:
        settle(self.store)
        assert not self.store.recovery.cuts
        assert not self.store.recovery.damages
        for (topic, queue_id), expected in self.expected.items():
            assert bodies_of(self.store, topic, queue_id) == expected

    @property
    def directory(self) -> Path:
        return self.root / str(self.lives)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.root)


StoreMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStore = StoreMachine.TestCase
