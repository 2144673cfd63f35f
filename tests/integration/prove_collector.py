"""A real OpenTelemetry collector takes what docs/telemetry.md's example and the servers export.

Builds the collector with Go from its own modules: an OTLP receiver and an exporter to a file. ``--collector`` takes one
that was built before.
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dejamq_lab import Cluster
from dejamq_proto.journal.lines import whole_lines
from test_docs_telemetry import run_example

HERE = Path(__file__).parent / "collector"
CONFIG = """\
receivers: {otlp: {protocols: {grpc: {endpoint: ADDRESS}}}}
exporters: {file: {path: FILE, flush_interval: 100ms}}
service:
  pipelines:
    traces: {receivers: [otlp], exporters: [file]}
    metrics: {receivers: [otlp], exporters: [file]}
"""
BILLING = ["send orders", "process orders", "send_back orders", "process orders"]
SERVERS = {"dejamq-broker": "rocketmq_messages_in_total", "dejamq-namesrv": "dejamq_namesrv_brokers"}


def built(folder: Path) -> Path:
    """The collector's program."""
    folder.mkdir(parents=True, exist_ok=True)
    program = (folder / "otelcol").resolve()
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE, check=True)
    return program


@contextlib.contextmanager
def collector(program: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Its address, and the file of JSON lines that it writes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    written, config = folder / "told.jsonl", folder / "collector.yaml"
    config.write_text(CONFIG.replace("ADDRESS", address).replace("FILE", str(written)))
    with (folder / "collector.log").open("wb") as log:
        process = subprocess.Popen([str(program), "--config", f"file:{config}"], stdout=log, stderr=log)
        try:
            until(lambda: process.poll() is not None or listens(address), "the collector listens")
            if process.poll() is not None:
                raise SystemExit((folder / "collector.log").read_text())
            yield address, written
        finally:
            process.terminate()
            process.wait(30)


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as asking:
        return asking.connect_ex((host, int(port))) == 0


def until(condition: Callable[[], object], what: str, deadline_s: float = 60) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(0.1)


def resources(written: Path, kind: str, scopes: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The service and the scope of everything of a kind."""
    for line in whole_lines(written) if written.exists() else ():
        for resource in json.loads(line).get(kind, ()):
            names = {one["key"]: one["value"].get("stringValue") for one in resource["resource"]["attributes"]}
            for scope in resource[scopes]:
                yield str(names["service.name"]), scope


def traces(written: Path) -> dict[str, list[str]]:
    """Names of the program's spans in the order of their begins, by trace."""
    spans = [span for service, scope in resources(written, "resourceSpans", "scopeSpans")
             if service == "shop" for span in scope["spans"]]  # fmt: skip
    found: dict[str, list[str]] = {}
    for span in sorted(spans, key=lambda one: int(one["startTimeUnixNano"])):
        found.setdefault(span["traceId"], []).append(span["name"])
    return found


def metrics(written: Path) -> set[tuple[str, str]]:
    """Services and the names of their metrics."""
    return {
        (service, metric["name"]) for service, scope in resources(written, "resourceMetrics", "scopeMetrics")
        for metric in scope["metrics"]
    }  # fmt: skip


def prove(program: Path, folder: Path) -> str:
    with collector(program, folder) as (address, written):
        settings = {"metrics_otlp_target": f"http://{address}", "metrics_otlp_interval_ms": 500}
        with Cluster(directory=folder / "cluster", time_scale=0.1, settings=settings) as cluster:
            run_example(folder, cluster.namesrv, address)
            until(lambda: set(SERVERS.items()) <= metrics(written), "metrics of both servers")
        until(lambda: BILLING in traces(written).values(), f"a trace of {BILLING}")
        names = metrics(written)
    assert ("shop", "messaging.process.duration") in names
    spans = sum(map(len, traces(written).values()))
    return f"{spans} spans, {len(names)} metrics of {len({service for service, _ in names})} services"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collector", type=Path, help="its program; default: built in build/collector")
    given = parser.parse_args()
    program = given.collector.resolve() if given.collector else built(Path("build/collector"))
    with tempfile.TemporaryDirectory() as folder:
        print(f"a real collector took {prove(program, Path(folder))}", flush=True)


if __name__ == "__main__":
    os.environ.pop("OTEL_EXPORTER_OTLP_HEADERS", None)
    main()
