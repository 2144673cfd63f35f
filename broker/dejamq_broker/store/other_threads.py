"""Whether a thread that can wait had better wait: threads share cores, and the interpreter."""

import time

BUSY_CORE = 0.2
"""A process whose other threads had more than this of a core is busy, as with pulls, which do not make a log grow."""


class OtherThreads:
    """What the process does beside the thread that asks."""

    def __init__(self) -> None:
        self._seen: tuple[float, float] | None = None

    def busy(self) -> bool:
        """Whether it had more than ``BUSY_CORE`` of a core since the last question; False at the first one."""
        seen, self._seen = self._seen, (time.monotonic(), time.process_time() - time.thread_time())
        return seen is not None and self._seen[1] - seen[1] > BUSY_CORE * (self._seen[0] - seen[0])
