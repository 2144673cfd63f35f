"""How an inbox speaks to SQLite and to PostgreSQL. Each call is short: nothing here waits for another transaction."""

import sys
from collections.abc import Sequence
from typing import Any, Protocol

from dejamq_proto.codes import ConfigError

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
