"""What an audit of logs and traces was made of: the files that it read, and the evidence that it would need as well."""

from html import escape

import msgspec

from dejamq_analytics.report.verdict import Verdict


class EvidenceScope(msgspec.Struct, kw_only=True):
    """``read`` has a line for each file, ``lacking`` one for each kind of evidence that is not there."""

    read: list[str]
    lacking: list[str]


class EvidenceVerdict(Verdict, kw_only=True):
    """verdict.json of an audit of evidence beside journals, or instead of them."""

    evidence: EvidenceScope


def with_evidence(verdict: Verdict, scope: EvidenceScope, *, blind: bool) -> EvidenceVerdict:
    """The verdict with its scope. Where deliveries cannot be seen, that none came twice is not known."""
    fields = msgspec.structs.asdict(verdict) | {"evidence": scope}
    if blind and verdict.verdict == "clean":
        fields["verdict"] = "undetermined"
    return EvidenceVerdict(**fields)


def section(scope: EvidenceScope) -> str:
    """The part of the report that says so."""
    read, lacking = ("".join(f"<li>{escape(line)}</li>" for line in told) for told in (scope.read, scope.lacking))
    missing = f"<h3>What would make it surer</h3><ul>{lacking}</ul>" if lacking else ""
    return f"<h2>What was read</h2><ul>{read}</ul>{missing}"
