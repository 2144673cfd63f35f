"""A slave's copy of its master's tables, which are not in the log, every 10 s, and a note of how near it was.

Source: RocketMQ ``SlaveSynchronize.syncAll``; the note is ours.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec
from dejamq_proto.codes import Code, DejamqError

from dejamq_broker.base import json_file
from dejamq_broker.base.disk_work import beside_loop
from dejamq_broker.replication.copied_tables import OF_THE_LOG, TABLES, CopiedTables
from dejamq_broker.replication.slave import ReplicationState
from dejamq_broker.store import SlaveNote, SlaveStore

log = logging.getLogger(__name__)
LOG_WAIT_S, LOG_LOOK_S = 30.0, 0.02
"""How long a table waits for the records that it speaks of, and how often it looks for them."""


class TableSource(Protocol):
    """A master as it is asked for its tables; both raise DejamqError."""

    async def table(self, name: str, known: str) -> tuple[bytes, int]: ...
    async def close(self) -> None: ...


class MetadataCopy:
    """Owned by the event loop; ``step`` is the slave's periodic work.

    A slave that does not follow copies nothing: the master that it asked might be another broker than the one of its
    log. A crash of the master loses the changes of the last interval, so that consumers are sent back as far.
    """

    def __init__(
        self, tables: CopiedTables, store: SlaveStore, state: ReplicationState, dial: Callable[[str], TableSource],
        clock_ms: Callable[[], int], on_copied: Callable[[], None],
    ) -> None:  # fmt: skip
        """``on_copied`` has the offsets written soon."""
        self._on_copied = on_copied
        self._tables, self._store, self._state, self._dial, self._clock_ms = tables, store, state, dial, clock_ms
        self._trouble = ""
        self._noted: SlaveNote | None = None
        self.copied_ms = 0
        """When all tables were copied last; 0: never since this start."""

    async def step(self) -> None:
        """Copy all tables that are not the same already. A table that fails is tried again with the next step."""
        if not self._state.connected:
            await self.note()
            return
        trouble = ""
        source = self._dial(self._state.master_address)
        try:
            for table in TABLES:
                content, log_end = await source.table(table, self._tables.version(table))
                if table in OF_THE_LOG:
                    await self._reached(log_end)
                if content:
                    self._tables.take(table, content)
        except DejamqError as error:
            trouble = str(error)
        else:
            self.copied_ms = self._clock_ms()
            self._on_copied()
        finally:
            await source.close()
        if trouble != self._trouble and trouble:
            log.warning("tables_not_copied master=%s reason=%s", self._state.master_address, trouble)
        self._trouble = trouble
        await self.note()

    async def _reached(self, log_end: int) -> None:
        """Wait until the log is here as far as the table knows it. Raises DejamqError when that takes too long."""
        looks = int(LOG_WAIT_S / LOG_LOOK_S)
        while self._store.log_max < log_end:
            if not looks or not self._state.connected:
                text = f"the master's log is not all here yet: {log_end - self._store.log_max} bytes are missing"
                raise DejamqError(text, code=Code.SERVICE_NOT_AVAILABLE)
            looks -= 1
            await asyncio.sleep(LOG_LOOK_S)

    async def note(self) -> None:
        """Write down how near to its master this slave is, for the operator who wants to make it the master."""
        state = self._state
        if not state.heard_ms:
            return
        note = SlaveNote(
            master_address=state.master_address, master_end=state.master_end, heard_ms=state.heard_ms,
            log_end=self._store.log_max, copied_ms=self.copied_ms,
        )  # fmt: skip
        if note == self._noted:
            return
        try:
            await beside_loop(json_file.write, self._store.note_path, msgspec.to_builtins(note))
        except DejamqError as error:
            log.warning("slave_not_noted reason=%s", error)
        else:
            self._noted = note

    def info(self) -> dict[str, str]:
        """For operators: how old the copied tables are."""
        age = str(self._clock_ms() - self.copied_ms) if self.copied_ms else ""
        return {"tablesCopiedMsAgo": age, "tablesTrouble": self._trouble}
