"""The scope of an audit of commit logs alone: the files that it read, and the limits of its answers."""

from html import escape

import msgspec

from dejamq_analytics.report.verdict import Verdict

SAID = (
    "which messages are stored more than once (I2), and which have the business key of another one of their topic (I3)",
    "which copies a broker made of one delayed message, and which commits were made of one transaction",
    "how often each message was retried by each group, and which were given up",
    "P5 where two messages have one business key; P7 where a commit follows the mark of the one before it",
)
UNSAID = (
    "whether anything was delivered, to whom, how often (I1), in which order, and with what result: "
    "that is in the consumers' journals",
    "whether anything is lost or was never seen: that is in the producers' and the consumers' journals",
    "every other cause of a stored copy: a log does not tell a retry from a second call, or a crash from a promotion",
    "what stood in files that retention has deleted, and behind damage",
)


class StoreExtent(msgspec.Struct, kw_only=True):
    """One store. Times are of its first and last record, ISO 8601; ``damaged`` are log offsets where reading ended."""

    store: str
    hosts: list[str]
    records: int
    first_log_offset: int | None
    last_log_offset: int | None
    first_stored: str | None
    last_stored: str | None
    damaged: list[int]


class Scope(msgspec.Struct, kw_only=True):
    """``found`` counts records by what they are, and retry chains."""

    said: tuple[str, ...] = SAID
    unsaid: tuple[str, ...] = UNSAID
    stores: list[StoreExtent]
    found: dict[str, int]


class LogVerdict(Verdict, kw_only=True):
    """verdict.json of an audit without journals: ``deliveries``, ``lost``, ``unseen``, ``out_of_order`` are 0 because
    nobody can know them. ``journal_gaps`` counts the files that are damaged."""

    scope: Scope


def section(scope: Scope) -> str:
    """The part of the report that says so."""
    said, unsaid = ("".join(f"<li>{escape(line)}</li>" for line in told) for told in (scope.said, scope.unsaid))
    rows = "".join(_row(one) for one in scope.stores)
    names = "<tr><th>store</th><th>records</th><th>from</th><th>to</th><th>damaged at</th></tr>"
    found = ", ".join(f"{count} {escape(name)}" for name, count in scope.found.items())
    return (
        "<h2>What a log alone can say</h2><p>There was no journal: this audit read commit logs.</p>"
        f"<ul>{said}</ul><h3>What it cannot say</h3><ul>{unsaid}</ul>"
        f"<h3>What was read</h3><p>{found}</p><table>{names}{rows}</table>"
    )


def _row(extent: StoreExtent) -> str:
    damaged = ", ".join(str(at) for at in extent.damaged)
    cells = (extent.store, extent.records, extent.first_stored or "", extent.last_stored or "", damaged)
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"
