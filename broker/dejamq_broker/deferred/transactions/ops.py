"""The marks of ended transactions on their way into the op queue."""

import json
import logging
from collections.abc import Callable

from dejamq_proto import names
from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.events import ProgressFlush
from dejamq_proto.journal.writer import Journal

from dejamq_broker.base.config import TransactionSettings
from dejamq_broker.deferred.transactions.records import SEPARATOR, op_of
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

log = logging.getLogger(__name__)


class OpMarks:
    """Gathers marks for 3 s or 4096 bytes, as RocketMQ 5 does; a crash loses what was gathered (cause P8).

    Owned by the event loop. Source: RocketMQ ``TransactionalOpBatchService``.
    """

    def __init__(
        self, writer: RecordWriter, topics: TopicTable, journal: Journal, settings: TransactionSettings,
        clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._writer, self._topics, self._journal, self._clock_ms = writer, topics, journal, clock_ms
        self._at_once = settings.transaction_op_with_commit
        self._most = settings.transaction_op_msg_max_size
        self._gathered: list[int] = []
        self._size = 0

    def add(self, *half_offsets: int) -> None:
        """These half messages have ended. Never raises: a mark that cannot be stored is tried again."""
        for half_offset in half_offsets:
            self._gathered.append(half_offset)
            self._size += len(str(half_offset)) + len(SEPARATOR)
        if self._at_once or self._size > self._most:
            self.write()

    def write(self) -> None:
        """Store what was gathered as one op message; the journal then tells which half messages it marks."""
        if not self._gathered:
            return
        site = self._writer.site
        try:
            self._topics.ensure(names.OP_TOPIC, 1)
            op = op_of(self._gathered, self._clock_ms(), site.store_host)
            appended = self._writer.put(op, RecordOrigin("tx_op"))
        except DejamqError as error:
            log.warning("transaction_marks_not_stored count=%d reason=%s", len(self._gathered), error)
            return
        if self._journal.on:
            progress = {"half_offsets": self._gathered, "log_offset": int(appended.log_offsets[0])}
            self._journal.write(ProgressFlush(
                broker_name=site.broker_name, service="transaction_op", progress=json.dumps(progress)
            ))  # fmt: skip
        self._gathered, self._size = [], 0

    async def flush(self) -> None:
        """As ``write``, for a caller that repeats it or closes."""
        self.write()
