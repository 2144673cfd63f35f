"""What Spark calls: the source by its name, the planner of a batch, the planner of a stream.

Spark pickles readers and sends them to its workers, where ``read`` is called. Nothing that is open may be in them.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dejamq_proto.codes import ConfigError
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from dejamq_analytics.topics import queue_reader
from dejamq_analytics.topics.cluster import OffsetRange, ServerConnections
from dejamq_analytics.topics.options import Bound, ReadOptions
from dejamq_analytics.topics.places import (
    EARLIEST,
    LATEST,
    Piece,
    Places,
    TopicQueue,
    limited,
    of_json,
    pieces,
    to_json,
)
from dejamq_analytics.topics.queue_reader import COLUMNS, LossPolicy, Row

if TYPE_CHECKING:

    class SupportsTriggerAvailableNow:
        """A mark: ``prepareForTriggerAvailableNow`` is there."""

    class ReadMaxRows:
        """A limit of a micro-batch."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    HAS_LIMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

        HAS_LIMITS = True
    except ImportError:  # before Spark 4.2; of the first, nothing is an instance
        ReadMaxRows, SupportsTriggerAvailableNow, HAS_LIMITS = (), object, False


class RocketMQDataSource(DataSource):
    """Topics of RocketMQ or dejamq as ``spark.read.format("rocketmq")`` and ``spark.readStream.format("rocketmq")``.

    Register it once a session: ``spark.dataSource.register(RocketMQDataSource)``. Options and columns are in
    docs/spark.md. Raises ConfigError, inside of Spark's own error, for an option that cannot work.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        ReadOptions.of(self.options)  # tells of a wrong option where the program says ``load``
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: StructType) -> "TopicReader":
        return TopicReader(_options(self.options, schema))

    def streamReader(self, schema: StructType) -> "TopicStreamReader":
        return TopicStreamReader(_options(self.options, schema))


def _options(given: Mapping[str, str], schema: StructType) -> ReadOptions:
    """Without a session, as in Spark's workers, there is nobody who could read the schema's text."""
    if {field.name: field.dataType.simpleString() for field in schema.fields} != COLUMNS:
        raise ConfigError(f"the columns of a topic are {', '.join(COLUMNS)}: leave the schema out, and select")
    return ReadOptions.of(given)


class QueuePart(InputPartition):
    """What one task reads."""

    def __init__(self, piece: Piece) -> None:
        super().__init__((*piece.queue, piece.start, piece.end))
        self.piece = piece


class TopicReader(DataSourceReader):
    """One reading from here to there; the ends are those of the moment in which Spark plans it."""

    def __init__(self, options: ReadOptions) -> None:
        options.check_batch()
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with ServerConnections(options) as cluster:
            ends = cluster.ends(cluster.queues())
            start = places_at(cluster, ends, options.begin or Bound(word=EARLIEST), "startingOffsets")
            end = places_at(cluster, ends, options.end or Bound(word=LATEST), "endingOffsets")
        for queue, first in start.items():
            if first > end[queue]:
                raise ConfigError(f"{queue} would be read from {first} to before {end[queue]}: begin before the end")
        return [QueuePart(piece) for piece in pieces(start, end, options.most_records)]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        return read(partition, self._options)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches, one after the other. Spark's checkpoint says where to go on; no group has anything to do with it.

    ``commitGroup`` is told how far Spark is, for those that look at a group's lag; nothing is read from there.
    """

    def __init__(self, options: ReadOptions) -> None:
        options.check_stream()
        if options.most_offsets and not HAS_LIMITS:
            raise ConfigError("maxOffsetsPerTrigger needs Spark 4.2 or newer")
        self._options = options
        self._last: dict[TopicQueue, int] | None = None
        self._cluster: ServerConnections | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cluster": None}

    @property
    def _open(self) -> ServerConnections:
        if self._cluster is None:
            self._cluster = ServerConnections(self._options)
        return self._cluster

    def initialOffset(self) -> dict[str, Any]:
        ends = self._ends()
        return to_json(places_at(self._open, ends, self._options.begin or Bound(word=LATEST), "startingOffsets"))

    def getDefaultReadLimit(self) -> Any:
        most = self._options.most_offsets
        return ReadMaxRows(most) if most else super().getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = {queue: ends.high for queue, ends in self._ends().items()}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Before Spark 4.2 there is neither a start nor a limit."""
        ends = self._ends()
        before = {queue: at for queue, at in of_json(start or {}).items() if queue.topic in self._options.topics}
        begun = {queue: one.low for queue, one in ends.items()} | before
        end = begun | {queue: self._end_of(queue, one, before) for queue, one in ends.items()}
        return to_json(limited(begun, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end)

    def reportLatestOffset(self) -> dict[str, Any]:
        return to_json({queue: one.high for queue, one in self._ends().items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A queue that is new begins where it begins, as does one that was made again."""
        to, known = of_json(end), of_json(start)
        begun = {queue: known.get(queue, at + 1) for queue, at in to.items()}
        again = [queue for queue, at in to.items() if begun[queue] > at]
        lows = {queue: one.low for queue, one in self._open.ends(again).items()} if again else {}
        return [QueuePart(piece) for piece in pieces(begun | lows, to, self._options.most_records)]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        return read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        if self._options.commit_group:
            self._open.commit(self._options.commit_group, of_json(end).items())

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _ends(self) -> dict[TopicQueue, OffsetRange]:
        return self._open.ends(self._open.queues())

    def _end_of(self, queue: TopicQueue, ends: OffsetRange, before: Places) -> int:
        """Where the next micro-batch may end. A slave may be behind: what it does not know of is not lost.

        Raises DataLost for a queue that ends before where it was read to, unless such a loss is passed over. It is then
        read from its begin: nobody can tell which of its messages are new.
        """
        high = ends.high if self._last is None else min(ends.high, self._last.get(queue, ends.low))
        read_to = before.get(queue, ends.low)
        if ends.high >= read_to:
            return max(high, read_to)
        if not ends.of_master:
            return read_to
        what = f"it ends at {ends.high}, and was read to {read_to}: its broker lost messages, or it was made again"
        LossPolicy(fail=self._options.fail_on_data_loss).tell(queue, what)
        return ends.high


def read(partition: InputPartition, options: ReadOptions) -> Iterator[Row]:
    """The rows of one task, with a connection of its own."""
    assert isinstance(partition, QueuePart)
    with ServerConnections(options) as cluster:
        yield from queue_reader.rows(cluster, partition.piece, options)


def places_at(
    cluster: ServerConnections, ends: Mapping[TopicQueue, OffsetRange], bound: Bound, option: str
) -> dict[TopicQueue, int]:
    """The offset of each queue that the bound means. Raises ConfigError for offsets that do not name just these."""
    if bound.timestamp_ms is not None:
        return cluster.at_time(list(ends), bound.timestamp_ms)
    if bound.offsets is None:
        return {queue: _meant(bound.word, one) for queue, one in ends.items()}
    missing, unknown = ends.keys() - bound.offsets.keys(), bound.offsets.keys() - ends.keys()
    if missing or unknown:
        wrong = [f"it lacks {queue} (-2 is its begin, -1 its end)" for queue in sorted(missing)]
        wrong += [f"there is no {queue}" for queue in sorted(unknown)]
        raise ConfigError(f"{option} names each queue of its topics: {'; '.join(wrong)}")
    return {queue: _meant(bound.offsets[queue], one) for queue, one in ends.items()}


def _meant(offset: int, ends: OffsetRange) -> int:
    return {EARLIEST: ends.low, LATEST: ends.high}.get(offset, offset)
