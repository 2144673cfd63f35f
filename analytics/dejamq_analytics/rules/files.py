"""Files of missing lines that a decision would need: added behind the words that name the process.

A journal's file is called ``<role>-<process>-<boot id>.jsonl`` (``.1.jsonl`` for its older half); the boot id alone
tells it from all others, and a shell finds it by ``consumer-*-<boot id>.jsonl``.
"""

from dejamq_analytics.frames import Column, DataFrame, Row
from dejamq_analytics.frames import functions as sf

MOST_GAPS = 3
NAMED = r"(?:gap(?: [0-9-]+)?|last lines|last 100 ms|clock|earlier start) of ([^\s,;()]+)"
"""How the rules speak of a process whose journal is incomplete."""


def named(findings: DataFrame, processes: DataFrame) -> DataFrame:
    """Findings whose ``missing``, where it names a process with an incomplete journal, also names file and lines."""
    known = _incomplete(processes)
    if not known:
        return findings
    entries = [sf.struct(sf.lit(name), sf.lit(places)) for name, places in sorted(known.items())]
    return findings.withColumn("missing", _with_files(sf.col("missing"), sf.map_from_entries(sf.array(*entries))))


def _incomplete(processes: DataFrame) -> dict[str, str]:
    """Where lines are missing, by process: a handful. One name may have had several starts."""
    unflushed = ~(sf.col("closed") | (sf.col("level") == "forensic"))
    told = processes.where("process IS NOT NULL AND made_of = ''").where(
        (sf.size("gaps") > 0) | unflushed | sf.col("skew_ms").isNotNull()
    )
    found: dict[str, list[str]] = {}
    for row in told.orderBy("process", "boot_id").collect():
        found.setdefault(row.process, []).append(_place(row))
    return {name: "; ".join(places) for name, places in found.items()}


def _place(row: Row) -> str:
    name = f"{row.role}-*-{row.boot_id}.jsonl"
    lines = [_range(gap.first, gap.last) for gap in row.gaps[:MOST_GAPS]] + ["…"] * (len(row.gaps) > MOST_GAPS)
    if not (row.closed or row.level == "forensic"):
        lines.append(f"after {row.last_seq}")
    return f"{name} line {', '.join(lines)}" if lines else name


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _with_files(missing: Column, places: Column) -> Column:
    """The same words where they name no such process."""
    said = sf.regexp_extract_all(missing, sf.lit(NAMED), sf.lit(1))
    names = sf.array_intersect(said, sf.map_keys(places))
    told = sf.transform(names, lambda name: sf.element_at(places, name))
    return sf.when(
        sf.size(told) > 0, sf.concat(missing, sf.lit(" ("), sf.array_join(told, "; "), sf.lit(")"))
    ).otherwise(missing)
