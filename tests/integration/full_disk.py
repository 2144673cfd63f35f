"""``python full_disk.py SWITCH FLAGS…``: a broker whose disk has no room while the file SWITCH is there."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dejamq_broker.__main__ import main


def full_while(switch: Path, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        if switch.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    return call


if __name__ == "__main__":
    for name in ("posix_fallocate", "pwrite"):
        setattr(os, name, full_while(Path(sys.argv[1]), getattr(os, name)))
    sys.argv[1:] = sys.argv[2:]
    sys.exit(main())
