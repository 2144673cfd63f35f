"""``dejamq lab``: causes of duplicates on command, and whether the audit names them."""

import asyncio
import importlib.util
import random
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from dejamq_lab.scenario.not_supported import not_supported
from dejamq_lab.scenario.run import Outcome, run
from dejamq_lab.scenario.stages import Kind
from dejamq_lab.scenario.text import Scenario, catalogue, read
from dejamq_lab.scenario.variants import with_inbox
from dejamq_proto.codes import ConfigError

from dejamq_cli.lab_explore import explore
from dejamq_cli.output import NO, Format, Output, say, show_object, show_rows, tell

app = typer.Typer(
    help="Duplicates on command: the scenarios, and whether the audit names their cause.", no_args_is_help=True
)


MOST_SEED = 10_000


@app.command("list")
def list_(output: Output = Format.TABLE) -> None:
    """All scenarios: id, what happens, and the source of the behaviour; and the causes that have none, with why."""
    scenarios = catalogue()
    absent = not_supported(scenarios)
    if output is Format.JSON:
        rows = [
            {"id": one.id, "supported": True, "title": one.title, "happens": one.happens, "source": one.source}
            for one in scenarios.values()
        ]
        missing = [{"id": one.id, "supported": False, "title": one.title, "why": one.why} for one in absent]
        show_rows([*rows, *missing], output, empty="no scenarios")
        return
    shown = [{"id": one.id, "what happens": one.title, "source": one.source} for one in scenarios.values()]
    show_rows(shown, output, empty="no scenarios")
    if absent:
        tell("\nnot supported")
        show_rows([{"id": one.id, "what happens": one.title, "why not": one.why} for one in absent], output, empty="")


@app.command("run")
def run_(
    scenario: Annotated[str, typer.Argument(help="An id of `dejamq lab list`, or the path of a scenario's file.")],
    cluster: Annotated[Kind, typer.Option(help="Where it is played.")] = Kind.PROCESS,
    keep: Annotated[
        Path | None, typer.Option(help="Keep journals, stores, ledger and report in this new folder.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Settles what the scenario leaves open; 0: as written. By default another each time."),
    ] = None,
    inbox: Annotated[
        bool, typer.Option("--inbox", help="Every consumer's effects go through an Inbox: none may be there twice.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Play a scenario on a cluster of its own, audit it, and say whether the audit named what was done.

    Exit status 0 when it did, 1 when it did not.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError("the audit needs pyspark: pip install 'dejamq[analytics]'")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise ConfigError(f"{keep} holds something; choose a folder that is new")
    chosen = with_inbox(_chosen(scenario)) if inbox else _chosen(scenario)
    seed = random.randrange(1, MOST_SEED) if seed is None else seed
    say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="dejamq-lab-") as temporary:
        outcome = asyncio.run(run(chosen, keep or Path(temporary), say, seed, cluster))
        _show(chosen, outcome, output, kept=keep is not None)
    raise typer.Exit(0 if outcome.ok else NO)


app.command("explore")(explore)


def _chosen(name: str) -> Scenario:
    known = catalogue()
    if name in known:
        return known[name]
    if name.endswith(".toml"):
        return read(Path(name))
    raise ConfigError(f"there is no scenario {name!r}; see: dejamq lab list")


def _show(scenario: Scenario, outcome: Outcome, output: Format, *, kept: bool) -> None:
    if output is Format.JSON:
        show_object(msgspec.to_builtins(outcome))
        return
    verdict: dict[str, Any] = outcome.verdict
    tell(f"{scenario.id}: {scenario.happens}")
    tell(f"{verdict['messages']} messages, {verdict['deliveries']} deliveries, {verdict['duplicates']} duplicates")
    for cause, count in sorted(verdict["causes"].items()):
        tell(f"  {cause}: {count}")
    for cause, count in sorted(verdict["expected_causes"].items()):
        tell(f"  {cause}: {count}, expected")
    for line in outcome.proof:
        tell(line)
    for problem in outcome.problems:
        tell(f"the audit is wrong: {problem}")
    tell("the audit named what was done" if outcome.ok else "the audit did NOT name what was done")
    if kept:
        tell(f"report: {Path(outcome.directory) / 'report.html'}")
