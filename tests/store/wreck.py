"""What a power loss left of a store, and whether it comes back as it must. The store's threads do not run."""

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
from dejamq_broker.store import AppendRun, MessageStore, StoreConfig
from dejamq_broker.store.index.query import KeyQuery
from dejamq_proto.records.record import Outgoing, Record, encode_properties, tags_code
from dejamq_proto.records.run import parse
from store_making import HOST, records_of

QUEUES = [("T", 0), ("T", 1), ("%RETRY%G", 0)]
BODY_SIZES = (0, 1, 50, 300, 900, 3000)
NOTE_SIZES = (0, 0, 0, 1, 200, 1200)


class Sent(msgspec.Struct, frozen=True):
    """A message as it was given to the store; no two are alike."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    key: str


class Wreck(msgspec.Struct, frozen=True):
    """A directory after a power loss, and what was known when it came."""

    directory: Path
    kind: str
    messages: list[Sent]
    """Everything given to the store so far, in log order, the run that was being appended last."""
    durable: int
    """So many of them are promised: flushed, as the store said, or served after a start."""
    expired: int
    """So many of the first ones may be gone with files that retention deleted."""


class World(msgspec.Struct, frozen=True):
    """What all lives of a lineage have in common."""

    config: StoreConfig
    clock_ms: Callable[[], int]
    messages: Iterator[Sent]
    rng: random.Random


def opened(directory: Path, world: World) -> MessageStore:
    store = MessageStore.open(directory / "store", world.config, clock_ms=world.clock_ms)
    store.inspect().flusher.on_flushed = store.inspect().reput.dispatch
    return store


def check(wreck: Wreck, world: "World") -> None:
    """The store opens, has a prefix of what it was given with all that was promised, and goes on from there."""
    store = opened(wreck.directory, world)
    try:
        first, served = served_of(store, wreck)
        assert not store.recovery.damages, "a power loss counts as damage"
        queries(store, served, world.rng)
        more = list(itertools.islice(world.messages, 3))
        promise = store.durable(store.append_run(run_of(more)).end_log_offset)
        store.inspect().flusher.turn(0)
        assert promise.done()
        after = msgspec.structs.replace(wreck, messages=wreck.messages[: first + len(served)] + more)
        after = msgspec.structs.replace(after, durable=len(after.messages))
        served_of(store, after)
        store.close()
        store = opened(wreck.directory, world)
        assert store.clean_start, "it does not close"
        _, served = served_of(store, after)
        queries(store, served, world.rng)
    finally:
        store.close()


def served_of(store: MessageStore, wreck: Wreck) -> tuple[int, list[Record]]:
    """The number of the first message that is served, and all records from there on. Checks what readers rely on."""
    records = sorted(
        (record for queue in QUEUES for record in records_of(store, *queue)), key=lambda record: record.log_offset
    )
    first, numbers = expected(wreck, records)
    seen = numbers[len(numbers) - len(records) :] if records else []
    assert [(record.topic, record.queue_id, record.queue_offset) for record in records] == seen, "queue offsets moved"
    assert first + len(records) >= wreck.durable, f"only {len(records)} messages from number {first} on are there"
    times = [record.store_timestamp_ms for record in records]
    assert times == sorted(times), "store times go back"
    return first, records


def expected(wreck: Wreck, records: list[Record]) -> tuple[int, list[tuple[str, int, int]]]:
    """The number of the first message, and where all up to the last belong. The records are a run of the messages."""
    served = [(record.topic, record.queue_id, record.body, record.raw_properties) for record in records]
    given = [(sent.topic, sent.queue_id, sent.body, sent.properties) for sent in wreck.messages]
    first = given.index(served[0]) if served else min(wreck.durable, wreck.expired)
    assert first <= wreck.expired, f"the first {first} messages are missing, {wreck.expired} may be"
    assert served == given[first : first + len(served)], "what is there is no piece of what was stored"
    counts: Counter[tuple[str, int]] = Counter()
    numbers = []
    for sent in wreck.messages[: first + len(served)]:
        numbers.append((sent.topic, sent.queue_id, counts[sent.topic, sent.queue_id]))
        counts[sent.topic, sent.queue_id] += 1
    return first, numbers


def queries(store: MessageStore, served: list[Record], rng: random.Random) -> None:
    """Some messages are found by their key, each alone."""
    for record in rng.sample(served, min(3, len(served))):
        wanted = KeyQuery(record.topic, record.properties["KEYS"])
        found = store.query(wanted).records
        assert found == [store.record_at(record.log_offset)], "a key does not find its message"


def endless(rng: random.Random) -> Iterator[Sent]:
    """New messages, some with long properties."""
    for number in itertools.count():
        topic, queue_id = rng.choice(QUEUES)
        body = b"%d:" % number + b"." * rng.choice(BODY_SIZES) if rng.random() < 0.9 else b""
        note = rng.choice("abc") * rng.choice(NOTE_SIZES)
        properties = encode_properties({"KEYS": f"k{number}", "TAGS": rng.choice(("", "red")), "note": note})
        yield Sent(topic, queue_id, body, properties, f"k{number}")


def run_of(messages: list[Sent]) -> AppendRun:
    keys = sorted({(sent.topic, sent.queue_id) for sent in messages})
    records = [Outgoing.to(sent.topic).encode(sent.queue_id, 5, sent.body, sent.properties) for sent in messages]
    return AppendRun(
        run=parse(b"".join(records), np.array([len(record) for record in records])),
        keys=keys,
        key_index=np.array([keys.index((sent.topic, sent.queue_id)) for sent in messages], np.int64),
        tags_codes=np.array([tags_code("red" if b"red" in sent.properties else None) for sent in messages], np.int64),
        born_host=HOST,
        store_host=HOST,
    )


@contextmanager
def standing_still() -> Iterator[None]:
    """Threads of the store are made but never run."""
    with mock.patch.object(threading.Thread, "start"):
        yield


@contextmanager
def unsynced() -> Iterator[None]:
    """Nothing waits for a disk that no power loss will come to."""
    with ExitStack() as stack:
        for name in ("fsync", "fdatasync"):
            stack.enter_context(mock.patch(f"os.{name}"))
        yield
