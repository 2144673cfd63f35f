"""What a run leaves behind, laid out as an operator would copy it: a folder for each machine, and what is true."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dejamq_lab.rocketmq.servers import JavaServer
from dejamq_lab.rocketmq.stage import RocketMQStage

LOGS = ("broker.log", "store.log", "lock.log", "filter.log", "transaction.log", "broker_default.log")
CONFIGS = ("consumerOffset.json", "delayOffset.json")
HOME = b"/home/rocketmq"
Causes = dict[str, list[str]]
"""Of each key the causes of its duplicates, ``*`` for all other keys."""


def collect(stage: RocketMQStage, about: str, causes: Causes, into: Path) -> None:
    """Logs, stores and polled answers into folders by machine, and ``truth.json``."""
    for machine in stage.machines:
        _copy_logs(machine.logs(), into / machine.name, stage.work)
    for broker in stage.servers.brokers.values():
        logs = [log for name in LOGS for log in broker.home.rglob(name)]
        _copy_logs(logs, into / broker.name / "logs", stage.work)
        _copy_store(broker, into / broker.name / "store")
    for server in stage.servers.namesrvs:
        name = server.name if len(stage.servers.namesrvs) > 1 else "namesrv"
        _copy_logs(server.home.rglob("namesrv.log"), into / name / "logs", stage.work)
    _write_snapshots(stage, into / stage.servers.broker.name / "snapshots")
    if stage.collected.exists():
        kept = (file for file in stage.collected.iterdir() if file.name != "lock" and file.suffix != ".tmp")
        _copy_logs(kept, into / "collected", stage.work)
    truth = {"about": about, "causes": causes, "deliveries": deliveries(stage)}
    (into / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def deliveries(stage: RocketMQStage) -> list[dict[str, Any]]:
    """What each handler was given, as it said itself."""
    brokers = {broker.port: broker.name for broker in stage.servers.brokers.values()}
    found = [
        {
            "at_ms": int(words[0]), "machine": machine.name, "key": words[2], "unique_key": words[3],
            "topic": words[4], "queue_id": int(words[5]), "queue_offset": int(words[6]), "times": int(words[7]),
            "broker": brokers[int(words[8].rpartition(":")[2])],
        }
        for machine in stage.machines for words in map(str.split, machine.said()) if words[1:2] == ["got"]
    ]  # fmt: skip
    return sorted(found, key=lambda one: one["at_ms"])


def _copy_store(broker: JavaServer, into: Path) -> None:
    """Its commit log without the empty rest of the last file, and its offsets."""
    (into / "commitlog").mkdir(parents=True)
    for file in sorted((broker.store / "commitlog").iterdir()):
        written = file.read_bytes().rstrip(b"\0")
        if written:
            (into / "commitlog" / file.name).write_bytes(written + b"\0" * 8)
    (into / "config").mkdir()
    for name in CONFIGS:
        for file in (broker.store / "config").glob(f"{name}*"):
            shutil.copy(file, into / "config" / file.name)


def _write_snapshots(stage: RocketMQStage, into: Path) -> None:
    for at_ms, content in stage.snapshots:
        if content:
            into.mkdir(exist_ok=True)
            (into / f"consumerOffset-{at_ms}.json").write_bytes(content)


def _copy_logs(logs: Iterable[Path], folder: Path, work: Path) -> None:
    """With paths as on a machine of RocketMQ's own."""
    for log in logs:
        if log.stat().st_size:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / log.name).write_bytes(log.read_bytes().replace(str(work).encode(), HOME))
