"""The survey's two readings without Spark: what it takes of some journals."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from dejamq_analytics.survey import keys, look, pick
from dejamq_analytics.survey.keys import Candidates
from dejamq_analytics.survey.note import Note
from dejamq_analytics.survey.survey import wanted_of

Line = dict[str, Any]


class Taken(NamedTuple):
    """``lines`` that were taken, ``messages`` that there are, ``notes`` of the first reading."""

    lines: list[Line]
    messages: int
    notes: list[Note]


def taken(directory: Path) -> Taken:
    """Each journal is a task of both readings."""
    files = sorted(directory.glob("*.jsonl"))
    rows = [row for file in files for batch in look.looker(None)(_batch(file)) for row in batch.to_pylist()]
    notes = [msgspec.msgpack.decode(row["data"], type=Note) for row in rows if row["kind"] == look.NOTE]
    entries = defaultdict[tuple[str, int], list[bytes]](list)
    for row in rows:
        if row["kind"] in (look.KEYS, look.BUSINESS):
            entries[row["kind"], row["bucket"]].append(row["data"])
    judged = [
        keys.candidates(np.frombuffer(b"".join(data), keys.ENTRY), brokers_known=True)
        if kind == look.KEYS
        else keys.same_business(np.frombuffer(b"".join(data), keys.BUSINESS))
        for (kind, _), data in entries.items()
    ]
    whole = Candidates(
        np.concatenate([keys.NOTHING.keys, *[one.keys for one in judged]]),
        np.concatenate([keys.NOTHING.places, *[one.places for one in judged]]),
        sum(one.messages for one in judged),
    )
    wanted = wanted_of(notes, whole, None)
    texts = [row["text"] for row in rows if row["kind"] == look.LINE]
    for file in files:
        for batch in pick.picker(lambda: wanted)(_batch(file)):
            texts += batch.column(0).to_pylist()
    return Taken([line for text in texts if (line := _line(text)) is not None], whole.messages, notes)


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
