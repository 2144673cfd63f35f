"""One row of the pipeline, and the words of what it does not decide."""

from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as sf

NOT_BY_THIS_VERSION = "cause not decidable by this version: "


class Stage(NamedTuple):
    """Either it names a ``cause``, or it says what is ``missing`` to name one."""

    name: str
    when: Column
    cause: str | None = None
    missing: Column | None = None
    trigger: Column | None = None
    """What set it off; without one, how the first owner's hold on the queue ended."""
    expected: bool = False


def later(stage: str) -> Column:
    """A stage that this version recognises and does not decide; the words are what ``missing`` says."""
    return sf.lit(NOT_BY_THIS_VERSION + stage)
