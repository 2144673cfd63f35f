"""The journals of many runs as one history, so that one audit reads them all: planning costs Spark more than reading.

Every run has its ``broker-a``, its group ``g``, its message number 5. Every name gets the run's mark, in copies
of the journals, so that no rule finds anything of one run at another; ``plain`` takes the marks away. Boot ids
and message ids are never twice, and stay as they are.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto.loose_json import BAD_JSON

NAMES = frozenset({"broker_name", "group", "process", "target", "queues", "business_keys"})
"""Fields, and lists, that name a broker, group, process or business event: what rules join by."""
MARK = re.compile(r"‹(\d+)›")
PIDS = 10_000_000
"""More than any process id: run 3 has the ids from 30,000,000 on."""
PID_IN_NAME = re.compile(r"@(\d+)#")


def join(runs: Sequence[Iterable[Path]], directory: Path) -> None:
    """Write copies of each run's journals into ``directory``, line by line; run 0 is the first of ``runs``."""
    directory.mkdir(parents=True, exist_ok=True)
    for run, journals in enumerate(runs):
        for journal in journals:
            with journal.open("rb") as lines, (directory / f"{run}-{journal.name}").open("wb") as copy:
                copy.writelines(marked(line, run) for line in lines)


def marked(line: bytes, run: int) -> bytes:
    """The line of a journal with the names of its run. A torn one stays as it is: no rule reads it."""
    try:
        event: dict[str, Any] = msgspec.json.decode(line)
    except BAD_JSON:
        return line
    for name in NAMES & event.keys():
        event[name] = _marked(event[name], f"‹{run}›")
    if "process" in event:  # a client's name has its process id in it, by which faults are laid to it
        event["process"] = PID_IN_NAME.sub(lambda found: f"@{_pid(int(found[1]), run)}#", event["process"])
    if event.get("target_pid"):
        event["target_pid"] = _pid(event["target_pid"], run)
    return msgspec.json.encode(event) + b"\n"


def run_of(text: str) -> int:
    """The run of the mark in it. Raises ValueError for a text without a mark, or with marks of two runs."""
    found = {int(run) for run in MARK.findall(text)}
    if len(found) != 1:
        raise ValueError(f"of {len(found)} runs: {text[:200]}")
    return found.pop()


def plain(text: str) -> str:
    """Without marks, as an audit of the run alone would say it."""
    return PID_IN_NAME.sub(lambda found: f"@{int(found[1]) % PIDS}#", MARK.sub("", text))


def _marked(value: Any, mark: str) -> Any:
    if isinstance(value, list):
        return [_marked(each, mark) for each in value]
    return mark + value if value else value  # '' names nobody


def _pid(pid: int, run: int) -> int:
    return (run + 1) * PIDS + pid
