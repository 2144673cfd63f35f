"""The tables of one finished audit, asked with SQL. Values are always parameters."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

CHRONICLE = ("holdings", "commits", "deliveries", "faults", "moments", "processes", "places")
SETTINGS = (
    "SET autoinstall_known_extensions = false", "SET autoload_known_extensions = false", "SET threads = 2",
    "SET memory_limit = '512MB'",
)  # fmt: skip
UNDETERMINED = "undetermined"
BRIEF = """
    finding_id, kind, epoch_us("time") AS time_us, consumer_group, identity, message_id, business_key, cause, stage,
    "trigger", certainty, missing, expected, first.process AS first_process, second.process AS second_process,
    second.topic AS topic, second.broker_name AS broker_name, second.queue_id AS queue_id,
    second.queue_offset AS queue_offset, epoch_us(first.delivered_at) AS first_us,
    epoch_us(second.delivered_at) AS second_us, first.result AS first_result
"""
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Wanted:
    """Which findings. Times are microseconds of wall time, the end excluded; None is no limit."""

    cause: str | None = None
    group: str | None = None
    topic: str | None = None
    message: str | None = None
    begin_us: int | None = None
    end_us: int | None = None
    asked_for: bool = False
    """With those that somebody asked for."""

    def where(self) -> tuple[str, list[Any]]:
        """A condition, and its parameters."""
        limits: dict[str, Any] = {
            "coalesce(cause, 'undetermined') = ?": self.cause, "consumer_group = ?": self.group,
            "second.topic = ?": self.topic, "message_id = ?": self.message, 'epoch_us("time") >= ?': self.begin_us,
            'epoch_us("time") < ?': self.end_us,
        }  # fmt: skip
        given = {text: value for text, value in limits.items() if value is not None}
        texts = [*given] if self.asked_for else [*given, "NOT expected"]
        return " AND ".join(texts) or "true", [*given.values()]

    def as_query(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


Queue = tuple[str, str, str, int]
"""Group, broker, topic, number."""


def placed(line: dict[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """A line of evidence with its place beside its words; a stored copy has its time from the finding."""
    source, wall_us = line["source"], line["wall_us"]
    summary = line["summary"].partition(f" [{source}")[0] if source else line["summary"]
    if line["event"] == "RECORD" and wall_us is None:
        ends = f"{line['seq']:016X}"
        wall_us = next(
            (found[f"{side}_us"] for side in ("first", "second")
             if (found[side]["offset_message_id"] or "").endswith(ends)), None
        )  # fmt: skip
    return line | {"summary": summary, "wall_us": wall_us}


class AuditTables:
    """What an audit wrote into its folder. Questions run beside the event loop."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """``seconds``: how long the audit took."""
        import duckdb

        self.folder, self.seconds, self.made_at = folder, seconds, time.time()
        self.verdict: dict[str, Any] = msgspec.json.decode((folder / "verdict.json").read_bytes())
        self._database = duckdb.connect(":memory:")
        for setting in SETTINGS:
            self._database.execute(setting)
        places = {name: f"{name}/*/*.parquet" for name in ("findings", "anomalies")}
        places |= {name: f"chronicle/{name}/*.parquet" for name in CHRONICLE}
        for name, files in places.items():
            path = str(folder / files).replace("'", "''")
            self._database.execute(f"CREATE VIEW {name} AS FROM read_parquet('{path}', hive_partitioning = false)")

    @property
    def run_id(self) -> str:
        return str(self.verdict["run_id"])

    async def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        return await asyncio.to_thread(self._ask, sql, parameters)

    def _ask(self, sql: str, parameters: Sequence[Any]) -> Rows:
        answer = self._database.cursor().execute(sql, list(parameters))
        names = [column[0] for column in answer.description or []]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    # --- findings

    async def span(self) -> tuple[int, int]:
        """When the recorded processes ran, in microseconds; (0, 0) for none."""
        (row,) = await self.ask("SELECT min(first_wall_us) AS a, max(last_wall_us) AS b FROM processes")
        return row["a"] or 0, row["b"] or 0

    async def busy(self) -> tuple[int, int]:
        """When handlers were entered; as ``span`` where none was."""
        (row,) = await self.ask("SELECT min(wall_us) AS a, max(wall_us) AS b FROM deliveries")
        return (row["a"], row["b"]) if row["a"] else await self.span()

    async def counts(self, wanted: Wanted) -> Rows:
        """By cause and group, most first."""
        where, given = wanted.where()
        return await self.ask(
            f"""SELECT coalesce(cause, '{UNDETERMINED}') AS cause, consumer_group, expected, count(*) AS duplicates,
                min(epoch_us("time")) AS first_us, max(epoch_us("time")) AS last_us, max(finding_id) AS example
            FROM findings WHERE {where} GROUP BY ALL ORDER BY expected, duplicates DESC, cause, consumer_group""",
            given,
        )

    async def found(self, wanted: Wanted, limit: int, skip: int) -> Rows:
        """Newest first."""
        where, given = wanted.where()
        return await self.ask(
            f'SELECT {BRIEF} FROM findings WHERE {where} ORDER BY "time" DESC, finding_id LIMIT ? OFFSET ?',
            [*given, limit, skip],
        )

    async def number_of(self, wanted: Wanted) -> int:
        where, given = wanted.where()
        return int((await self.ask(f"SELECT count(*) AS n FROM findings WHERE {where}", given))[0]["n"])

    async def finding(self, finding_id: str) -> dict[str, Any] | None:
        """With both deliveries and the evidence, each line of it with its time and its place where they are known."""
        rows = await self.ask(
            f"SELECT {BRIEF}, first, second, evidence FROM findings WHERE finding_id = ?", [finding_id]
        )
        if not rows:
            return None
        lines = await self.ask(
            """SELECT line.process AS process, line.boot_id AS boot_id, line.seq AS seq, line.event AS event,
                line.summary AS summary, moments.wall_us AS wall_us, places.source AS source,
                places.within_us AS within_us
            FROM (SELECT unnest(evidence) AS line, generate_subscripts(evidence, 1) AS place FROM findings
                WHERE finding_id = ?) LEFT JOIN moments ON moments.boot_id = line.boot_id AND moments.seq = line.seq
            LEFT JOIN places ON places.whose = coalesce(line.boot_id, line.process) AND places.seq = line.seq
            ORDER BY place""",
            [finding_id],
        )
        return rows[0] | {"evidence": [placed(line, rows[0]) for line in lines]}

    async def by_time(self, wanted: Wanted, begin_us: int, width_us: int, columns: int) -> Rows:
        """How many of each cause in each of so many columns of that time."""
        where, given = wanted.where()
        return await self.ask(
            f"""SELECT greatest(0, least(?, (epoch_us("time") - ?) * ? // ?)) AS place,
                coalesce(cause, '{UNDETERMINED}') AS cause, count(*) AS n FROM findings WHERE {where} GROUP BY ALL""",
            [columns - 1, begin_us, columns, max(1, width_us), *given],
        )

    async def anomalies(self, group: str | None = None, limit: int = 50) -> Rows:
        where, given = ("consumer_group = ?", [group]) if group else ("true", [])
        return await self.ask(
            f"""SELECT kind, epoch_us("time") AS time_us, consumer_group, message_id, broker_name, topic, queue_id,
                queue_offset, detail FROM anomalies WHERE {where} ORDER BY "time" DESC LIMIT ?""",
            [*given, limit],
        )

    # --- what was around them

    async def faults(self, begin_us: int, end_us: int) -> Rows:
        return await self.ask(
            "SELECT wall_us, kind, target FROM faults WHERE wall_us BETWEEN ? AND ? ORDER BY wall_us LIMIT 50",
            [begin_us, end_us],
        )

    async def holdings(self, group: str, begin_us: int, end_us: int, queue: Queue | None = None) -> Rows:
        """Owners of the group's queues, or of one, that held some of that time."""
        one = "AND broker_name = ? AND topic = ? AND queue_id = ?" if queue else ""
        return await self.ask(
            f"""SELECT process, broker_name, topic, queue_id, opened_us, ended_us FROM holdings
            WHERE consumer_group = ? AND opened_us <= ? AND ended_us >= ? {one}
            ORDER BY starts_with(topic, '%'), topic, broker_name, queue_id, opened_us LIMIT 2000""",
            [group, end_us, begin_us, *(queue[1:] if queue else ())],
        )

    async def commits(self, queue: Queue, begin_us: int, end_us: int) -> Rows:
        """Offsets that the broker took for one queue in that time, and the last one before it."""
        return await self.ask(
            """SELECT wall_us, old, new, "by", client_id FROM commits
            WHERE consumer_group = ? AND broker_name = ? AND topic = ? AND queue_id = ? AND wall_us <= ? AND wall_us >=
                (SELECT coalesce(max(wall_us), 0) FROM commits WHERE consumer_group = ? AND broker_name = ?
                    AND topic = ? AND queue_id = ? AND wall_us < ?)
            ORDER BY wall_us LIMIT 5000""",
            [*queue, end_us, *queue, begin_us],
        )

    async def delivered(self, queue: Queue, begin_us: int, end_us: int, columns: int) -> Rows:
        """Lowest and highest offset that each process was given in each of so many columns of that time."""
        return await self.ask(
            """SELECT (wall_us - ?) * ? // ? AS place, process, min(queue_offset) AS low, max(queue_offset) AS high
            FROM deliveries WHERE consumer_group = ? AND broker_name = ? AND topic = ? AND queue_id = ?
                AND wall_us BETWEEN ? AND ? AND queue_offset >= 0 GROUP BY ALL ORDER BY process, place""",
            [begin_us, columns, max(1, end_us - begin_us), *queue, begin_us, end_us],
        )

    async def groups(self) -> Rows:
        """Groups that took messages, with how many, and how many tries came after a failure."""
        return await self.ask(
            """SELECT consumer_group, count(*) AS deliveries, count(*) FILTER (reconsume_times > 0) AS retries
            FROM deliveries GROUP BY consumer_group ORDER BY consumer_group"""
        )

    async def results(self, group: str) -> Rows:
        """How the group's handlers ended, by topic and number of the try."""
        return await self.ask(
            """SELECT topic, reconsume_times AS tries_before, coalesce(result, 'no result') AS result, count(*) AS n
            FROM deliveries WHERE consumer_group = ? GROUP BY ALL ORDER BY topic, tries_before, n DESC LIMIT 200""",
            [group],
        )

    async def queues(self, group: str) -> Rows:
        """Of each queue the highest offset delivered, and the last one that its broker took."""
        return await self.ask(
            """SELECT broker_name, topic, queue_id, delivered, last_delivered_us, deliveries, committed,
                last_committed_us
            FROM (SELECT broker_name, topic, queue_id, max(queue_offset) AS delivered, count(*) AS deliveries,
                    max(wall_us) AS last_delivered_us FROM deliveries WHERE consumer_group = ? GROUP BY ALL)
            FULL JOIN (SELECT broker_name, topic, queue_id, max_by(new, wall_us) AS committed,
                    max(wall_us) AS last_committed_us FROM commits WHERE consumer_group = ? GROUP BY ALL)
            USING (broker_name, topic, queue_id) ORDER BY topic, broker_name, queue_id LIMIT 1000""",
            [group, group],
        )

    async def deliveries_between(self, begin_us: int, end_us: int) -> Mapping[str, int]:
        """Handlers entered, by group."""
        rows = await self.ask(
            "SELECT consumer_group, count(*) AS n FROM deliveries WHERE wall_us >= ? AND wall_us < ? GROUP BY ALL",
            [begin_us, end_us],
        )
        return {row["consumer_group"]: row["n"] for row in rows}

    def close(self) -> None:
        self._database.close()
