"""``python hostile_watched.py FILE MODULE ARGUMENTS``: a server that tells of itself when it gets SIGUSR1.

It writes what no other process can see into FILE: its tasks, its objects, and what the C library's heap holds.
"""

import asyncio
import ctypes
import gc
import json
import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any


class MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "used", "free", "keepcost")
    ]


def heap() -> dict[str, int]:
    """Bytes of the C library's heaps; empty where it is another library."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return {}
    mallinfo.restype = MallInfo
    found = mallinfo()
    return {"used": found.used, "free": found.free, "mapped": found.hblkhd}


def told() -> dict[str, Any]:
    try:
        tasks = len(asyncio.all_tasks(asyncio.get_running_loop()))
    except RuntimeError:
        tasks = 0
    return {"tasks": tasks, "threads": threading.active_count(), "objects": len(gc.get_objects()), "heap": heap()}


def main() -> None:
    path, module = Path(sys.argv[1]), sys.argv[2]

    def tell(*_: object) -> None:
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(told()))
        os.replace(beside, path)

    signal.signal(signal.SIGUSR1, tell)
    sys.argv[:] = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
