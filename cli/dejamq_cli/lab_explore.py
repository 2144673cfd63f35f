"""``dejamq lab explore``: random faults and traffic, and what breaks an invariant as a scenario of few faults."""

import importlib.util
import random
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from dejamq_lab.explore.hunt import Hunted, Options, hunt
from dejamq_lab.scenario.stages import Kind
from dejamq_proto.codes import ConfigError

from dejamq_cli.output import NO, Format, Output, say, show_object, tell

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
        hunted = hunt(Options(seed, minutes, Path(temporary), out, jobs, cluster), say)
    _show(seed, hunted, output)
    raise typer.Exit(NO if hunted.found else 0)


def _show(seed: int, hunted: Hunted, output: Format) -> None:
    if output is Format.JSON:
        found = [{"problems": one.problems, "scenario": str(one.path)} for one in hunted.found]
        show_object({"seed": seed, "played": hunted.played, "found": found})
        return
    for one in hunted.found:
        tell(f"broken: {'; '.join(one.problems)}")
        tell(f"  dejamq lab run {one.path}")
    tell(f"{hunted.played} played, {len(hunted.found)} broke something")
