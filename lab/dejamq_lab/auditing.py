"""An audit in a process of its own, which has an engine of its own and ends with it."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dejamq_lab.errors import ClusterFailed

AUDITED = (0, 1, 3)
"""Exit statuses of an audit that came to a verdict: clean, findings, undetermined."""


async def audit(
    journal_dir: Path | None, stores: Sequence[Path], out: Path, evidence: Sequence[Path] = ()
) -> dict[str, Any]:
    """The verdict; ``out`` has findings and report too, and in ``audit.log`` what the audit said. Stores without a
    commit log are left out. ``evidence`` is of what keeps no journal. Raises ClusterFailed with the audit's last words.
    """
    command = [
        sys.executable,
        "-m",
        "dejamq_analytics",
        *([str(journal_dir)] if journal_dir else []),
        "--out",
        str(out),
    ]
    command += [part for folder in evidence for part in ("--evidence", str(folder))]
    command += [part for store in stores if (store / "commitlog").exists() for part in ("--store", str(store))]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return _verdict(out, process.returncode, said)


def _verdict(out: Path, status: int | None, said: bytes) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    (out / "audit.log").write_bytes(said)
    verdict = out / "verdict.json"
    if status not in AUDITED or not verdict.exists():
        lines = said.decode("utf-8", "replace").strip().splitlines()
        raise ClusterFailed(f"the audit gave no verdict: {lines[-1] if lines else 'it said nothing'}")
    found: dict[str, Any] = json.loads(verdict.read_bytes())
    return found
