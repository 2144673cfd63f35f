"""Audits of the evidence while it grows, each in a process of its own. The last one that ended is what pages show."""

import asyncio
import importlib.util
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dejamq_cli.console.settings import ConsoleSettings
from dejamq_cli.console.sources import Extent
from dejamq_cli.console.tables import AuditTables

LOOK_S = 0.5
END_S = 5.0
NEEDED = ("pyarrow", "duckdb")


class Audits:
    """``told`` is called after each audit. One task runs it; it owns a temporary folder."""

    def __init__(self, settings: ConsoleSettings, told: Callable[[], None]) -> None:
        self.sources, self._settings, self._told = settings.sources, settings, told
        self.last: AuditTables | None = None
        self.error = ""
        """Why there is no newer one."""
        self.is_running = False
        self._audited: Extent = frozenset()
        self._older: list[AuditTables] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        if not self.sources:
            return
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            self.error = f"an audit needs {' and '.join(missing)}: pip install 'dejamq[analytics]'"
            return
        with tempfile.TemporaryDirectory(prefix="dejamq-console-", ignore_cleanup_errors=True) as folder:
            try:
                await self._follow(Path(folder))
            finally:
                self.is_running = False
                for tables in (*self._older, *([self.last] if self.last else [])):
                    tables.close()

    async def _follow(self, folder: Path) -> None:
        number, rest_until = 0, 0.0
        while True:
            extent = await asyncio.to_thread(self.sources.extent)
            if extent == self._audited or time.monotonic() < rest_until:
                await asyncio.sleep(LOOK_S)
                continue
            number += 1
            begun = time.monotonic()
            await self._audit(folder / str(number), begun)
            self._audited = extent
            rest_s = self._settings.audit_rest * (time.monotonic() - begun)
            rest_until = time.monotonic() + max(self._settings.refresh_s, rest_s)
            self._told()

    async def _audit(self, out: Path, begun: float) -> None:
        self.is_running = True
        try:
            error = await _audited(self.sources.arguments, out)
            if not error:
                tables = await asyncio.to_thread(AuditTables, out, time.monotonic() - begun)
                await self._show(tables)
        finally:
            self.is_running = False
        self.error = error

    async def _show(self, tables: AuditTables) -> None:
        """The one before it stays for pages that are being made; what is older goes."""
        if self.last is not None:
            self._older.append(self.last)
        self.last = tables
        while len(self._older) > 1:
            old = self._older.pop(0)
            old.close()
            await asyncio.to_thread(shutil.rmtree, old.folder, ignore_errors=True)

    def state(self) -> dict[str, Any] | None:
        """What pages say of the audit; None where there is nothing to audit."""
        if not self.sources:
            return None
        last = self.last
        return {
            "run_id": last and last.run_id, "verdict": last and last.verdict["verdict"],
            "made_at_ms": last and int(last.made_at * 1000), "age_s": last and round(time.time() - last.made_at, 1),
            "took_s": last and round(last.seconds, 2), "is_running": self.is_running, "error": self.error or None,
        }  # fmt: skip


async def _audited(sources: Sequence[str], out: Path) -> str:
    """Empty when ``out`` has all of it; else why not."""
    command = [sys.executable, "-m", "dejamq_analytics.chronicle", *sources, "--out", str(out)]
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE)
    try:
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), END_S)
            except TimeoutError:
                process.kill()
    if process.returncode == 0:
        return ""
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"the audit ended with status {process.returncode}"
