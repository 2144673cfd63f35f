"""Ctrl-C during an audit: the process ends in order, and nothing that Spark makes of it is printed.

Only the main thread gets signals; in another one nothing here changes anything.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from pyspark.sql import SparkSession

from dejamq_analytics.sources.interrupts import handling

STOP_TIMEOUT_S = 10


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
        with handling(lambda then: silence):
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
