"""The ledger of effects: a SQLite file that all consumers of a scenario write, counted without any journal."""

import sqlite3
import threading
import time
from pathlib import Path

import msgspec

SCHEMA = """
CREATE TABLE IF NOT EXISTS entered (delivery_id TEXT PRIMARY KEY, number INTEGER NOT NULL, actor TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS effects (
    delivery_id TEXT NOT NULL,
    part INTEGER NOT NULL,
    consumer_group TEXT NOT NULL,
    number INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    actor TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    PRIMARY KEY (delivery_id, part)
);
CREATE TABLE IF NOT EXISTS skipped (
    delivery_id TEXT PRIMARY KEY, consumer_group TEXT NOT NULL, number INTEGER NOT NULL, actor TEXT NOT NULL);
CREATE VIEW IF NOT EXISTS handled AS
    SELECT delivery_id, consumer_group, number, actor FROM effects WHERE part = 1
    UNION SELECT delivery_id, consumer_group, number, actor FROM skipped;
CREATE INDEX IF NOT EXISTS effects_by_number ON effects (consumer_group, number, at_us);
"""


class Effect(msgspec.Struct, frozen=True):
    """One effect of a handler. ``part`` counts the effects of one message from 1."""

    delivery_id: str
    part: int
    group: str
    number: int
    message_id: str
    actor: str


class EffectLedger:
    """One process's connection. WAL lets the others read and write meanwhile; each effect is its own transaction.

    Threads take turns. A thread that binds values while another waits for the file inside SQLite would hold the
    interpreter's lock, and nobody could ever free the file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._turn = path, threading.Lock()
        self.connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=OFF")  # what a kill leaves matters here, not what a power loss does
        self.connection.executescript(SCHEMA)

    def enter(self, delivery_id: str, number: int, actor: str) -> None:
        """A handler was entered: what the step ``entered`` waits for."""
        self._insert("INSERT OR IGNORE INTO entered VALUES (?, ?, ?)", delivery_id, number, actor)

    def write(self, effect: Effect) -> None:
        """The effect of a delivery. Ledgers never hide a double effect: its key is the delivery."""
        row = (*msgspec.structs.astuple(effect), time.time_ns() // 1000)
        self._insert("INSERT OR IGNORE INTO effects VALUES (?, ?, ?, ?, ?, ?, ?)", *row)

    def skip(self, effect: Effect) -> None:
        """A delivery that had no effect, because an inbox knew of an earlier one."""
        row = (effect.delivery_id, effect.group, effect.number, effect.actor)
        self._insert("INSERT OR IGNORE INTO skipped VALUES (?, ?, ?, ?)", *row)

    def count(self, actor: str = "", *, different: bool = True) -> int:
        """Deliveries handled by this actor, or by all; ``different``: messages. Inbox skips are handled."""
        what = "COUNT(DISTINCT consumer_group || ' ' || number)" if different else "COUNT(*)"
        return self._one(f"SELECT {what} FROM handled WHERE ? IN ('', actor)", actor)

    def entries(self, actor: str, number: int) -> int:
        """How often a handler of this actor was entered with this message."""
        return self._one("SELECT COUNT(*) FROM entered WHERE actor = ? AND number = ?", actor, number)

    def delivery_ids(self) -> set[str]:
        """Every delivery that had an effect."""
        return {row[0] for row in self.connection.execute("SELECT delivery_id FROM effects")}

    def doubles(self) -> set[str]:
        """Delivery ids of the second and later effects of a message in a group, in the order they came."""
        query = """SELECT delivery_id FROM (
            SELECT delivery_id, ROW_NUMBER() OVER (
                PARTITION BY consumer_group, number, part ORDER BY at_us, delivery_id) AS nth FROM effects)
            WHERE nth > 1"""
        return {row[0] for row in self.connection.execute(query)}

    def close(self) -> None:
        self.connection.close()

    def _insert(self, statement: str, *values: object) -> None:
        with self._turn:
            self.connection.execute(statement, values)

    def _one(self, query: str, *values: object) -> int:
        with self._turn:
            found: int = self.connection.execute(query, values).fetchone()[0]
        return found
