"""The file of a table, written beside the event loop: changes that come while a write runs share the next one.

A table changes in memory at once, and its file follows. Whoever has to tell a client of a change waits for ``kept``
first. So no disk stops the loop, and thousands of changes cost a few writes. A file that cannot be written is tried
again, and the table stays ahead of it meanwhile, as in RocketMQ.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dejamq_proto.codes import Code, DejamqError

from dejamq_broker.base import json_file
from dejamq_broker.base.disk_work import beside_loop

log = logging.getLogger(__name__)
RETRY_S = 1.0
"""Between two tries while the file cannot be written."""
PATIENCE_S = 4.0
"""How long a change waits for a disk that hangs: less than the time that clients give an operator's call."""

Content = Callable[[], Any]
"""What the file is to hold, made of values that nobody changes any more: another thread calls it."""


class TableFile:
    """Of one table, and owned by the loop. Without a running loop, as at a start, each write is done at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content: Content = dict
        self._changed = self._written = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._again = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._failing = False

    def write(self, content: Content) -> None:
        """The table is this now. Raises SERVICE_NOT_AVAILABLE only where no loop runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            json_file.write(self.path, content())
            return
        self._content = content
        self._changed += 1
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write_all(), name=f"write {self.path.name}")

    async def kept(self) -> None:
        """Until the table is on disk as it is now.

        Raises SERVICE_NOT_AVAILABLE when the file cannot be written, or not in ``PATIENCE_S``; it is tried again then.
        """
        if self._written == self._changed:
            return
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._changed, kept))
        self._again.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await kept
        except TimeoutError:
            text = f"changed, but {self.path} is not on disk within {PATIENCE_S:g} s; the broker goes on trying"
            raise DejamqError(text, code=Code.SERVICE_NOT_AVAILABLE, definite=False) from None

    async def _write_all(self) -> None:
        while self._written < self._changed:
            number, content = self._changed, self._content
            self._again.clear()
            try:
                await beside_loop(_write, self.path, content)
            except Exception as error:
                await self._failed(number, error)
            else:
                self._failing, self._written = False, number
                for told in self._reached(number):
                    told.set_result(None)

    async def _failed(self, number: int, error: Exception) -> None:
        """Those who wait hear of it; the next try comes soon, or with the next who waits."""
        if not self._failing:
            log.error("table_not_written path=%s error=%s", self.path, error)
        self._failing = True
        for told in self._reached(number):
            told.set_exception(error)
        try:
            async with asyncio.timeout(RETRY_S):
                await self._again.wait()
        except TimeoutError:
            pass

    def _reached(self, number: int) -> list[asyncio.Future[None]]:
        """Those who wait for this change or an earlier one."""
        reached = [told for wanted, told in self._waiting if wanted <= number and not told.done()]
        self._waiting = [each for each in self._waiting if each[0] > number]
        return reached


def _write(path: Path, content: Content) -> None:
    json_file.write(path, content())
