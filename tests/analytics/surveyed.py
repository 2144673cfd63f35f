"""The survey's two readings without Spark: what it takes of some journals."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from dejamq_analytics.sources.overlap import Overlap
from dejamq_analytics.survey import chunks, keys, look, pick, spark_readings
from dejamq_analytics.survey.keys import Candidates
from dejamq_analytics.survey.note import Note
from dejamq_analytics.survey.pick import WantedLines
from dejamq_analytics.survey.processes import InProcesses
from dejamq_analytics.survey.survey import survey, wanted_of

Line = dict[str, Any]
Row = dict[str, Any]
TASKS = 3


class Taken(NamedTuple):
    """``texts`` that were taken, each with its file, ``messages`` that there are, ``notes`` of the first reading, what
    groups had, what was wanted of the second reading.
    """

    texts: list[tuple[str, str]]
    messages: int
    notes: list[Note]
    overlap: Overlap
    wanted: WantedLines

    @property
    def lines(self) -> list[Line]:
        """Those that can be read."""
        return [line for text, _ in self.texts if (line := _line(text)) is not None]


class AtOnce(ProcessPoolExecutor):
    """Does in this process, at once, what it is given."""

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        return iter([*map(fn, *iterables)])


def taken(directory: Path) -> Taken:
    """Each journal is a task of both readings. All ways to read are gone, and take the same."""
    files = sorted(directory.glob("*.jsonl"))
    by_text, by_chunk = _of_texts(files), _of_chunks(directory)
    assert sorted(by_chunk.texts) == sorted(by_text.texts)
    with TemporaryDirectory() as folder, AtOnce(1) as pool:
        by_processes = survey(InProcesses(pool, Path(folder), chunks.cut([str(directory)]) or [], None))
        assert sorted(by_processes.texts.each()) == sorted(by_chunk.texts)
    assert (by_processes.messages, by_processes.overlap) == (by_chunk.messages, by_chunk.overlap)
    return by_chunk


def _of_texts(files: list[Path]) -> Taken:
    looked = [row for file in files for batch in look.look_at_texts(None)(_batch(file)) for row in batch.to_pylist()]
    wanted, had, whole, notes = _concluded(looked)
    picked = [batch for file in files for batch in pick.pick_texts(lambda: wanted)(_batch(file))]
    return Taken(_texts(looked, picked), whole.messages, notes, had, wanted)


def _of_chunks(directory: Path) -> Taken:
    parts = chunks.cut([str(directory)])
    assert parts is not None
    looked = [row for batch in look.look_at_chunks(parts, TASKS, None)(_numbers()) for row in batch.to_pylist()]
    wanted, had, whole, notes = _concluded(looked)
    indexes = [pa.RecordBatch.from_pydict({"data": [row["data"]]}) for row in looked if row["kind"] == look.INDEX]
    picked = [*spark_readings.pick_indexed(lambda: wanted)(iter(indexes))]
    return Taken(_texts(looked, picked), whole.messages, notes, had, wanted)


def _concluded(looked: list[Row]) -> tuple[WantedLines, Overlap, Candidates, list[Note]]:
    notes = [msgspec.msgpack.decode(row["data"], type=Note) for row in looked if row["kind"] == look.NOTE]
    entries = defaultdict[tuple[str, int], list[bytes]](list)
    for row in looked:
        if row["kind"] in (look.KEYS, look.BUSINESS):
            entries[row["kind"], row["bucket"]].append(row["data"])
    judged = [
        keys.judged(b"".join(data), business=kind == look.BUSINESS, brokers_known=True)
        for (kind, _), data in entries.items()
    ]
    whole = keys.together(judged)
    return *wanted_of(notes, whole, None), whole, notes


def _texts(looked: list[Row], picked: list[pa.RecordBatch]) -> list[tuple[str, str]]:
    texts = [(row["text"], row["file"]) for row in looked if row["kind"] == look.LINE]
    return texts + [(row["text"], row["file"]) for batch in picked for row in batch.to_pylist()]


def everything(directory: Path) -> list[Line]:
    """All lines that can be read."""
    texts = [text for file in sorted(directory.glob("*.jsonl")) for text in file.read_bytes().splitlines()]
    return [line for text in texts if (line := _line(text)) is not None]


def _line(text: str | bytes) -> Line | None:
    try:
        return msgspec.json.decode(text, type=Line)
    except msgspec.DecodeError:
        return None


def _batch(file: Path) -> Iterator[pa.RecordBatch]:
    texts = [text.decode() for text in file.read_bytes().splitlines()]
    columns = [pa.array(texts, pa.string()), pa.array([file.name] * len(texts), pa.string())]
    yield pa.RecordBatch.from_arrays(columns, names=["text", "file"])


def _numbers() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"id": [*range(TASKS)]})
