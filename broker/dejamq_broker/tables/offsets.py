"""How far each group has consumed: ``config/consumerOffset.json`` in RocketMQ's format (ConsumerOffsetManager).

A committed offset is the next one to consume. Commits overwrite without comparing. A late commit of a former owner
moves an offset back: that is one of the ways in which a message is delivered twice. An operator's reset waits in a
table of its own, in memory, for the group's next pull of that queue. Until then nobody commits over it.
"""

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.events import OffFlush, OffGet, OffIgnored, OffLoad, OffSet
from dejamq_proto.journal.writer import Journal
from dejamq_proto.signals import Signal

from dejamq_broker.base import json_file
from dejamq_broker.base.data_version import Int64, TableVersion

# Journal lines for consumer offsets: set, asked for, ignored.


class Asker(NamedTuple):
    """Whose request it is; (boot_id, seq) names it for the audit.

    Empty for requests of the broker's own. ``seq`` counts requests within one start of a client. It stands in the
    client's journal too: by it the audit matches both sides of a commit.
    """

    client_id: str = ""
    boot_id: str = ""
    seq: int = 0


NOBODY = Asker()


class Position(NamedTuple):
    """One group's place in one queue."""

    group: str
    topic: str
    queue_id: int


class OffsetLines:
    """Writes the lines of one broker; nothing where there is no journal."""

    def __init__(self, broker_name: str, journal: Journal) -> None:
        self._broker_name, self._journal = broker_name, journal

    def changed(self, at: Position, old: int | None, new: int, by: str, asker: Asker) -> None:
        """The table has ``new`` now; -1: nothing any more."""
        if self._journal.on:
            self._journal.write(OffSet(
                broker_name=self._broker_name, group=at.group, topic=at.topic, queue_id=at.queue_id,
                old=-1 if old is None else old, new=new, by=by,
                client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq,
            ))  # fmt: skip

    def ignored(self, at: Position, old: int | None, value: int, how: tuple[str, str], asker: Asker) -> None:
        """A commit counts for nothing. ``how``: by which way it came, and the word for why."""
        if self._journal.on:
            self._journal.write(OffIgnored(
                broker_name=self._broker_name, group=at.group, topic=at.topic, queue_id=at.queue_id,
                old=-1 if old is None else old, value=value, by=how[0], why=how[1],
                client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq,
            ))  # fmt: skip

    def answered(self, at: Position, value: int, why: str, asker: Asker) -> None:
        """A client got the offset to begin at; -1: the broker does not know one."""
        if self._journal.on:
            self._journal.write(OffGet(
                broker_name=self._broker_name, group=at.group, topic=at.topic, queue_id=at.queue_id,
                value=value, why=why, client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq,
            ))  # fmt: skip


__all__ = ["NOBODY", "Asker", "OffsetTable", "Position"]

log = logging.getLogger(__name__)
COMMITS_PER_VERSION = 500


class QueueBounds(Protocol):
    """The questions of the rule for young queues to the store."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def entry_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool: ...


class OffsetTable:
    """All committed offsets. Owned by the event loop.

    A crash loses what was committed since the last flush (5 s by default): consumers then begin earlier and
    deliver again, cause O2 of the audit. The journal's OFF_FLUSH and OFF_LOAD carry a digest of the table,
    which proves what a start has read.
    """

    def __init__(
        self, path: Path, broker_name: str, journal: Journal, clock_ms: Callable[[], int], *,
        fenced: Callable[[Position, Asker], str], queue_end: Callable[[str, int], int],
        log_on_disk: Callable[[], Awaitable[None]], flush_soon: Callable[[], None],
        serve_resets: bool, refuse_lower: bool,
    ) -> None:  # fmt: skip
        """``fenced``: why a commit is to be ignored, as its sender has handed the queue over; '' when it is not.
        ``queue_end``: the end of a queue; an offset behind it is nothing that could be kept.

        ``log_on_disk`` is awaited before each write: an offset may not survive a power loss that its messages, or the
        next tries of failed ones, do not. New messages would get the lost ones' queue offsets, and be passed over.
        ``flush_soon`` has the table written now; it is called for operators' changes.

        ``serve_resets``: whether resets reach members that are online; ``refuse_lower``: clients may lower no offset.
        """
        self._fenced, self._queue_end, self._log_on_disk, self._flush_soon = fenced, queue_end, log_on_disk, flush_soon
        self.serve_resets, self.refuse_lower = serve_resets, refuse_lower
        self.path, self._broker_name, self._journal, self._clock_ms = path, broker_name, journal, clock_ms
        self._lines = OffsetLines(broker_name, journal)
        self._table: dict[str, dict[int, int]] = {}
        self._version = TableVersion(timestamp=clock_ms())
        self._commits = self._flushed = 0
        self._resets: dict[Position, int] = {}
        self._pulled: dict[Position, int] = {}
        self.on_move = Signal[[Position, int]]()
        """Told where an operator sends a group, before the table has it; what it raises reaches the operator."""

    def load(self) -> str:
        """Read the file or its backup; tells which (``main``, ``bak``, ``none``). Raises UnreadableFile."""
        content, source = json_file.load(self.path)
        if content is not None:
            try:
                table = msgspec.convert(
                    content.get("offsetTable", {}), dict[str, dict[json_file.Int32, Int64]], strict=False
                )
                self._version = msgspec.convert(content.get("dataVersion", {}), TableVersion)
            except msgspec.ValidationError as error:
                raise json_file.UnreadableFile(f"{self.path} is no table of offsets: {error}") from None
            self._table = table
        event = OffLoad(broker_name=self._broker_name, source=source, digest=self._digest(), entries=len(self))
        self._journal.write(event)
        return source

    def __len__(self) -> int:
        return sum(map(len, self._table.values()))

    def get(self, at: Position) -> int | None:
        """The committed offset; None when the group has none of this queue."""
        return self._table.get(f"{at.topic}@{at.group}", {}).get(at.queue_id)

    def everything(self) -> list[tuple[str, str, dict[int, int]]]:
        """(topic, group, committed by queue id) of every group, as they are now."""
        return [(*_split_key(key), dict(queues)) for key, queues in self._table.items()]

    def of_group(self, group: str) -> Iterator[tuple[str, int, int]]:
        """(topic, queue id, committed) of one group."""
        for key, queues in self._table.items():
            topic, _, name = key.partition("@")
            if name == group:
                for queue_id, queue_offset in sorted(queues.items()):
                    yield topic, queue_id, queue_offset

    def commit(self, at: Position, queue_offset: int, *, by: str, asker: Asker = NOBODY) -> None:
        """Overwrite. A lower value than before is accepted, with a warning, unless the broker refuses lower values.
        Commits that are ``fenced``, or come while a reset waits, are ignored.

        Raises INVALID_PARAMETER for a negative offset, and for a refused one where the client waits for the answer,
        changing nothing. That the queue holds such an offset is not checked: RocketMQ's
        ConsumerOffsetManager.commitOffset does not either.
        """
        if queue_offset < 0:
            raise DejamqError(f"{queue_offset} is no offset to commit", code=Code.INVALID_PARAMETER)
        why, text = self._ignored(at, queue_offset, by, asker)
        if why:
            log.warning("offset_ignored %s new=%d client=%s: %s", at, queue_offset, asker.client_id, text)
            self._lines.ignored(at, self.get(at), queue_offset, (by, why), asker)
            if why == "lower" and by == "sync":
                raise DejamqError(text, code=Code.INVALID_PARAMETER)
            return
        old = self.get(at)
        if old is not None and queue_offset < old:
            log.warning("offset_lowered %s old=%d new=%d client=%s", at, old, queue_offset, asker.client_id)
        self._set(at, queue_offset, by, asker)

    def move(self, at: Position, queue_offset: int, *, by: str, asker: Asker = NOBODY) -> None:
        """An operator sets where the group goes on, for members that are online too. ``by``: reset, clone.

        Until one of the group pulls the queue, commits are ignored; a restart forgets that, not the offset.
        Source: RocketMQ ``ConsumerOffsetManager.assignResetOffset``.
        """
        self.on_move.tell(at, queue_offset)
        self._set(at, queue_offset, by, asker)
        if self.serve_resets:
            self._resets[at] = queue_offset
        self._flush_soon()

    def take_copy(self, table: dict[str, dict[int, int]]) -> None:
        """A slave takes its master's offsets by ``topic@group``, lower ones too; groups that are not there keep theirs.

        Source: RocketMQ ``SlaveSynchronize.syncConsumerOffset``.
        """
        for key, queues in table.items():
            topic, group = _split_key(key)
            for queue_id, queue_offset in queues.items():
                at = Position(group, topic, queue_id)
                if self.get(at) != queue_offset:
                    self._set(at, queue_offset, "slave-sync", NOBODY)

    def content(self) -> dict[str, Any]:
        """As the file has it."""
        table = {key: {str(number): value for number, value in queues.items()} for key, queues in self._table.items()}
        return {"dataVersion": msgspec.to_builtins(self._version), "offsetTable": table}

    def take_reset(self, at: Position) -> int | None:
        """Where the group's next pull of the queue is sent, once; None when no reset waits for it."""
        return self._resets.pop(at, None) if self._resets else None

    def note_pulled(self, at: Position, next_offset: int) -> None:
        """Where the last answer to a pull sent the group; in memory only (RocketMQ: ``pullOffsetTable``)."""
        self._pulled[at] = next_offset

    def pulled(self, at: Position) -> int | None:
        """The last offset given to ``note_pulled``; messages between the committed offset and this one are in
        flight.
        """
        return self._pulled.get(at)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> int:
        """Drop every offset of this topic, or of this group; how many. The file follows at once.

        Source: RocketMQ ``ConsumerOffsetManager.cleanOffsetByTopic``, ``removeOffset``.
        """
        gone = [at for at in self._places() if topic in (None, at.topic) and group in (None, at.group)]
        for at in gone:
            self._lines.changed(at, self.get(at), -1, "delete", NOBODY)
            del self._table[f"{at.topic}@{at.group}"][at.queue_id]
        self._table = {key: queues for key, queues in self._table.items() if queues}
        for table in (self._resets, self._pulled):
            for at in [at for at in table if topic in (None, at.topic) and group in (None, at.group)]:
                del table[at]
        self._commits += len(gone)
        self._flush_soon()
        return len(gone)

    def _places(self) -> list[Position]:
        return [
            Position(group, topic, queue_id)
            for (topic, _, group), queues in [(key.partition("@"), queues) for key, queues in self._table.items()]
            for queue_id in queues
        ]

    def _ignored(self, at: Position, queue_offset: int, by: str, asker: Asker) -> tuple[str, str]:
        """Why a commit changes nothing, as a word and as a sentence; '' when it counts."""
        if at in self._resets:
            return "reset", f"an operator reset it to {self._resets[at]}, and nobody has pulled from there yet"
        if why := "" if by == "release" else self._fenced(at, asker):
            return "released", why
        old = self.get(at)
        if self.refuse_lower and old is not None and queue_offset < old <= self._queue_end(at.topic, at.queue_id):
            return "lower", f"{at.group!r} is at {old} already, and this broker lowers no offset (refuse_lower_offsets)"
        return "", ""

    def _set(self, at: Position, queue_offset: int, by: str, asker: Asker) -> None:
        self._lines.changed(at, self.get(at), queue_offset, by, asker)
        self._table.setdefault(f"{at.topic}@{at.group}", {})[at.queue_id] = queue_offset
        self._commits += 1
        if self._commits % COMMITS_PER_VERSION == 0:
            self._version = self._version.next(self._clock_ms())

    def query(self, at: Position, queues: QueueBounds, asker: Asker = NOBODY, *, zero_if_young: bool = True) -> int:
        """The offset at which a new owner begins. It is a reset that waits, else the stored offset, else 0 for a young
        queue, unless the client does not want that. Else QUERY_NOT_FOUND and the client's own rule.

        Young: nothing of the queue was deleted and its first entry is still in memory. A new group on such a queue
        begins at 0 whatever it asked for (RocketMQ: ConsumerManageProcessor).
        """
        value, why = (self._resets[at], "reset") if at in self._resets else (self.get(at), "table")
        if value is None:
            young = zero_if_young and _young(at, queues)
            value, why = (0, "default_zero") if young else (-1, "not_found")
        self._lines.answered(at, value, why, asker)
        if value < 0:
            text = f"group {at.group!r} has no offset of queue {at.queue_id} of {at.topic!r}, which is not young"
            raise DejamqError(text, code=Code.QUERY_NOT_FOUND)
        return value

    async def flush(self) -> None:
        """Write the file when a commit came since the last time.

        A write that fails or is cancelled is tried again in the next round. Commits that come while it runs
        belong to the next one.
        """
        if self._flushed == self._commits:
            return
        flushed, self._flushed = self._flushed, self._commits
        try:
            snapshot = self._snapshot()
            await self._log_on_disk()
            await json_file.save(snapshot, self._journal)
        except BaseException:
            self._flushed = flushed
            raise

    def _snapshot(self) -> json_file.Snapshot:
        text = json_file.dumps(self.content())
        event = OffFlush(broker_name=self._broker_name, digest=self._digest(), entries=len(self))
        return json_file.Snapshot(self.path, text, event)

    def _digest(self) -> str:
        """Equal for equal offsets, whatever the file looks like: tells which flush a later start has read."""
        text = json.dumps(self._table, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _young(at: Position, queues: QueueBounds) -> bool:
    return queues.min_offset(at.topic, at.queue_id) <= 0 and queues.entry_in_memory(at.topic, at.queue_id, 0)


def _split_key(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group
