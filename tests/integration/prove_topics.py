"""Thousands of topics, created 16 at a time: how long it takes, and that each is on disk when its answer comes.

python tests/integration/prove_topics.py --topics 3000
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from consumer_cluster import servers
from dejamq import Admin

AT_A_TIME = 16
LOOKED_AT = 50
"""One topic of this number is looked for in the file at its answer: to read the file costs more than the topic."""


async def prove(topics: int, directory: Path) -> int:
    """The number of topics that failed, or were not on disk when they were answered."""
    failures, slowest_s, left = list[str](), 0.0, iter(range(topics))
    async with servers(directory) as cluster, Admin(namesrv=cluster.namesrv.address) as admin:
        file = directory / "store" / "config" / "topics.json"

        async def create() -> None:
            nonlocal slowest_s
            for number in left:
                name, began_s = f"topic-{number:06}", time.monotonic()
                try:
                    await admin.create_topic(name, queues=4)
                except Exception as error:
                    failures.append(f"{name}: {error}")
                slowest_s = max(slowest_s, time.monotonic() - began_s)
                if number % LOOKED_AT == 0 and name not in json.loads(file.read_text())["topicConfigTable"]:
                    failures.append(f"{name}: answered, and not on disk")

        began_s = time.monotonic()
        await asyncio.gather(*(create() for _ in range(AT_A_TIME)))
        took_s = time.monotonic() - began_s
    print(
        f"{topics} topics, {AT_A_TIME} at a time: {took_s:.1f} s, the slowest {slowest_s:.2f} s; {len(failures)} failed"
    )
    for failure in failures[:10]:
        print(" ", failure)
    return len(failures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=3000)
    with tempfile.TemporaryDirectory(prefix="dejamq-topics-") as directory:
        raise SystemExit(1 if asyncio.run(prove(parser.parse_args().topics, Path(directory))) else 0)


if __name__ == "__main__":
    main()
