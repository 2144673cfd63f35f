"""``dejamq lab``: causes of duplicates on command, and whether the audit names them."""

import asyncio
import importlib.util
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from dejamq_lab.explore.hunt import Hunted, HuntOptions, hunt
from dejamq_lab.rocketmq import run as on_rocketmq
from dejamq_lab.rocketmq.programs import ClientProgram
from dejamq_lab.rocketmq.scenarios import SCENARIOS, chosen
from dejamq_lab.scenario.run import ScenarioOutcome, run
from dejamq_lab.scenario.script.not_supported import not_supported
from dejamq_lab.scenario.script.text import Scenario, catalogue, read
from dejamq_lab.scenario.script.variants import with_inbox
from dejamq_lab.scenario.stage.stages import Kind
from dejamq_proto.codes import ConfigError

from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import NO, Format, Output, say, show_object, show_rows, tell

# dejamq lab explore: random faults and traffic. A broken invariant is reduced to a scenario of few faults.

MOST_SEED = 10_000


def explore(
    minutes: Annotated[float, typer.Option(min=0, help="How long; what has begun by then is brought to its end.")] = 10,
    seed: Annotated[int | None, typer.Option(min=0, help="Settles everything. By default another each time.")] = None,
    out: Annotated[Path, typer.Option(help="Where scenarios are kept that break something.")] = Path("explored"),
    jobs: Annotated[int, typer.Option(min=1, help="How many are played side by side.")] = 1,
    cluster: Annotated[
        Kind, typer.Option(help="Where they are played; those that freeze something always on processes.")
    ] = Kind.PROCESS,
    output: Output = Format.TABLE,
) -> None:
    """Play random faults and traffic on clusters of their own, and look whether the invariants hold.

    Nothing acknowledged is lost, order is kept where it is promised, every duplicate has its cause. What breaks one is
    reduced to few faults and kept as a scenario for `dejamq lab run`. Exit status 0 when nothing broke, else 1.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError("the audit needs pyspark: pip install 'dejamq[analytics]'")
    seed = random.randrange(1, MOST_SEED) if seed is None else seed
    say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="dejamq-explore-") as temporary:
        hunted = hunt(HuntOptions(seed, minutes, Path(temporary), out, jobs, cluster), say)
    _show_hunted(seed, hunted, output)
    raise typer.Exit(NO if hunted.found else 0)


def _show_hunted(seed: int, hunted: Hunted, output: Format) -> None:
    if output is Format.JSON:
        found = [{"problems": one.problems, "scenario": str(one.path)} for one in hunted.found]
        show_object({"seed": seed, "played": hunted.played, "found": found})
        return
    for one in hunted.found:
        tell(f"broken: {'; '.join(one.problems)}")
        tell(f"  dejamq lab run {one.path}")
    tell(f"{hunted.played} played, {len(hunted.found)} broke something")


app = typer.Typer(
    help="Duplicates on command: the scenarios, and whether the audit names their cause.", no_args_is_help=True
)


class Where(StrEnum):
    """Where a scenario is played: on dejamq, three times, or on RocketMQ itself."""

    PROCESS = Kind.PROCESS.value
    COMPOSE = Kind.COMPOSE.value
    INPROC = Kind.INPROC.value
    ROCKETMQ = "rocketmq"


EXAMPLES = examples(
    "dejamq lab run O3",
    "dejamq lab run mine.toml --keep mine",
    "dejamq lab run O1 --cluster rocketmq --client go --keep o1",
)


@app.command("list")
def list_(output: Output = Format.TABLE) -> None:
    """All scenarios: id, what happens, the source of the behaviour, and the clients that show it on a real RocketMQ.

    Then those that only a real RocketMQ plays, and the causes that have no scenario, with why.
    """
    scenarios = catalogue()
    absent, real = not_supported(scenarios), [one for one in SCENARIOS.values() if one.id not in scenarios]
    if output is Format.JSON:
        rows = [
            {"id": one.id, "supported": True, "title": one.title, "happens": one.happens, "source": one.source,
             "rocketmq": _clients(one.id)}
            for one in scenarios.values()
        ]  # fmt: skip
        only = [{"id": one.id, "supported": False, "title": one.about, "rocketmq": _clients(one.id)} for one in real]
        missing = [{"id": one.id, "supported": False, "title": one.title, "why": one.why} for one in absent]
        show_rows([*rows, *only, *missing], output, empty="no scenarios")
        return
    shown = [
        {
            "id": one.id,
            "what happens": one.title,
            "source": one.source,
            "--cluster rocketmq": ", ".join(_clients(one.id)),
        }
        for one in scenarios.values()
    ]
    show_rows(shown, output, empty="no scenarios")
    tell("\nonly with --cluster rocketmq")
    only = [{"id": one.id, "what happens": one.about, "--client": ", ".join(_clients(one.id))} for one in real]
    show_rows(only, output, empty="")
    if absent:
        tell("\nnot supported")
        show_rows([{"id": one.id, "what happens": one.title, "why not": one.why} for one in absent], output, empty="")


def _clients(scenario: str) -> list[str]:
    """The clients with which a real RocketMQ shows it."""
    return [*SCENARIOS[scenario].clients] if scenario in SCENARIOS else []


@app.command("run", epilog=EXAMPLES)
def run_(
    scenario: Annotated[str, typer.Argument(help="An id of `dejamq lab list`, or the path of a scenario's file.")],
    cluster: Annotated[
        Where, typer.Option(help="Where it is played. rocketmq: a real one, from Maven's jars, with its own clients.")
    ] = Where.PROCESS,
    client: Annotated[
        ClientProgram | None,
        typer.Option(help=f"With --cluster rocketmq: the client of its consumers. Default: {Client.JAVA}."),
    ] = None,
    jars: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="With --cluster rocketmq: the folder lib of your own RocketMQ 5, instead of Maven's jars.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep journals, stores, ledger and report in this new folder; of rocketmq the evidence."),
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

    On a real RocketMQ the audit reads what it leaves: logs, traces and stores. That needs a JDK, Maven for the first
    time, and Go for --client go. Exit status 0 when the audit named it, 1 when it did not.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError("the audit needs pyspark: pip install 'dejamq[analytics]'")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise ConfigError(f"{keep} holds something; choose a folder that is new")
    if cluster is Where.ROCKETMQ:
        if inbox or seed is not None:
            raise ConfigError(
                "--inbox and --seed are about dejamq's own clients; leave them out with --cluster rocketmq"
            )
        real = chosen(scenario, client or ClientProgram.JAVA)
        with _directory(keep) as directory:
            outcome = on_rocketmq.run(real, directory, say, client or ClientProgram.JAVA, jars)
            _show(real.id, real.about, outcome, output, kept=keep is not None)
        raise typer.Exit(0 if outcome.ok else NO)
    if client or jars:
        raise ConfigError("--client and --jars are about a real RocketMQ: add --cluster rocketmq")
    ours = with_inbox(_chosen(scenario)) if inbox else _chosen(scenario)
    seed = random.randrange(1, MOST_SEED) if seed is None else seed
    say(f"seed {seed}")
    with _directory(keep) as directory:
        outcome = asyncio.run(run(ours, directory, say, seed, Kind(cluster.value)))
        _show(ours.id, ours.happens, outcome, output, kept=keep is not None)
    raise typer.Exit(0 if outcome.ok else NO)


app.command("explore")(explore)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """The folder of a run: the one to keep, or one that is gone afterwards."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="dejamq-lab-") as temporary:
        yield Path(temporary)


def _chosen(name: str) -> Scenario:
    known = catalogue()
    if name in known:
        return known[name]
    if name.endswith(".toml"):
        return read(Path(name))
    raise ConfigError(f"there is no scenario {name!r}; see: dejamq lab list")


def _show(scenario: str, happens: str, outcome: ScenarioOutcome, output: Format, *, kept: bool) -> None:
    if output is Format.JSON:
        show_object(msgspec.to_builtins(outcome))
        return
    verdict: dict[str, Any] = outcome.verdict
    tell(f"{scenario}: {happens}")
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
