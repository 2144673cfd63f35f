"""Ctrl-C during an audit: the process ends in order, and nothing that Spark makes of it is printed.

Only the main thread gets signals; in another one nothing here changes anything.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from pyspark.sql import SparkSession

STOP_TIMEOUT_S = 10
Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C counts when the block has ended, and the second one at once."""
    came: list[int] = []
    with _handling(lambda then: lambda number, frame: then(number, frame) if came else came.append(number)):
        yield
    if came:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def stopped(spark: SparkSession) -> Iterator[None]:
    """Stops it at the end. From Ctrl-C on it logs nothing: the user asked for tasks to end in the middle.

    A call into Java that Ctrl-C interrupts leaves its answer to the next call of the same thread, so from then on
    others speak with Java. Spark's own handler does not know that, and is not asked; PySpark's frames do not either,
    and what they fail of while they are left is Ctrl-C all the same.
    """
    came: list[int] = []

    def silence(number: int, _: FrameType | None) -> NoReturn:
        came.append(number)
        _elsewhere(lambda: spark.sparkContext.setLogLevel("OFF"))
        raise KeyboardInterrupt

    try:
        with _handling(lambda then: silence):
            yield
    except BaseException:
        if came:
            _elsewhere(spark.stop)
            raise KeyboardInterrupt from None
        spark.stop()
        raise
    spark.stop()


def _elsewhere(call: Callable[[], object]) -> None:
    """In another thread; not for ever, for Java may be gone."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(STOP_TIMEOUT_S)


@contextmanager
def _handling(around: Callable[[Handler], Handler]) -> Iterator[None]:
    """Replace the handler of SIGINT by ``around`` of it. A process that ignores SIGINT still does."""
    earlier = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(earlier):
        yield
        return
    signal.signal(signal.SIGINT, around(earlier))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)
