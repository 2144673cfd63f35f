"""Use of a process, and free memory, as ``/proc`` tells them: 0 where that is not there, or the process has ended."""

import os
from pathlib import Path


def core_seconds(pid: int) -> float:
    """Processor time so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, kind: str = "RssAnon") -> float:
    """To a tenth. RssAnon is the process's own; RssFile, of mapped files, is the disk's cache; VmRSS is all of it."""
    return round(_kib(Path(f"/proc/{pid}/status"), kind) / 1024, 1)


def free_bytes() -> int:
    """The machine's memory that holds nothing."""
    return _kib(Path("/proc/meminfo"), "MemFree") * 1024


def _kib(file: Path, name: str) -> int:
    """One of the sizes that the kernel tells there, a line each."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
