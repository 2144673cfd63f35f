"""Inbox: a message's effect on a database happens once, however often the message is delivered.

The mark "done" and the effect are one transaction: both are there after a crash, or neither, and the next delivery sees
which. Delivery stays at least once; what must not repeat is the effect, and only the database knows of it.
"""

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
from dejamq_proto.codes import ConfigError, DejamqError, WaitTimeout

from dejamq.receiving.received import ReceivedMessage

# How an inbox speaks to SQLite and to PostgreSQL. Each call is short: nothing here waits for another transaction.

EXPIRED_AT_ONCE = 1000
"""Most marks that one transaction deletes: old ones must not hold up a message."""

COLUMNS = (
    "(consumer_group {text} NOT NULL, topic {text} NOT NULL, mark {text} NOT NULL, marked_at_ms {number} NOT NULL,"
    " PRIMARY KEY (consumer_group, topic, mark))"
)


class Dialect(Protocol):
    """One database's way of transactions. ``place`` is the driver's sign for a value."""

    place: str

    def create(self, connection: Any, table: str) -> bool:
        """Make the table where there is none, in a transaction of its own; False when another one is in the way."""

    def begin(self, connection: Any, key: str) -> bool:
        """Open a transaction that no other one with this key runs beside; False, with none open, while one does."""

    def commit(self, connection: Any) -> None:
        """Make all of the transaction durable; it is over then, also when this raises."""

    def rollback(self, connection: Any) -> None:
        """Undo all of it."""

    def is_open(self, connection: Any) -> bool:
        """Whether what ``begin`` opened still runs, as far as can be told; raises when it has failed."""

    def expire(self, table: str) -> str:
        """A statement that deletes a thousand marks made before the one time that it is given."""


class Sqlite:
    """SQLite has one writer at a time, so that every message waits for every other; keep the transactions short."""

    place = "?"

    def __init__(self) -> None:
        self._busy_timeout_ms: int | None = None

    def create(self, connection: Any, table: str) -> bool:
        if not self.begin(connection, table):
            return False
        columns = COLUMNS.format(text="TEXT", number="INTEGER")
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} {columns} WITHOUT ROWID")
        connection.execute(f"CREATE INDEX IF NOT EXISTS {table}_by_time ON {table} (marked_at_ms)")
        self.commit(connection)
        return True

    def begin(self, connection: Any, key: str) -> bool:
        """The driver's own wait would stand still in C, with the loop: so none, and the caller waits."""
        if self.is_open(connection):
            raise ConfigError(
                "the connection of the inbox is in a transaction already: commit first (one that was made with "
                "autocommit=False always is in one; use isolation_level=None)"
            )
        if self._busy_timeout_ms is None:
            self._busy_timeout_ms = int(connection.execute("PRAGMA busy_timeout").fetchone()[0])
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            connection.execute("BEGIN IMMEDIATE")
        except Exception as error:
            if "locked" in str(error):
                return False
            raise
        finally:
            connection.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}")
        return True

    def commit(self, connection: Any) -> None:
        try:
            connection.execute("COMMIT")
        except BaseException:
            self.rollback(connection)
            raise

    def rollback(self, connection: Any) -> None:
        if self.is_open(connection):
            connection.execute("ROLLBACK")

    def is_open(self, connection: Any) -> bool:
        return bool(connection.in_transaction)

    def expire(self, table: str) -> str:
        return (
            f"DELETE FROM {table} WHERE (consumer_group, topic, mark) IN (SELECT consumer_group, topic, mark "
            f"FROM {table} WHERE marked_at_ms < ? LIMIT {EXPIRED_AT_ONCE})"
        )


class Postgres:
    """Only messages with the same mark wait for one another: each transaction holds an advisory lock on its own."""

    def __init__(self, place: str = "%s") -> None:
        self.place, self._transaction = place, 0

    def create(self, connection: Any, table: str) -> bool:
        """Only where there is none: ``IF NOT EXISTS`` alone would wait for every transaction that has marked.

        The lock is because two sessions that both find none and make it would fail.
        """
        columns = COLUMNS.format(text="text", number="bigint")
        self._open(connection)
        try:
            if run(connection, f"SELECT to_regclass({self.place})::text", (table,), 1)[0] is None:
                run(connection, f"SELECT pg_advisory_xact_lock(hashtextextended({self.place}, 0))", (table,))
                run(connection, f"CREATE TABLE IF NOT EXISTS {table} {columns}")
                run(connection, f"CREATE INDEX IF NOT EXISTS {table}_by_time ON {table} (marked_at_ms)")
        except BaseException:
            self.rollback(connection)
            raise
        self.commit(connection)
        return True

    def begin(self, connection: Any, key: str) -> bool:
        self._open(connection)
        question = f"SELECT pg_try_advisory_xact_lock(hashtextextended({self.place}, 0)), txid_current()"
        try:
            free, self._transaction = run(connection, question, (key,), 1)
        except BaseException:
            self.rollback(connection)
            raise
        if not free:
            self.rollback(connection)
        return bool(free)

    def commit(self, connection: Any) -> None:
        if _autocommit(connection):
            run(connection, "COMMIT")
        else:
            connection.commit()

    def rollback(self, connection: Any) -> None:
        if _autocommit(connection):
            run(connection, "ROLLBACK")
        else:
            connection.rollback()

    def is_open(self, connection: Any) -> bool:
        """Asked of the server: to commit a transaction that failed is to roll it back, and no error says so."""
        row = run(connection, "SELECT txid_current_if_assigned()", (), 1)
        return bool(row[0] == self._transaction)

    def expire(self, table: str) -> str:
        """Rows that another session deletes now are passed over: two that waited for each other would fail."""
        return (
            f"DELETE FROM {table} WHERE (consumer_group, topic, mark) IN (SELECT consumer_group, topic, mark "
            f"FROM {table} WHERE marked_at_ms < {self.place} LIMIT {EXPIRED_AT_ONCE} FOR UPDATE SKIP LOCKED)"
        )

    def _open(self, connection: Any) -> None:
        if _autocommit(connection):
            run(connection, "BEGIN")


def dialect_of(connection: Any, name: str | None) -> Dialect:
    """The dialect by name, or by the driver that the connection is of. Raises ConfigError."""
    driver = type(connection).__module__.partition(".")[0]
    if name not in (None, "sqlite", "postgresql"):
        raise ConfigError(f"dialect is 'sqlite' or 'postgresql', not {name!r}")
    if not callable(getattr(connection, "cursor", None)) or hasattr(connection, "__aenter__"):
        raise ConfigError(f"an inbox takes a plain DB-API connection, not {type(connection).__qualname__} of {driver}")
    if name == "sqlite" or (name is None and driver == "sqlite3"):
        return Sqlite()
    if name == "postgresql" or driver in ("psycopg", "psycopg2", "pg8000"):
        style = getattr(sys.modules.get(driver), "paramstyle", "format")
        return Postgres("?" if style == "qmark" else "%s")
    raise ConfigError(
        f"cannot tell the database behind a connection of {driver}; give dialect='sqlite' or 'postgresql'"
    )


def run(connection: Any, statement: str, values: Sequence[Any] = (), rows: int = 0) -> Any:
    """Execute in a cursor of its own; the first row when ``rows``, else how many rows it touched."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement, tuple(values))
        return cursor.fetchone() if rows else cursor.rowcount
    finally:
        cursor.close()


def _autocommit(connection: Any) -> bool:
    return bool(getattr(connection, "autocommit", False))


RETENTION_MS = 7 * 24 * 3_600_000
WAIT_MS = 30_000
EXPIRY_PAUSE_MS = 60_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.02


class InboxOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Further options of an inbox; each is a keyword argument of ``Inbox``."""

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
