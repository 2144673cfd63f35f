"""The table of a trial as a page: what stands between the marks is made anew, the rest is left as people wrote it."""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dejamq_proto.codes import ConfigError

from dejamq_lab.scenario.trial import attribution
from dejamq_lab.scenario.trial.attribution import CauseScore, Judged

BEGIN, END = "<!-- begin: made by `make trial` -->", "<!-- end -->"
RECALL_GOAL, PRECISION_GOAL = 0.95, 1.0
NONE = "–"


def fill(page: Path, text: str) -> None:
    """Put the text between the page's marks. Raises ConfigError as ``around`` does."""
    before, after = around(page)
    page.write_text(f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}", encoding="utf-8")


def around(page: Path) -> tuple[str, str]:
    """The texts before and after the place for the table. Raises ConfigError where the page has no such place."""
    try:
        whole = page.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{page} is no page to fill: {error.strerror}") from None
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"{page} has no place for the table: a line {BEGIN} and a line {END}")
    return before, after


def made(modes: Mapping[str, Sequence[Judged]], date: str, command: str) -> str:
    """The text: a part for each mode that was played (forensic, audit, inbox), then what went wrong."""
    parts = [f"Played on {date} by `{command}` on {machine()}."]
    for mode, runs in modes.items():
        if mode == "inbox":
            parts += ["## With an inbox", _inbox(runs)]
        else:
            parts += [f"## Journals at level `{mode}`", *_level(runs)]
    return "\n\n".join([*parts, *_went_wrong(modes)])


def machine() -> str:
    """The machine of the measurement, in a few words."""
    try:
        spark = f", Spark {version('pyspark')}"
    except PackageNotFoundError:
        spark = ""
    system = platform.system()
    return f"{os.cpu_count()} cores ({platform.machine()}), {system}, Python {platform.python_version()}{spark}"


def _level(runs: Sequence[Judged]) -> list[str]:
    rows, ledger = attribution.causes(runs), attribution.ledger(runs)
    table = _table(
        ("cause", "scenarios", "runs", "found", "recall", "named", "rightly", "precision"),
        [(row.cause, ", ".join(row.scenarios), row.runs, row.found, _share(row.recall), row.certain, row.right,
          _share(row.precision)) for row in rows],
    )  # fmt: skip
    clean = _table(("control", "runs", "clean"), attribution.controls(runs))
    agreed = (
        f"Ledger and findings agree, delivery by delivery, in {ledger.agreed} of {ledger.runs} runs "
        f"({ledger.double_effects} double effects)."
    )
    return [_goal(rows), table, clean, agreed]


def _goal(rows: Sequence[CauseScore]) -> str:
    known = [row for row in rows if row.runs]
    met = [row for row in known if (row.recall or 0) >= RECALL_GOAL and row.precision == PRECISION_GOAL]
    named = sum(row.certain for row in rows)
    return (
        f"Recall of {RECALL_GOAL} or more at precision {PRECISION_GOAL:.2f}: {len(met)} of {len(known)} causes. "
        f"{sum(row.right for row in rows)} of {named} certain findings are right."
    )


def _inbox(runs: Sequence[Judged]) -> str:
    """Double effects are the question here, and causes are not."""
    score = attribution.ledger(runs)
    delivered = sum(run.outcome.verdict["duplicates"] for run in runs if run.played)
    return (
        f"{score.runs} runs in which every consumer's effects went through `Inbox`: {delivered} duplicates were "
        f"delivered, {score.double_effects} effects were made twice."
    )


def _went_wrong(modes: Mapping[str, Sequence[Judged]]) -> list[str]:
    lines = [f"- {mode}: {text}" for mode, runs in modes.items() for text in attribution.wrong(runs)]
    lines += [f"- {mode}, not played to its end: {text}" for mode, runs in modes.items()
              for text in attribution.unplayed(runs)]  # fmt: skip
    return ["## What went wrong", "\n".join(lines) or "Nothing."]


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    return "\n".join([*head, *(f"| {' | '.join(map(str, row))} |" for row in rows)])
