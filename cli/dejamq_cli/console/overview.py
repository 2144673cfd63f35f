"""The first page: is anything wrong, and how is the cluster."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from dejamq_cli.console import charts
from dejamq_cli.console.answers import Page
from dejamq_cli.console.duplicates import causes, tables_of
from dejamq_cli.console.live import Watch
from dejamq_cli.console.tables import Wanted


async def overview(request: Request) -> Page:
    """Brokers, topics and groups of the last look, and what the last audit found."""
    console = request.app.state.console
    watch: Watch = console.watch
    look, tables = watch.last, tables_of(request)
    counts = [] if tables is None else await tables.counts(Wanted())
    recorded = [] if tables is None else await tables.groups()
    data = {
        "namesrv": watch.namesrv, "cluster_error": watch.error or None, "audit": console.audits.state(),
        "looked_at_ms": look and look.at_ms, "brokers": look.brokers if look else [],
        "topics": look.topics if look else [], "groups": look.groups if look else [],
        "silent": look.silent if look else {}, "verdict": tables and tables.verdict, "counts": counts,
        "recorded_groups": recorded,
    }  # fmt: skip

    def view() -> Mapping[str, Any]:
        lags, rates = [past.lag() for past in watch.history], [past.rates() for past in watch.history]
        lately = "of the last minutes"
        return {
            "catalogue": causes() if tables is not None else {},
            "user_topics": [row for row in data["topics"] if row["kind"] == "user"],
            "other_topics": [row for row in data["topics"] if row["kind"] != "user"],
            "lag_lines": {
                row["group"]: charts.sparkline([lag.get(row["group"], 0) for lag in lags], f"lag {lately}")
                for row in data["groups"]
            },
            "rate_lines": {
                row["topic"]: charts.sparkline([rate.get(row["topic"], 0) for rate in rates], f"rate {lately}")
                for row in data["topics"]
            },
        }  # fmt: skip

    return Page("overview.html", data, view)
