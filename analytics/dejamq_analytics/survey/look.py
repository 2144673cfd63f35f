"""The first reading: what is not about single messages is kept as it stands, of messages only a few numbers."""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import msgspec
import pyarrow as pa

from dejamq_analytics.survey import chunks, wire
from dejamq_analytics.survey.chunks import Chunk, LineSpan
from dejamq_analytics.survey.context import SurveyContext
from dejamq_analytics.survey.index import ChunkIndex
from dejamq_analytics.survey.messages import Messages
from dejamq_analytics.survey.sends import SENDS, PairedSends, SentTry
from dejamq_analytics.survey.wire import JournalLine

COLUMNS = "kind string, bucket int, text string, file string, data binary"
LINE, KEYS, BUSINESS, NOTE, INDEX = "line", "keys", "business", "note", "index"
SCHEMA = pa.schema([
    ("kind", pa.string()), ("bucket", pa.int32()), ("text", pa.string()), ("file", pa.string()), ("data", pa.binary()),
])  # fmt: skip
Row = tuple[str, int | None, str | None, str | None, bytes | None]


def look_at_texts(group: str | None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over the columns text and file."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = SurveyTask(group)
        for batch in batches:
            for (text, line), file in wire.of_batch(batch):
                task.take(text, line, file)
            yield task.told()
        task.end()
        yield task.told()

    return look


def look_at_chunks(
    parts: Sequence[Chunk], tasks: int, group: str | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over the numbers of tasks. Parts are dealt to them, as neighbours are of one size, and each
    is looked at for itself.
    """

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for part in parts[task::tasks]:
                    yield from of_chunk(part, group)

    return look


def of_chunk(chunk: Chunk, group: str | None) -> Iterator[pa.RecordBatch]:
    """All that one part tells."""
    task, file = SurveyTask(group), chunk.file
    for span, (text, line) in chunks.read(chunk):
        task.take(text, line, file, span)
    task.end()
    task.keep_index(chunk)
    yield task.told()


class SurveyTask:
    """One task: a part of a file, or several files."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._rows: list[Row] = []
        self._context, self._sends = SurveyContext(), PairedSends()
        self._messages, self._index = Messages(), ChunkIndex()
        self._handlers: dict[str, Callable[[JournalLine], bool]] = {
            "DELIVER": self._messages.delivered, "APPEND": self._messages.stored,
        }  # fmt: skip

    def take(self, text: memoryview, line: JournalLine | None, file: str, span: LineSpan | None = None) -> None:
        """One line; what is gathered over lines comes later. ``span``: where the second reading finds it again."""
        if line is None:
            self._keep(text, file)
            return
        self._context.count(line)
        if wire.concerns(line, self._group):
            kept = self._take(line, text, file)
            if span is not None and not kept and line.event in wire.PICKED:
                self._index.add(line, span)
        if line.event == "CLOCK":
            self._messages.pieces.cut(line.boot_id)
        if self._messages.full():
            self._keep_buckets()

    def _take(self, line: JournalLine, text: memoryview, file: str) -> bool:
        """Whether the line is kept, here and now."""
        if line.event in SENDS:
            self._take_send(line, text, file)
            return False
        handler = self._handlers.get(line.event)
        kept = handler(line) if handler else self._context.keeps(line, text, file)
        if kept:
            self._keep(text, file)
            if handler:
                self._context.sent_back(line)
        return kept

    def end(self) -> None:
        """Everything that waited for a later line."""
        for sent in self._sends.unanswered():
            self._keep(sent.text, sent.file)
            self._messages.sent(sent.line, odd=True)
        for text, file in self._context.best():
            self._keep(text, file)
        self._keep_buckets()
        note = self._messages.note(self._context.note())
        self._rows.append((NOTE, None, None, None, msgspec.msgpack.encode(note)))

    def keep_index(self, chunk: Chunk) -> None:
        """Leave to the second reading where the lines of messages stand."""
        self._rows.append((INDEX, None, None, None, self._index.stored(chunk)))

    def told(self) -> pa.RecordBatch:
        """Everything gathered since the last call."""
        rows, self._rows = self._rows, []
        columns = list(zip(*rows, strict=True)) if rows else repeat((), len(SCHEMA))
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=False)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _keep_buckets(self) -> None:
        for business, bucket, data in self._messages.buckets():
            self._rows.append((BUSINESS if business else KEYS, bucket, None, None, data))

    def _keep(self, text: memoryview | bytes, file: str) -> None:
        self._rows.append((LINE, None, bytes(text).decode("utf-8", "replace"), file, None))

    def _take_send(self, line: JournalLine, text: memoryview, file: str) -> None:
        """A run whose answer was good is remembered by its keys alone; every other one is kept with its answer."""
        if line.event == "SEND_TRY":
            self._sends.tried(line, text, file)
            return
        sent: SentTry | None = self._sends.answered(line)
        if sent is None or line.outcome != "ok":
            self._keep(text, file)
            if sent is not None:
                self._keep(sent.text, sent.file)
        if sent is not None:
            self._messages.sent(sent.line, odd=line.outcome != "ok")
