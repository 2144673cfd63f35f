"""``make interop``: RocketMQ itself reads what dejamq wrote, goes on with it, and dejamq reads on.

On a store that was closed cleanly, on one of which the oldest files have expired, and on one whose broker was killed.
Both answer random SQL92 filters as well.
Exit status: 0 nothing differs,
1 something does, 3 Java, Maven or the jars are missing here.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.index.keys import key_hash
from dejamq_broker.store.offline.verify import verify
from dejamq_proto.loose_json import loads_loose
from filters import differing_filters
from rocketmq import VERSION, Failed, Missing, RocketMQ, fetched_jars
from written import (
    GROUP,
    SMALL,
    SOON,
    Said,
    add_odd_records,
    cluster_in,
    fill,
    said_of,
    store_of,
)

SAME, DIFFERS, CANNOT_TELL = 0, 1, 3
CACHE = Path(__file__).parents[2] / "build" / f"rocketmq-{VERSION}"
COMPRESSION_BITS = 0x701
CLIENT_MADE = {"MIN_OFFSET", "MAX_OFFSET", "CLUSTER"}
KEYS_ASKED, MOST_RESULTS = 40, 64
FILTERS = 20_000
DELAY_PASSES_S = 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument("--jars", type=Path, default=CACHE, help="where the jars are kept (default: build/)")
    parser.add_argument("--keep", type=Path, help="leave stores and logs in this new folder")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    started = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    try:
        jars = fetched_jars(options.jars)
    except Missing as missing:
        print(f"cannot tell: {missing}", file=sys.stderr)
        return CANNOT_TELL
    work = options.keep or Path(tempfile.mkdtemp(prefix="dejamq-interop-"))
    try:
        differences = list(differing_filters(jars, options.seed, FILTERS))
        differences += interop(jars, work.absolute(), options.seed)
    except Failed as failed:
        print(f"DIFFERS: {failed}")
        return DIFFERS
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
    for difference in differences:
        print(f"DIFFERS: {difference}")
    print(f"{len(differences)} differences, {time.monotonic() - started:.0f} s")
    return DIFFERS if differences else SAME


def interop(jars: Path, work: Path, seed: int) -> list[str]:
    """All differences, in both kinds of store."""
    stores = asyncio.run(write_stores(work / "cluster", seed))
    differences = []
    for kind, store in stores.items():
        for difference in one_store(jars, store, work / kind):
            differences.append(f"{kind}: {difference}")
    return differences


async def write_stores(directory: Path, seed: int) -> dict[str, Path]:
    """One after a clean close, that one without its oldest files, and the first one used on, after a kill."""
    store, stores = store_of(directory), {}
    async with cluster_in(directory) as cluster:
        await fill(cluster, seed, 0, 200)
    add_odd_records(store)
    stores["clean"] = Path(shutil.copytree(store, directory / "clean"))
    stores["expired"] = without_oldest_files(Path(shutil.copytree(store, directory / "expired")))
    async with cluster_in(directory) as cluster:
        await fill(cluster, seed + 1, 200, 100)
        cluster.broker("broker-a").kill()
    stores["killed"] = Path(shutil.copytree(store, directory / "killed"))
    return stores


def without_oldest_files(store: Path) -> Path:
    """As retention leaves it: queues and index begin where the log does."""
    for path in sorted((store / "commitlog").iterdir())[:2]:
        path.unlink()
    said_of(store)
    return store


def one_store(jars: Path, store: Path, work: Path) -> Iterator[str]:
    """What RocketMQ says differently about this store, then dejamq about what RocketMQ made of it."""
    said = said_of(Path(shutil.copytree(store, work / "ours")))
    for asked_for, offsets in said.queries.items():
        yield from differs(f"dejamq's query of {asked_for}", said.found[asked_for], offsets[-MOST_RESULTS:])
    theirs = Path(shutil.copytree(store, work / "theirs"))
    print(f"{work.name}: {sum(map(len, said.records.values()))} records, {len(said.bounds)} queues", flush=True)
    with RocketMQ(jars, theirs, work / "rocketmq", SMALL, "Orders") as rocketmq:
        yield from compare_reading(rocketmq, said)
        yield from compare_single(rocketmq, said)
        yield from compare_offsets(rocketmq, store)
        sent = rocketmq.ask(
            f"send\tFromRocketMQ\t{number % 2}\tTagA\tkey-{number}\tfrom RocketMQ {number}\t0" for number in range(200)
        )
        yield from (f"RocketMQ could not append: {answer}" for answer in sent if "SEND_OK" not in answer)
        yield from compare_delayed(rocketmq, said)
        rocketmq.stop()
    yield from compare_after(store, theirs, said, "stopped")
    with RocketMQ(jars, theirs, work / "rocketmq", SMALL, "Orders") as rocketmq:
        rocketmq.ask(f"send\tFromRocketMQ\t0\tTagB\tkey-{number}\tand on {number}\t0" for number in range(200, 300))
        rocketmq.kill()
    yield from compare_after(store, theirs, said, "killed")


def compare_reading(rocketmq: RocketMQ, said: Said) -> Iterator[str]:
    """Every queue's ends and records, searches by time, queries by key, messages by offset id and by unique key."""
    keys = list(said.bounds)
    for key, bounds in zip(keys, rocketmq.ask(f"bounds\t{topic}\t{queue}" for topic, queue in keys), strict=True):
        yield from differs(f"bounds of {key}", bounds, list(said.bounds[key]), grows=key[0] in grown())
    asked = [f"records\t{topic}\t{queue}\t{low}\t{high}" for (topic, queue), (low, high) in said.bounds.items()]
    for key, records in zip(keys, rocketmq.ask(asked), strict=True):
        yield from compare_records(f"{key[0]}/{key[1]}", records, said.records[key])
    answers = rocketmq.ask(f"search\t{topic}\t{queue}\t{time_ms}" for topic, queue, time_ms, _ in said.searches)
    for (topic, queue, time_ms, offset), answer in zip(said.searches, answers, strict=True):
        yield from differs(f"search of {time_ms} in {topic}/{queue}", answer, offset, grows=topic in grown())
    queries = list(said.queries.items())[:: max(1, len(said.queries) // KEYS_ASKED)]
    answers = rocketmq.ask(f"query\t{topic}\t{key}" for (topic, key), _ in queries)
    for (asked_for, offsets), answer in zip(queries, answers, strict=True):
        found = sorted(answer) if isinstance(answer, list) else answer
        if found and len(found) < len(offsets) and collisions(said, asked_for) > MOST_RESULTS:
            offsets = [offset for offset in offsets if offset in found]
        yield from differs("query of {1} in {0}".format(*asked_for), found, offsets)


def compare_single(rocketmq: RocketMQ, said: Said) -> Iterator[str]:
    """Some records of each queue by their log offset, and by their unique key."""
    some = [record for records in said.records.values() for record in records[:: max(1, len(records) // 3)]]
    answers = rocketmq.ask(f"view\t{record['topic']}\t{record['log_offset']}" for record in some)
    for record, answer in zip(some, answers, strict=True):
        where = f"{record['topic']}/{record['queue_id']}"
        yield from compare_records(where, [answer] if "topic" in answer else answer, [record])
    named = [record for record in some if "UNIQ_KEY" in record["properties"]]
    answers = rocketmq.ask(f"unique\t{record['topic']}\t{record['properties']['UNIQ_KEY']}" for record in named)
    for record, answer in zip(named, answers, strict=True):
        if not isinstance(answer, list) or record["log_offset"] not in answer:
            yield f"{record['properties']['UNIQ_KEY']} is at {record['log_offset']}, RocketMQ answers {answer}"


def collisions(said: Said, asked_for: tuple[str, str]) -> int:
    """Records that the index answers for this key: those of keys with the same hash too, which RocketMQ's client drops
    after its broker has counted them.
    """
    value = key_hash(*asked_for)
    return sum(len(offsets) for key, offsets in said.queries.items() if key_hash(*key) == value)


def grown() -> set[str]:
    """Topics that RocketMQ itself appends to while it is asked: delayed messages whose time has come."""
    return {"Soon", "FromRocketMQ", f"%RETRY%{GROUP}"}


def differs(what: str, answer: Any, expected: Any, *, grows: bool = False) -> Iterator[str]:
    if grows and isinstance(answer, list) and len(answer) == 2 and answer[1] >= expected[1]:
        answer = [answer[0], expected[1]]
    if answer != expected:
        yield f"{what} is {str(answer)[:300]}, it must be {str(expected)[:300]}"


def compare_records(where: str, answer: Any, expected: list[dict[str, Any]]) -> Iterator[str]:
    """Every field of every record; a RocketMQ client takes the compression away and adds properties of its own."""
    if not isinstance(answer, list) or len(answer) != len(expected):
        count = len(answer) if isinstance(answer, list) else answer
        yield f"{where}: {count} records at RocketMQ, {len(expected)} at dejamq"
        return
    for theirs, ours in zip(answer, expected, strict=True):
        for name, value in theirs.items():
            mine = ours[name]
            if name == "properties":
                value = {key: text for key, text in value.items() if key not in CLIENT_MADE}
                mine = {key: text for key, text in mine.items() if key not in CLIENT_MADE}
            if name.endswith("_host"):
                mine = mine.replace("[::1]", "0:0:0:0:0:0:0:1")
            if name == "sys_flag":
                value, mine = value & ~COMPRESSION_BITS, mine & ~COMPRESSION_BITS
            yield from differs(f"{name} of {where}@{ours['queue_offset']}", value, mine)


def compare_offsets(rocketmq: RocketMQ, store: Path) -> Iterator[str]:
    """The group's progress, read by RocketMQ from the broker's JSON."""
    table = loads_loose((store / "config" / "consumerOffset.json").read_text())["offsetTable"]
    expected = {f"Orders/{queue}": offset for queue, offset in table[f"Orders@{GROUP}"].items()}
    (answer,) = rocketmq.ask([f"offsets\t{GROUP}"])
    found = {queue: answer.get(queue) for queue in expected}
    yield from differs(f"progress of {GROUP}", found, expected)


def compare_delayed(rocketmq: RocketMQ, said: Said) -> Iterator[str]:
    """Messages that dejamq put off are delivered by RocketMQ when their time has come."""
    waiting = sum(
        record["properties"]["REAL_TOPIC"] == "Soon"
        for (topic, _), records in said.records.items()
        if topic == "SCHEDULE_TOPIC_XXXX"
        for record in records
    )
    deadline = time.monotonic() + DELAY_PASSES_S
    delivered: list[Any] = [0, 0]
    while delivered[1] < waiting and time.monotonic() < deadline:
        (delivered,) = rocketmq.ask(["bounds\tSoon\t0"])
    if said.bounds[("SCHEDULE_TOPIC_XXXX", SOON - 1)][0] == 0:
        yield from differs("delayed messages delivered", delivered[1], waiting)
    elif delivered[1] < waiting:
        yield f"{delivered[1]} of {waiting} delayed messages delivered by RocketMQ"


def compare_after(before: Path, theirs: Path, said: Said, how: str) -> Iterator[str]:
    """dejamq opens what RocketMQ left: it is whole, all is there, and what was there has not moved."""
    report = verify(StorePaths(theirs), lambda done, in_all: None)
    if report.verdict != "whole":
        yield f"verify calls the store damaged after RocketMQ was {how}: {[each.text for each in report.findings]}"
    again = said_of(Path(shutil.copytree(theirs, theirs.with_name(f"after-{how}"))))
    for key, records in said.records.items():
        yield from differs(f"{key} after RocketMQ was {how}", again.records[key][: len(records)], records)
    for asked_for, offsets in again.queries.items():
        what = f"dejamq's query of {asked_for} after RocketMQ was {how}"
        yield from differs(what, again.found[asked_for], offsets[-MOST_RESULTS:])
    sent = [len(again.records[("FromRocketMQ", queue)]) for queue in (0, 1)]
    yield from differs(f"messages sent to RocketMQ until it was {how}", sent, [100 + 100 * (how == "killed"), 100])


if __name__ == "__main__":
    sys.exit(main())
