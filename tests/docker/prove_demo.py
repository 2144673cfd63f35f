"""``python tests/docker/prove_demo.py``: the demo of docker-compose.yml, with its audit in a container.

It builds both images. A producer sends orders, two consumers charge them, one of them is killed with -9, and the
audit's own image says why orders came twice. Part of ``make prove``; it needs a container engine and some minutes.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from compose_cluster import BUILT_S, ComposeCluster, build_image, run, running, wait_until
from dejamq_lab.demo.orders import CONSUMER_GROUP

DEADLINE_S = 900
FIRST = 500
"""Orders that are charged before the kill."""


def main() -> int:
    """Exit status 1 when the audit names no cause, or leaves a duplicate undetermined."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=2_000, help="orders a second")
    parser.add_argument("--built", action="store_true", help="take dejamq:local-audit as it is")
    options = parser.parse_args()
    began = time.monotonic()
    build_image()
    if not options.built:
        run(["make", "image-audit"], deadline_s=BUILT_S)
    print(f"{time.monotonic() - began:6.0f} s  images", flush=True)
    with tempfile.TemporaryDirectory(prefix="dejamq-demo-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with running(Path(folder)) as cluster:
            verdict = audited(cluster, options, began)
    print(f"{verdict['messages']} messages, {verdict['duplicates']} duplicates, {verdict['causes']}")
    return int(not verdict["causes"] or verdict["undetermined"] > 0)


def audited(cluster: ComposeCluster, options: argparse.Namespace, began: float) -> dict[str, int]:
    """The verdict of the audit's container on a run with one killed consumer."""

    def tell(what: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {what}", flush=True)

    def ended(service: str) -> bool:
        return cluster.state(service)["Status"] == "exited"

    tell("servers are healthy")
    cluster.compose("up", "-d", "consumer-a", "consumer-b")
    cluster.wait_healthy("consumer-a", "consumer-b")
    cluster.start("producer", settings={"DEJAMQ_ORDERS": str(options.orders), "DEJAMQ_RATE": str(options.rate)})
    wait_until(lambda: delivered(cluster) > FIRST, "some orders are charged", deadline_s=DEADLINE_S)
    cluster.kill("consumer-a")
    tell("consumer-a is killed")
    wait_until(lambda: ended("producer"), "all is sent", deadline_s=DEADLINE_S)
    wait_until(lambda: settled(cluster), "all is consumed", deadline_s=DEADLINE_S)
    cluster.stop("consumer-b")
    tell("all is consumed")
    cluster.start("audit")
    wait_until(lambda: ended("audit"), "the audit has ended", deadline_s=DEADLINE_S)
    assert cluster.state("audit")["ExitCode"] == 0, cluster.logs()
    tell("audited")
    found: dict[str, int] = json.loads((cluster.demo_dir / "audit" / "verdict.json").read_bytes())
    return found


def delivered(cluster: ComposeCluster) -> int:
    """Handlers that have ended so far, by the journals."""
    files = cluster.journal_dir.glob("consumer-*.jsonl")
    return sum(file.read_bytes().count(b'{"event":"RESULT"') for file in files)


def settled(cluster: ComposeCluster) -> bool:
    """Whether the group has no lag."""
    queues = json.loads(cluster.dejamq("group", "describe", CONSUMER_GROUP, "-o", "json"))["queues"]
    return bool(queues) and not any(row["lag"] for row in queues)


if __name__ == "__main__":
    sys.exit(main())
