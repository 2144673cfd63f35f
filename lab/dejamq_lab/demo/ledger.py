"""The ledger: a SQLite file that several processes write, one row a charge. It never hides a double charge."""

import sqlite3
import time
from pathlib import Path

import msgspec

SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (
    delivery_id TEXT PRIMARY KEY,
    order_id TEXT NOT NULL,
    amount_cents INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    process TEXT NOT NULL,
    charged_at_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS charges_by_order ON charges (order_id, charged_at_us);
"""


class Charge(msgspec.Struct, frozen=True):
    """One row: this delivery charged this order."""

    delivery_id: str
    order_id: str
    amount_cents: int
    message_id: str
    process: str


class ChargeLedger:
    """One process's connection. WAL lets the others read and write meanwhile; each charge is its own transaction."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(SCHEMA)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, for code that puts a charge into its own transaction."""
        return self._db

    def charge(self, row: Charge) -> None:
        values = (*msgspec.structs.astuple(row), time.time_ns() // 1000)
        self._db.execute("INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?)", values)

    def charged_by(self) -> dict[str, int]:
        """Rows per process."""
        return dict(self._db.execute("SELECT process, COUNT(*) FROM charges GROUP BY process"))

    def orders_charged(self) -> int:
        count: int = self._db.execute("SELECT COUNT(DISTINCT order_id) FROM charges").fetchone()[0]
        return count

    def double_charges(self) -> set[str]:
        """Delivery ids of the second and later charges of an order, in the order they were made."""
        query = """SELECT delivery_id FROM (
            SELECT delivery_id, ROW_NUMBER() OVER (PARTITION BY order_id ORDER BY charged_at_us, delivery_id) AS nth
            FROM charges) WHERE nth > 1"""
        return {row[0] for row in self._db.execute(query)}

    def close(self) -> None:
        self._db.close()
