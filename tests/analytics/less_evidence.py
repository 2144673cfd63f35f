"""Evidence that is taken away from a recorded run, and what an audit of the rest says that is wrong."""

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zlib import crc32

from dejamq_analytics.sources.commit_log import scan
from dejamq_analytics.sources.paths import BadInput
from dejamq_lab.rocketmq.truth import found_twice
from dejamq_proto.records.record import Record
from recorded import RECORDED, audited, causes_of, truth_of

TRACED = re.compile(rb"(?:Pub|SubBefore|SubAfter)(?=\x01)")
REQUEST = {b"Pub": 5, b"SubBefore": 4, b"SubAfter": 1}
"""The field of a trace record that those of one list have in common: a client sends these together."""
SERVER_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
GO_TIME = re.compile(r'time="([^"]+)"')
LEVEL = re.compile(r"(?:^\S+ \S+ |level=)(INFO|WARN|ERROR|info|warning|error)\b")
HIGHEST = {"WARN": ("INFO",), "ERROR": ("INFO", "WARN", "WARNING")}
"""Levels that a log lacks which was set to this one."""
PARTS = 8
"""A run lasts some minutes: an eighth of it stands for an hour."""
Span = tuple[int, int]
KINDS = ("file", "machine", "hour", "level", "lines", "end", "begin", "middle", "store", "traces")


class Loss(NamedTuple):
    """What is lost, in words, and the act that takes it away from a copy of the run."""

    what: str
    take: Callable[[Path], None]


def single_losses(folder: Path) -> Iterator[Loss]:
    """Each file, each machine, each level of a machine's logs, and each part of the time, at a machine and at all."""
    machines = sorted(path.name for path in folder.iterdir() if path.is_dir())
    for file in _files(folder):
        yield _without_file(str(file.relative_to(folder)))
    for machine in machines:
        yield _without_machine(machine)
        for level in HIGHEST:
            yield _above(machine, level)
    for machine in ("", *machines):
        for span in _spans(folder):
            yield _without_time(machine, span)


def random_loss(folder: Path, chance: random.Random) -> Loss:
    """One of any kind."""
    kind = chance.choice(KINDS)
    machine = chance.choice(sorted(path.name for path in folder.iterdir() if path.is_dir()))
    file = chance.choice([str(path.relative_to(folder)) for path in _files(folder)])
    log = chance.choice([str(path.relative_to(folder)) for path in _files(folder) if path.suffix == ".log"])
    if kind == "file":
        return _without_file(file)
    if kind == "machine":
        return _without_machine(machine)
    if kind == "hour":
        return _without_time(chance.choice(["", machine]), chance.choice([*_spans(folder)]))
    if kind == "level":
        return _above(machine, chance.choice([*HIGHEST]))
    seed = chance.randrange(1 << 32)
    return _some_of_store(kind, seed) if kind in ("store", "traces") else _some_of_log(kind, log, seed)


def loss_of(what: str) -> Loss:
    """The one with these words, as ``Loss.what`` has them."""
    some: dict[str, Callable[..., Loss]] = {
        r"file (\S+)": _without_file,
        r"machine (\S+)": _without_machine,
        r"time (\d+)-(\d+) of (\S+)": lambda begin, end, machine: _without_time(
            "" if machine == "all" else machine, (int(begin), int(end))
        ),
        r"below (\S+) of (\S+)": lambda level, machine: _above(machine, level),
        r"some of the (\S+), (\d+)": lambda kind, seed: _some_of_store(kind, int(seed)),
        r"(\w+) of (\S+), (\d+)": lambda kind, log, seed: _some_of_log(kind, log, int(seed)),
    }
    for pattern, made in some.items():
        if found := re.fullmatch(pattern, what):
            return made(*found.groups())
    raise ValueError(f"no loss has the words {what!r}")


@lru_cache
def whole_verdict(name: str) -> str:
    """The verdict on all evidence of the run."""
    with TemporaryDirectory(prefix="dejamq-whole-") as out:
        return audited(RECORDED / name, Path(out))[0].verdict


def wrong(name: str, losses: list[Loss], work: Path) -> list[str]:
    """What an audit of the run without these says wrongly: nothing, or sentences."""
    run, out, truth = work / "run", work / "out", truth_of(name)
    shutil.copytree(RECORDED / name, run)
    for loss in losses:
        loss.take(run)
    try:
        verdict, findings = audited(run, out)
    except BadInput:  # it says that it cannot tell: that is not wrong
        return []
    told = [
        f"{one['cause']} is named, and was not the cause"
        for one in findings
        if one["cause"] and one["cause"] not in causes_of(truth, one)
    ]
    told += [f"{record} did not come twice" for record in found_twice(findings) - truth.came_twice() if record[1]]
    if verdict.verdict == "clean" and whole_verdict(name) != "clean":
        told.append("it is said to be clean")
    return sorted(set(told))


# what is taken away


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "truth.json")


def _logs(folder: Path) -> list[Path]:
    return [path for path in _files(folder) if path.suffix == ".log"]


def _stores(folder: Path) -> list[Path]:
    return sorted(folder.rglob("commitlog/*"))


def _without_file(name: str) -> Loss:
    return Loss(f"file {name}", lambda run: (run / name).unlink(missing_ok=True))


def _without_machine(name: str) -> Loss:
    return Loss(f"machine {name}", lambda run: shutil.rmtree(run / name, ignore_errors=True))


def _above(machine: str, level: str) -> Loss:
    """The machine's logs were set to this level."""

    def take(run: Path) -> None:
        for log in _logs(run / machine):
            _keep(log, lambda line: _level(line) not in HIGHEST[level])

    return Loss(f"below {level} of {machine}", take)


def _without_time(machine: str, span: Span) -> Loss:
    """What logs, polls, snapshots and traces tell of this time, at one machine or at all."""

    def take(run: Path) -> None:
        folder = run / machine
        for log in _logs(folder):
            _keep(log, lambda line: not _within(_time(line), span))
        for polled in sorted(folder.rglob("*.jsonl")):
            _keep(polled, lambda line: not _within(json.loads(line)["at_ms"], span))
        for snapshot in folder.rglob("consumerOffset-*.json"):
            if _within(int(snapshot.stem.partition("-")[2]), span):
                snapshot.unlink()
        for store in _stores(folder):
            without_traces(store, lambda record: _within(record.store_timestamp_ms, span))

    return Loss(f"time {span[0]}-{span[1]} of {machine or 'all'}", take)


def _some_of_store(kind: str, seed: int) -> Loss:
    return Loss(f"some of the {kind}, {seed}", lambda run: _of_store(run, kind, random.Random(seed)))


def _some_of_log(kind: str, log: str, seed: int) -> Loss:
    return Loss(f"{kind} of {log}, {seed}", lambda run: _of_log(run / log, kind, random.Random(seed)))


def _of_store(run: Path, kind: str, chance: random.Random) -> None:
    for store in _stores(run)[:1]:
        if kind == "store":
            store.write_bytes(store.read_bytes()[: chance.randrange(max(1, store.stat().st_size))])
        else:
            without_traces(store, lambda record: True, lambda: chance.random() < 1 / 3)


def _of_log(log: Path, kind: str, chance: random.Random) -> None:
    if not log.exists():
        return
    text = log.read_bytes()
    at = chance.randrange(max(1, len(text)))
    until = text.find(b"\n", at + len(text) // 4) + 1
    some = b"".join(line for line in text.splitlines(keepends=True) if chance.random() > 0.3)
    left = {"lines": some, "end": text[:at], "begin": text[at:], "middle": text[:at] + text[until:]}
    log.write_bytes(left[kind])


def without_traces(log: Path, of: Callable[[Record], bool], lost: Callable[[], bool] = lambda: True) -> None:
    """Trace records that are lost get a name that nobody knows, in messages ``of`` some time. Those of a list that a
    handler was given are lost together.
    """
    data, at = bytearray(log.read_bytes()), 0
    lists: dict[tuple[bytes, bytes], bool] = {}

    def renamed(found: re.Match[bytes]) -> bytes:
        kind, fields = found[0], found.string[found.start() :].split(b"\x01", REQUEST[found[0]] + 1)
        gone = lists.setdefault((kind, fields[REQUEST[kind]]), lost())
        return b"x" + kind[1:] if gone else kind

    for record, size in scan(log):
        if record.topic == "RMQ_SYS_TRACE_TOPIC" and of(record):
            body = TRACED.sub(renamed, record.body)
            start = data.index(record.body, at)
            data[start : start + len(body)] = body
            data[at + 8 : at + 12] = (crc32(body) & 0x7FFFFFFF).to_bytes(4, "big")
        at += size
    log.write_bytes(data)


# lines


def _keep(file: Path, wanted: Callable[[str], bool]) -> None:
    """Lines that are wanted, each with those behind it that begin with no time: an exception's."""
    kept, keeps = [], True
    for line in file.read_text(errors="surrogateescape").splitlines(keepends=True):
        if file.suffix != ".log" or _time(line):
            keeps = wanted(line)
        if keeps:
            kept.append(line)
    file.write_text("".join(kept), errors="surrogateescape")


def _level(line: str) -> str:
    found = LEVEL.match(line) or LEVEL.search(line)
    return found[1].upper() if found else ""


def _time(line: str) -> int:
    """In milliseconds; 0 where the line begins with none. Servers and Java clients write the time of GMT+8."""
    if found := SERVER_TIME.match(line):
        return round(datetime.fromisoformat(f"{found[1]}+08:00").timestamp() * 1000)
    if found := GO_TIME.match(line):
        return round(datetime.fromisoformat(found[1]).timestamp() * 1000)
    return 0


def _within(time_ms: int, span: Span) -> bool:
    return span[0] <= time_ms < span[1]


def _spans(folder: Path) -> Iterator[Span]:
    """The time of all logs in parts of the same length."""
    times = [time for log in _logs(folder) for line in log.read_text(errors="replace").splitlines()
             if (time := _time(line))]  # fmt: skip
    begin, end = min(times), max(times) + 1000
    for part in range(PARTS):
        yield begin + (end - begin) * part // PARTS, begin + (end - begin) * (part + 1) // PARTS
