"""``python -m dejamq_lab.cluster.die_with_parent PARENT MODULE ARGUMENTS…``: a module that ends with its parent.

A test run that is killed cannot clean up; the kernel then ends the servers it had started.
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def tie() -> None:
    """Let the kernel kill this process when its parent ends: in the child, before it is replaced by a program."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except AttributeError:
        pass  # not Linux: only an orderly exit cleans up there


def main() -> None:
    parent, module, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    tie()
    if os.getppid() != parent:  # it died before we could ask
        sys.exit(1)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
