"""Whether a thread that can wait had better wait: threads share cores, and the interpreter."""

import time


class OtherThreads:
    """Measures the work of the process beside the calling thread. The process is busy when other
    threads have more than ``share`` of a core, as with pulls, which do not make a log grow.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._seen: tuple[float, float] | None = None

    def busy(self) -> bool:
        """Whether it was since the last question; False at the first one."""
        seen, self._seen = self._seen, (time.monotonic(), time.process_time() - time.thread_time())
        return seen is not None and self._seen[1] - seen[1] > self._share * (self._seen[0] - seen[0])
