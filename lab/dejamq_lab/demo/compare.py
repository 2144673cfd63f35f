"""The last word: the audit's findings against the ledger's own rows, delivery by delivery."""

from pathlib import Path
from typing import Any

import msgspec

from dejamq_lab.demo.ledger import ChargeLedger

Finding = dict[str, Any]


class LedgerComparison(msgspec.Struct, frozen=True):
    """All four sets are delivery ids of second deliveries. The demo agrees when the first two are empty.

    With an inbox the ledger must not have a single double charge, whatever was delivered twice.
    """

    charges_without_finding: set[str]
    findings_without_charge: set[str]
    double_charges: set[str]
    unfinished_first: set[str]
    inbox: bool = False

    @property
    def agrees(self) -> bool:
        if self.inbox:
            return not self.double_charges
        return not self.charges_without_finding and not self.findings_without_charge


def read_findings(out: Path) -> list[Finding]:
    """The audit's findings/ as rows."""
    import pyarrow.parquet  # with the audit's extra only; the command imports this file without it

    rows: list[Finding] = pyarrow.parquet.read_table(out / "findings").to_pylist()
    return rows


def compare(findings: list[Finding], ledger: ChargeLedger, *, inbox: bool = False) -> LedgerComparison:
    """Every double charge must be a finding; every finding whose first delivery had ended must be a double charge.

    A first delivery without a result was in flight at the crash: whether it charged, only the ledger knows.
    """
    seconds = {row["second"]["delivery_id"]: row for row in findings if row["second"] and not row["expected"]}
    ended = {delivery for delivery, row in seconds.items() if row["first"] and row["first"]["result"]}
    charged_twice = ledger.double_charges()
    return LedgerComparison(
        charges_without_finding=charged_twice - seconds.keys(),
        findings_without_charge=ended - charged_twice,
        double_charges=charged_twice,
        unfinished_first=seconds.keys() - ended,
        inbox=inbox,
    )
