"""The last lines of the demo: the numbers, one proof of each cause, and whether ledger and audit agree."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dejamq_lab.demo.compare import Finding, LedgerComparison


def tell(console: Console, out: Path, findings: list[Finding], comparison: LedgerComparison) -> None:
    """Print all of it to the console."""
    verdict = json.loads((out / "verdict.json").read_text(encoding="utf-8"))
    console.print()
    console.print(
        f"[bold]{verdict['messages']}[/] messages, [bold]{verdict['deliveries']}[/] deliveries, "
        f"[bold]{verdict['duplicates']}[/] duplicates ({verdict['unfinished_first']} were in flight at the crash)"
    )
    console.print(_causes(verdict))
    for cause in sorted(verdict["causes"]):
        proof = next((row for row in findings if row["cause"] == cause and not row["expected"]), None)
        if proof:
            _tell_proof(console, cause, proof)
    _tell_comparison(console, comparison)
    for name in ("verdict.json", "findings", "report.html"):
        console.print(f"  {out / name}")


def _causes(verdict: dict[str, object]) -> Table:
    from dejamq_analytics.report.causes import CAUSES

    table = Table("cause", "duplicates", "meaning")
    causes = verdict["causes"]
    assert isinstance(causes, dict)
    for cause, count in sorted(causes.items()):
        table.add_row(cause, str(count), CAUSES[cause].title)
    if verdict["undetermined"]:
        table.add_row("undetermined", str(verdict["undetermined"]), "evidence is missing; see verdict.json")
    return table


def _tell_proof(console: Console, cause: str, row: Finding) -> None:
    second, piped = row["second"], not console.is_terminal  # in a pipe each line is one, whole
    console.print(f"\n[bold]One {cause}[/]: message {row['message_id']} {row['business_key'] or ''}")
    place = f"{second['topic']} {second['broker_name']} queue {second['queue_id']} offset {second['queue_offset']}"
    console.print(f"  stored at {place}")
    for line in row["evidence"]:
        console.print(
            f"  {line['process']} #{line['seq']} {line['event']}: {line['summary']}", markup=False, soft_wrap=piped
        )


def _tell_comparison(console: Console, comparison: LedgerComparison) -> None:
    if comparison.inbox:
        _tell_inbox(console, comparison)
        return
    console.print(
        f"\nThe ledger has {len(comparison.double_charges)} double charges; "
        f"{len(comparison.unfinished_first)} findings had their first delivery in flight."
    )
    if comparison.agrees:
        console.print("[bold green]Ledger and audit agree, delivery by delivery.[/]")
        return
    console.print("[bold red]Ledger and audit disagree.[/]")
    for text, ids in (
        ("charged twice, not found", comparison.charges_without_finding),
        ("found, not charged twice", comparison.findings_without_charge),
    ):
        console.print(f"  {text}: {len(ids)} {sorted(ids)[:5]}")


def _tell_inbox(console: Console, comparison: LedgerComparison) -> None:
    if comparison.agrees:
        turned_away = len(comparison.findings_without_charge)
        console.print(f"\n[bold green]No order was charged twice[/]: the inbox turned {turned_away} deliveries away.")
    else:
        ids = sorted(comparison.double_charges)
        console.print(f"\n[bold red]Charged twice although there is an inbox[/]: {len(ids)} {ids[:5]}")
