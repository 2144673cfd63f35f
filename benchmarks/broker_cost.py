"""What a message costs in the broker's process without a network: a run's frame in, its answer out, and then the pulls
of what it brought, one for each queue. By processor time, the lowest of the rounds.

The broker is whole but for its doors: checks, log, queues, journal, offsets. A copy of the frames, and nothing else, is
measured in the same run. ``--cold``: before each run and each pull somebody else has the processor's caches, as where
producer, broker and consumer share two cores.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.domain import Domain
from dejamq_broker.paths.long_poll import LongPoll
from dejamq_broker.paths.rules import PullQuery
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_broker.tables.offsets import Asker
from dejamq_proto.clock import Clock, ClocksMs
from dejamq_proto.journal.writer import Journal, Level, open_journal
from dejamq_proto.records.record import Outgoing, encode_properties
from dejamq_proto.wire.messages import SendRun

TOPIC, QUEUES, BORN = "bench", 4, (0x7F000001, 4711)
BOOT_ID = "0" * 16
OTHERS = 8 << 20
"""Bytes that somebody else touches meanwhile: more than the second cache has."""


def frame_of(count: int, body: bytes, first: int = 0, *, dedup: bool = False) -> bytes:
    """A run as the SDK sends it, its records in turn to all queues. ``first`` is the id of the first one."""
    more = {"DEDUP_BY": "UNIQ_KEY"} if dedup else {}
    outgoing = Outgoing.to(TOPIC)
    index = np.arange(count) % QUEUES
    records = [
        outgoing.encode(queue_id, 1, body, encode_properties({"UNIQ_KEY": f"{first + number:032X}"} | more))
        for number, queue_id in enumerate(index.tolist())
    ]
    return SendRun(
        client_id="producer", boot_id=BOOT_ID, seq=1, group="g", queues=[(TOPIC, number) for number in range(QUEUES)],
        sizes=np.array(list(map(len, records)), "<u4"), queue_index=index.astype("<u4"), default_queue_nums=QUEUES,
        dedup=dedup, records=records,
    ).encode()  # fmt: skip


def opened(folder: Path, level: Level) -> tuple[Domain, Journal]:
    """A broker that serves nobody, with its topic, and its journal."""
    clock = Clock()
    config = BrokerConfig(store_directory=str(folder), store=StoreConfig(mapped_file_size_commit_log=64 << 20))
    store = MessageStore.open(folder / "store", config.store, clock_ms=clock.wall_ms)
    journal = open_journal(folder / "journal", role="broker", process="broker-a", boot_id=BOOT_ID, level=level)
    site = Site(cluster="bench", broker_name="broker-a", broker_id=0, boot_id=BOOT_ID)
    domain = Domain(
        config, store, journal, site, ClocksMs(clock.wall_ms, clock.age_ms), LongPoll(), on_topics=lambda: None,
        master_there=lambda: False,
    )  # fmt: skip
    domain.tables.topics.for_sending(TOPIC, QUEUES)
    return domain, journal


class Costs:
    """Processor time (s) of parts of a round."""

    def __init__(self, cold: bool) -> None:
        self._others = np.ones(OTHERS, np.uint8) if cold else None
        self.copied = self.sent = self.pulled = 0.0

    def of(self, work: Callable[[], object]) -> float:
        """With ``cold``, after somebody else had the caches."""
        if self._others is not None:
            self._others += 1
        began = time.thread_time()
        work()
        return time.thread_time() - began


def send(domain: Domain, frame: bytes) -> None:
    outcome = domain.paths.sender.accept(SendRun.decode(frame), BORN)
    assert not outcome.result.code, outcome.result.remark
    outcome.result.encode()


def pull(domain: Domain, queue_id: int, offset: int, most: int) -> None:
    request = PullQuery(
        asker=Asker("consumer", BOOT_ID, 1), group="g", topic=TOPIC, queue_id=queue_id, queue_offset=offset,
        commit_offset=offset, max_messages=most, max_bytes=1 << 20, expression="*",
    )  # fmt: skip
    domain.paths.puller.begin(request, 0, None)
    answer = domain.paths.puller.look(request, first=True, last=False)
    assert answer is not None, request
    assert len(answer.sizes) == most
    answer.encode()


def one_round(
    domain: Domain, count: int, body: bytes, runs: int, *, cold: bool, dedup: bool
) -> tuple[float, float, float]:
    """µs of a core a message: the frame copied, the run sent, its messages pulled."""
    costs, queues = Costs(cold), range(min(count, QUEUES))
    for _ in range(runs):
        frame = frame_of(count, body, time.time_ns(), dedup=dedup)
        offsets = [domain.store.max_offset(TOPIC, queue_id) for queue_id in queues]
        costs.copied += costs.of(partial(bytearray, frame))
        costs.sent += costs.of(partial(send, domain, frame))
        while domain.store.dispatched < domain.store.log_max:
            time.sleep(0)  # the store's own thread is at it
        for queue_id, offset in zip(queues, offsets, strict=True):
            most = domain.store.max_offset(TOPIC, queue_id) - offset
            costs.pulled += costs.of(partial(pull, domain, queue_id, offset, most))
    messages = runs * count
    return costs.copied / messages * 1e6, costs.sent / messages * 1e6, costs.pulled / messages * 1e6


async def measure(options: argparse.Namespace, folder: Path) -> None:
    body = (bytes(range(256)) * (options.body_bytes // 256 + 1))[: options.body_bytes]
    domain, journal = opened(folder, options.level)
    print("us of a core a message: a copy of the frame, the run, its pulls")
    try:
        for count in options.runs:
            runs = max(4, options.messages // count)
            rounds = [
                one_round(domain, count, body, runs, cold=options.cold, dedup=options.dedup)
                for _ in range(options.rounds)
            ]
            lowest = [min(values) for values in zip(*rounds, strict=True)]
            print(f"runs of {count:4} " + " ".join(f"{value:7.2f}" for value in lowest))
            await asyncio.sleep(0)
    finally:
        domain.store.close()
        journal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1 << 14, help="in a round")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 16, 64, 128, 850], help="messages of a run")
    parser.add_argument("--level", type=Level, default=Level.AUDIT, choices=list(Level))
    parser.add_argument("--cold", action="store_true", help="with the caches of others before each run and pull")
    parser.add_argument("--dedup", action="store_true", help="the broker is to know the messages by their ids")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(options, Path(folder)))


if __name__ == "__main__":
    main()
