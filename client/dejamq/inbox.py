"""Inbox: a message's effect on a database happens once, however often the message is delivered.

The mark "done" and the effect are one transaction: both are there after a crash, or neither, and the next delivery sees
which. Delivery stays at least once; what must not repeat is the effect, and only the database knows of it.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
from dejamq_proto.codes import ConfigError, DejamqError, WaitTimeout

from dejamq.inbox_dialects import dialect_of, run
from dejamq.received import ReceivedMessage

RETENTION_MS = 7 * 24 * 3_600_000
WAIT_MS = 30_000
EXPIRY_PAUSE_MS = 60_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.02


class InboxOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What else an inbox can be told; each is a keyword argument of ``Inbox``."""

    group: str | None = None
    """Whose marks they are; by default the group that the message was delivered to."""
    business_key: str | None = None
    """Mark by this property's value (``KEYS``: the first key) instead of the message id: for a producer that may send
    one event as two messages."""
    retention_ms: int = RETENTION_MS
    """How long marks are kept: longer than the log keeps messages, or than anybody replays dead letters."""
    wait_ms: int = WAIT_MS
    """How long a delivery waits for another one of the same message that is being handled."""
    table: str = "dejamq_inbox"
    dialect: str | None = None
    """``sqlite`` or ``postgresql``, for a connection whose driver does not tell."""
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def check(self) -> None:
        """Raise ConfigError."""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.table):
            raise ConfigError(f"table is a plain SQL name such as dejamq_inbox, not {self.table!r}")
        if self.retention_ms <= 0 or self.wait_ms < 0:
            raise ConfigError("retention_ms must be more than 0, wait_ms not below it")


class Marks:
    """The table of marks in one database; every call is short and belongs to the connection's thread."""

    def __init__(self, connection: Any, options: dict[str, Any]) -> None:
        """Raises ConfigError for options or a connection that cannot serve."""
        try:
            self.options = InboxOptions(**options)
        except TypeError as error:
            raise ConfigError(f"{error}; an inbox takes {', '.join(InboxOptions.__struct_fields__)}") from None
        self.options.check()
        self.connection, self._dialect = connection, dialect_of(connection, self.options.dialect)
        self._made, self._expired_at_ms = False, 0

    def key(self, message: ReceivedMessage, key: str | None) -> tuple[str, str, str]:
        """Group, topic and mark of a message. Raises ConfigError for one that has no group or no business key."""
        group = self.options.group or message.group
        if not group:
            raise ConfigError("this message was read without a consumer group; give Inbox(connection, group=…)")
        return group, message.topic, key or self._mark(message)

    def begin(self, key: tuple[str, str, str]) -> bool:
        """Open the transaction; False while another delivery of the message has one open."""
        self._made = self._made or self._dialect.create(self.connection, self.options.table)
        return self._made and self._dialect.begin(self.connection, " ".join((self.options.table, *key)))

    def mark(self, key: tuple[str, str, str]) -> bool:
        """Mark within the transaction; False when it was marked before: then the transaction is over."""
        table, place, now_ms = self.options.table, self._dialect.place, self.options.clock_ms()
        statement = f"INSERT INTO {table} VALUES ({place}, {place}, {place}, {place}) ON CONFLICT DO NOTHING"
        try:
            first = bool(run(self.connection, statement, (*key, now_ms)) == 1)
            if first and now_ms - self._expired_at_ms >= min(EXPIRY_PAUSE_MS, self.options.retention_ms):
                run(self.connection, self._dialect.expire(table), (now_ms - self.options.retention_ms,))
                self._expired_at_ms = now_ms
        except BaseException:
            self._dialect.rollback(self.connection)
            raise
        if not first:
            self._dialect.rollback(self.connection)
        return first

    @contextlib.contextmanager
    def effect(self) -> Iterator[None]:
        """Around the program's part of the transaction: mark and effect become durable together, or neither does."""
        try:
            yield
            if not self._dialect.is_open(self.connection):
                raise DejamqError(
                    "the handler ended the inbox's transaction itself, so that the mark and its effect are not one; "
                    "leave commit and rollback to the inbox"
                )
        except BaseException:
            self._dialect.rollback(self.connection)
            raise
        self._dialect.commit(self.connection)

    def busy(self, key: tuple[str, str, str]) -> WaitTimeout:
        """What a delivery is told that waited too long; it is then delivered again."""
        return WaitTimeout(
            f"message {key[2]} could not be begun within {self.options.wait_ms} ms: another delivery of it, or another "
            "writer of an SQLite file, is still at work; keep slow work out of the inbox's block"
        )

    def _mark(self, message: ReceivedMessage) -> str:
        name = self.options.business_key
        if name is None:
            return message.message_id
        mark = next(iter(message.keys), "") if name == "KEYS" else message.properties.get(name, "")
        if not mark:
            raise ConfigError(f"message {message.message_id} has no business key {name}; its producer has to set it")
        return mark


class Inbox:
    """Marks messages as done in the program's own database, in the transaction that makes their effect::

        async with inbox.once(message) as first:
            if first:
                connection.execute("INSERT INTO charges …")

    An exception in the block undoes both, and the message is delivered again. Inside the block the connection is in
    a transaction: do slow work before it, and leave commit and rollback to the inbox. Handlers of one connection take
    turns. ``dejamq.sync.Inbox`` is the same for plain handlers in threads. Options: ``InboxOptions``.
    """

    def __init__(self, connection: Any, **options: Any) -> None:
        """``connection``: a DB-API connection to SQLite or PostgreSQL that is used in the loop's thread.

        Raises ConfigError. The table is made at the first message.
        """
        self._marks = Marks(connection, options)

    @contextlib.asynccontextmanager
    async def once(self, message: ReceivedMessage, *, key: str | None = None) -> AsyncIterator[bool]:
        """True for the first delivery of this message in its group, False for every later one.

        ``key`` takes the place of the message id. A delivery that comes while another one of the same message is
        being handled, here or in another process, waits for its end. Raises WaitTimeout after ``wait_ms``.
        """
        marks, place = self._marks, self._marks.key(message, key)
        async with _turn(marks.connection):
            await self._begin(place)
            first = marks.mark(place)
            if first:
                with marks.effect():
                    yield True
        if not first:
            yield False

    async def _begin(self, place: tuple[str, str, str]) -> None:
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        deadline = loop.time() + self._marks.options.wait_ms / 1000
        while not self._marks.begin(place):
            if loop.time() >= deadline:
                raise self._marks.busy(place)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


class _Turn:
    def __init__(self) -> None:
        self.lock, self.users = asyncio.Lock(), 0


_turns: dict[int, _Turn] = {}


@contextlib.asynccontextmanager
async def _turn(connection: Any) -> AsyncIterator[None]:
    """One transaction of a connection at a time, whichever inbox opens it. Kept only while somebody is in it."""
    turn = _turns.setdefault(id(connection), _Turn())
    turn.users += 1
    try:
        async with turn.lock:
            yield
    finally:
        turn.users -= 1
        if not turn.users:
            del _turns[id(connection)]
