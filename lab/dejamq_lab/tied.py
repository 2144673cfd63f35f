"""``python -m dejamq_lab.tied PARENT MODULE ARGUMENTS…``: run a module as long as the parent process lives.

A test run that is killed cannot clean up; the kernel then ends the servers it had started.
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, module, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except AttributeError:
        pass  # not Linux: only an orderly exit cleans up there
    if os.getppid() != parent:  # it died before we could ask
        sys.exit(1)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
