"""How far the delay levels have been delivered: ``config/delayOffset.json`` in RocketMQ's format."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto.journal.events import ProgressFlush, ProgressLoad
from dejamq_proto.journal.writer import Journal

from dejamq_broker.base import json_file
from dejamq_broker.base.data_version import Int64, TableVersion


class DelayProgress:
    """``config/delayOffset.json``: for each level, the queue offset of the next entry to deliver.

    Kept apart from consumers' offsets and written less often, as in RocketMQ. After a crash, messages delivered after
    the last write are delivered once more.
    """

    def __init__(
        self, path: Path, broker_name: str, journal: Journal, log_on_disk: Callable[[], Awaitable[None]]
    ) -> None:
        """``log_on_disk`` is awaited before each write: a delivery that a power loss takes back is to be made again."""
        self._log_on_disk = log_on_disk
        self.path, self._broker_name, self._journal = path, broker_name, journal
        self._offsets: dict[int, int] = {}
        self._version = TableVersion()
        self._changed = False

    def load(self) -> None:
        """Read the file. Raises UnreadableFile.

        Its positions are journalled: messages between such a position and the true progress are delivered once more.
        """
        content, source = json_file.load(self.path)
        if content is not None:
            self._take(content)
        self._journal.write(ProgressLoad(
            broker_name=self._broker_name, service="schedule", source=source, progress=_text(self.content())
        ))  # fmt: skip

    def _take(self, content: dict[str, Any]) -> None:
        try:
            self._offsets = msgspec.convert(content.get("offsetTable", {}), dict[json_file.Int32, Int64], strict=False)
            self._version = msgspec.convert(content.get("dataVersion", {}), TableVersion)
        except msgspec.ValidationError as error:
            raise json_file.UnreadableFile(f"{self.path} is no table of delay progress: {error}") from None

    def get(self, level: int) -> int:
        """The queue offset of the level's next entry to deliver; 0 when nothing is known."""
        return self._offsets.get(level, 0)

    def set(self, level: int, queue_offset: int) -> None:
        """In memory; ``flush`` makes it last."""
        if self.get(level) != queue_offset:
            self._offsets[level] = queue_offset
            self._changed = True

    def take_copy(self, offsets: dict[int, int]) -> None:
        """A slave takes its master's progress; ``flush`` makes it last."""
        for level, queue_offset in offsets.items():
            self.set(level, queue_offset)

    def content(self) -> dict[str, Any]:
        """As the file has it."""
        table = {str(level): queue_offset for level, queue_offset in sorted(self._offsets.items())}
        return {"dataVersion": msgspec.to_builtins(self._version), "offsetTable": table}

    async def flush(self) -> None:
        """Write the file when anything moved since the last time.

        A write that fails or is cancelled leaves the table marked as changed, so that the next round tries
        again.
        """
        if not self._changed:
            return
        self._changed = False
        try:
            snapshot = self._snapshot()
            await self._log_on_disk()
            await json_file.save(snapshot, self._journal)
        except BaseException:
            self._changed = True
            raise

    def _snapshot(self) -> json_file.Snapshot:
        content = self.content()
        event = ProgressFlush(broker_name=self._broker_name, service="schedule", progress=_text(content))
        return json_file.Snapshot(self.path, json_file.dumps(content), event)


def _text(content: dict[str, Any]) -> str:
    return msgspec.json.encode(content["offsetTable"]).decode()
