"""For each cause the evidence that proves it where there are no journals, and whether it is there."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from dejamq_analytics.report.causes import CAUSES
from dejamq_analytics.rules.pairs.made_of_logs import NEEDS, PROCESSES, WORDS, LogNeeds

NOTHING = "decided from journals only"


def explained(there: Mapping[str, AbstractSet[str]]) -> Iterator[str]:
    """A line for each cause. ``there``: of each role the kinds of evidence that every such process has."""
    for cause, meant in CAUSES.items():
        needs = NEEDS.get(cause)
        yield f"{cause:4}{meant.title}: {NOTHING if needs is None else _told(needs, there)}"


def _told(needs: LogNeeds, there: Mapping[str, AbstractSet[str]]) -> str:
    found = []
    for role, (process, kind_of) in PROCESSES.items():
        for kind in getattr(needs, role):
            has = kind in there.get(kind_of, frozenset())
            found.append(f"{WORDS[kind] % process} ({'there' if has else 'missing'})")
    return ", ".join(dict.fromkeys(found))
