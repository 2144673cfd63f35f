"""What a process uses, as the kernel counts it in ``/proc``: 0 where that is not there, or the process has ended."""

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
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    sizes = [round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith(f"{kind}:")]
    return sizes[0] if sizes else 0.0
