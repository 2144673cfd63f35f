"""One row of the pipeline, and the words of what it does not decide."""

from typing import NamedTuple

from dejamq_analytics.frames import Column
from dejamq_analytics.frames import functions as sf

NOT_BY_THIS_VERSION = "cause not decidable by this version: "


class Stage(NamedTuple):
    """Either it names a ``cause``, or it says what is ``missing`` to name one."""

    name: str
    when: Column
    cause: str | None = None
    missing: Column | None = None
    trigger: Column | None = None
    """The event that set it off; without one, the end of the first owner's hold on the queue."""
    expected: bool = False


def later(stage: str) -> Column:
    """A stage that this version recognises and does not decide; the words are what ``missing`` says."""
    return sf.lit(NOT_BY_THIS_VERSION + stage)


def blamed(cause: str, trigger: Column) -> Column:
    """A decision that names its cause: a struct of cause, trigger and missing."""
    nothing = sf.lit(None).cast("string")
    return sf.struct(sf.lit(cause).alias("cause"), trigger.alias("trigger"), nothing.alias("missing"))


def undecided(missing: Column) -> Column:
    """A decision that names what would have to be there."""
    nothing = sf.lit(None).cast("string")
    return sf.struct(nothing.alias("cause"), nothing.alias("trigger"), missing.alias("missing"))
