"""The following audit as a process: a chunker, a taker of its chunks, and the loop between them."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

from dejamq_analytics.follow.chunks import Chunker
from dejamq_analytics.follow.follower import Follower, FollowPace
from dejamq_analytics.follow.state import FollowState
from dejamq_analytics.frames import SparkSession, in_duckdb
from dejamq_analytics.sources.journals import check_journals
from dejamq_analytics.sources.paths import BadInput, local_path

LOOK_MS = 500
Tell = Callable[[Path], None]


class Following(NamedTuple):
    """``out`` gets ``findings/`` and ``anomalies/`` of one run, and ``checkpoint/``, where a later start goes on."""

    journals: Sequence[Path]
    out: Path
    pace: FollowPace


def folders(journals: Sequence[str]) -> list[Path]:
    """Local directories only: what grows is read by its bytes. Raises BadInput."""
    check_journals(journals)
    paths = [local_path(journal) for journal in journals]
    for path, name in zip(paths, journals, strict=True):
        if path is None or not path.is_dir():
            raise BadInput(f"--follow reads directories of this machine, not {name}")
    return [path for path in paths if path is not None]


class Taker(Protocol):
    """Gives each chunk of the spool to the follower once, in order."""

    def look(self) -> None:
        """Take a chunk that is there, or see whether somebody else does. Raises what taking one failed with."""

    def settle(self) -> None:
        """Wait until every chunk is taken. Raises as ``look``."""

    def stop(self) -> None: ...


class Follow:
    """A running one. ``with Follow(…) as running``; ``step`` again and again, or ``forever``.

    ``session`` is Spark's, or DuckDB's in its block of ``using``.
    """

    def __init__(self, session: SparkSession, what: Following, tell: Tell) -> None:
        checkpoint = what.out / "checkpoint"
        self._session, self._spool, self._spark_files = session, checkpoint / "chunks", checkpoint / "spark"
        self._state = FollowState(checkpoint / "state")
        self._chunker = Chunker(
            what.journals, self._spool, self._state.meta.step, quiet_ms=what.pace.delay_us // 1000
        )  # fmt: skip
        self._follower = Follower(self._state, what.out, what.pace, tell)

    @property
    def run_id(self) -> str:
        """One run for as long as the checkpoint lives."""
        return self._state.meta.run_id

    def __enter__(self) -> "Follow":
        self._follower.publish()
        self._taker = self._start()
        return self

    def _start(self) -> Taker:
        if in_duckdb():
            from dejamq_analytics.follow.in_turn import InTurn

            return InTurn(self._session, self._spool, self._follower)
        from dejamq_analytics.follow.streamed import Streamed

        return Streamed(self._session, self._spool, self._spark_files, self._follower, LOOK_MS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taker.stop()

    def step(self, now_ms: int) -> bool:
        """Make the next chunk if it is time to; whether there was something new."""
        return self._chunker.advance(self._state.meta.step.number, now_ms)

    def settle(self) -> None:
        """Wait until every chunk is taken. Raises what taking one failed with."""
        self._taker.settle()

    def forever(self) -> None:
        """Until Ctrl-C, or until a chunk cannot be taken: then raises why."""
        while True:
            self.step(time.monotonic_ns() // 1_000_000)
            self._taker.look()
            time.sleep(LOOK_MS / 1000)
