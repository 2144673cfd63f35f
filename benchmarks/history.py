"""``python benchmarks/history.py``: how long the life of one message takes to be told from large journals.

The journals are written here by the real writer, as the level makes them that has the most lines: one for each
delivery and each result, all of the message's own topic. That is the worst case. The baseline reads the same files line
by line and does nothing with them.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dejamq_cli.history.files import journal_files
from dejamq_cli.history.search import find
from dejamq_cli.history.telling import tell
from dejamq_proto.journal.events import Append, Deliver, OffSet, Pull, Result, State
from dejamq_proto.journal.writer import Level, open_journal
from reporting import shown

GROUP, TOPIC, BROKER = "billing", "orders", "broker-a"
RUN = 64
QUEUE: dict[str, Any] = {"group": GROUP, "topic": TOPIC, "broker_name": BROKER, "queue_id": 0}


def main() -> int:
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="history-") as directory:
        written = write(Path(directory), options.megabytes * 1_000_000)
        paths = journal_files([Path(directory)])
        size = sum(path.stat().st_size for path in paths)
        began = time.perf_counter()
        for path in paths:
            with path.open("rb") as file:
                sum(1 for _ in file)
        read_s, began = time.perf_counter() - began, time.perf_counter()
        story = tell(find(paths, key(written // 2)))
        told_s = time.perf_counter() - began
    report = {
        "what": "history", "journal_mb": round(size / 1e6, 1), "messages": written, "steps": len(story.steps),
        "seconds": round(told_s, 2), "mb_per_second": round(size / 1e6 / told_s, 1), "only_reading_s": round(read_s, 2),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    print(shown(report, options.output, width=16))
    return 0 if len(story.deliveries) == 1 else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time to tell the life of one message from large journals.")
    parser.add_argument("--megabytes", type=int, default=1000, help="of journals")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


def key(number: int) -> str:
    return f"C0000202{number:024X}"


def write(directory: Path, size: int) -> int:
    """Journals of a broker and a consumer of at least this many bytes; how many messages they tell of."""
    broker, consumer = (
        open_journal(directory, role=role, process=name, boot_id=name, level=Level.AUDIT, max_bytes=1 << 40)
        for role, name in (("broker", "broker"), ("consumer", "consumer"))
    )
    consumer.write(State(state="started", group=GROUP, reason="level=forensic"))
    paths = [one for one in (broker.path, consumer.path) if one]
    first = 0
    while sum(path.stat().st_size for path in paths) < size:
        numbers = list(range(first, first + RUN))
        broker.write(Append(
            origin="client", broker_name=BROKER, topics=[TOPIC], queue_ids=[0], queue_index=[0] * RUN,
            queue_offsets=numbers, log_offsets=[number * 1200 for number in numbers],
            unique_keys=list(map(key, numbers)), client_boot_id="producer", request_seq=first + 1,
        ))  # fmt: skip
        broker.write(Pull(
            **QUEUE, client_id="c", client_boot_id="consumer", request_seq=first, request_offset=first,
            next_offset=first + RUN, count=RUN, code=0,
        ))  # fmt: skip
        for number in numbers:
            one: dict[str, Any] = {"delivery_ids": [number + 1], "queue_offsets": [number]}
            consumer.write(Deliver(
                pq_id=1, **QUEUE, client_id="c", **one, log_offsets=[number * 1200], unique_keys=[key(number)]
            ))  # fmt: skip
            consumer.write(Result(pq_id=1, **QUEUE, **one, status="success", mem_off=number + 1))
        broker.write(OffSet(**QUEUE, old=first, new=first + RUN, by="oneway", client_boot_id="consumer"))
        first += RUN
    broker.close()
    consumer.close()
    return first


if __name__ == "__main__":
    sys.exit(main())
