"""What an audit of several stories told, story by story."""

from collections.abc import Callable, Iterator

from dejamq_analytics import AuditResult
from pyspark.sql import Row

Auditor = Callable[..., AuditResult]


class Told:
    """The audit of all stories; a finding belongs to the story that its message is named after."""

    def __init__(self, result: AuditResult) -> None:
        self.verdict, self.result = result.verdict, result
        self._rows: list[Row] = result.findings.orderBy("time", "finding_id").collect()

    def of(self, name: str) -> list[Row]:
        return [row for row in self._rows if row.message_id.startswith(f"{name}-key-")]

    def only(self, name: str) -> Row:
        rows = self.of(name)
        assert len(rows) == 1, rows
        return rows[0]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)
