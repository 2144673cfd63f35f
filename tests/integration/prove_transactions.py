"""``python tests/integration/prove_transactions.py``: transactions while their broker is killed, again and again.

No commit that returned is lost, and nothing that was rolled back is delivered. With RocketMQ's windows open some are
committed twice: the audit finds exactly those, with both records and the cause P7 or P8. With the settings that close
the windows nothing is committed twice.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet
from dejamq_lab import Cluster
from transaction_traffic import CLOSING, Ledger, killed_again_and_again

SETTINGS: dict[str, dict[str, Any]] = {"open": {}, "closed": CLOSING}


def audited(directory: Path) -> list[dict[str, Any]]:
    """The findings of a run, of all groups."""
    asyncio.run(Cluster(directory=directory).audit())
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(directory / "audit" / "findings").to_pylist()
    return rows


def prove(directory: Path, windows: str, kills: int, seed: int) -> tuple[Ledger, Counter[str]]:
    """One run; what was doubled by cause. Raises AssertionError."""
    ledger = asyncio.run(killed_again_and_again(directory, kills, seed, SETTINGS[windows]))
    ledger.check()
    if windows == "closed":
        assert not ledger.doubled, f"committed twice: {list(ledger.doubled.items())[:3]}"
        return ledger, Counter()
    findings = audited(directory)
    ledger.check_told(findings)
    return ledger, Counter(one["cause"] or "undetermined" for one in findings if one["identity"] == "I2")


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the broker of transactions again and again.")
    parser.add_argument("--runs", type=int, default=3, help="with open windows, and as many with closed ones")
    parser.add_argument("--kills", type=int, default=6, help="in one run")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    began, causes = time.monotonic(), Counter[str]()
    committed, kills = Counter[str](), Counter[str]()
    for seed in range(options.seed, options.seed + options.runs):
        for windows in SETTINGS:
            directory = Path(tempfile.mkdtemp(prefix="transactions-"))
            try:
                ledger, doubled = prove(directory, windows, options.kills, seed)
            except (AssertionError, TimeoutError) as failure:
                text = f"FAILED: {failure!r}; windows {windows}, seed {seed}, the journals are in {directory}"
                print(f"\n{text}", file=sys.stderr)
                return 1
            causes += doubled
            committed[windows] += len(ledger.committed)
            kills[windows] += ledger.kills
            print(f"seed {seed}, windows {windows}: {len(ledger.committed)} committed, {sum(doubled.values())} doubled")
    took = f"{time.monotonic() - began:.0f} s, seed {options.seed}"
    told = ", ".join(f"{count} by {cause}" for cause, count in sorted(causes.items())) or "none"
    print(
        f"{took}: open windows: {kills['open']} kills, {committed['open']} committed, doubled {told}, all found; ",
        end="",
    )
    print(
        f"closed: {kills['closed']} kills, {committed['closed']} committed, none doubled; none lost, none rolled back"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
