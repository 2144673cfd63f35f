"""``python -m dejamq_lab.scenario.trial.command``: the judge on trial. ``make trial`` runs it.

It plays every scenario with every seed, audits all runs as one history, and writes the table of findings. Finished runs
and audits are not done again: the same command goes on where it was interrupted.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from dejamq_proto.codes import ConfigError

from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.script.text import Scenario, catalogue
from dejamq_lab.scenario.script.variants import at_level, with_inbox
from dejamq_lab.scenario.stage.stages import Kind
from dejamq_lab.scenario.trial import page
from dejamq_lab.scenario.trial.attribution import Judged
from dejamq_lab.scenario.trial.trial import AUDITED, PLAYED, PlayedRun, trial

INBOX = "inbox"
MODES = ("forensic", "audit", INBOX)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when the audit said something wrong at level forensic, or an effect passed an inbox twice."""
    options = _parser().parse_args(arguments)
    known = catalogue()
    if strange := sorted(set(options.scenarios) - known.keys()):
        raise ConfigError(f"there is no scenario {strange[0]!r}")
    if options.page:
        page.around(options.page)  # a trial takes hours: it is not played for a page that takes no table
    chosen = [known[name] for name in options.scenarios or known]
    modes = {mode: _judged(mode, chosen, options) for mode in options.modes}
    text = page.made(modes, datetime.now(UTC).strftime("%Y-%m-%d"), _command(options))
    if options.page:
        page.fill(options.page, text)
    print(text)
    strict = [run for mode in ("forensic", INBOX) for run in modes.get(mode, [])]
    return 0 if all(run.outcome.ok for run in strict) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help="by default all of them")
    parser.add_argument("--seeds", type=int, default=1, help="how often each is played")
    parser.add_argument("--jobs", type=int, default=1, help="how many are played side by side")
    parser.add_argument("--cluster", type=Kind, choices=list(Kind), default=Kind.PROCESS, help="where they are played")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--directory", type=Path, default=Path("build/trial"), help="where runs are kept")
    parser.add_argument("--page", type=Path, help="the page whose table is made anew")
    parser.add_argument("--again", action="store_true", help="play those again that did not come to their end")
    parser.add_argument("--audit-again", action="store_true", help="audit all of them again: the rules were changed")
    return parser


def _judged(mode: str, chosen: Sequence[Scenario], options: argparse.Namespace) -> list[Judged]:
    scenarios = [with_inbox(one) if mode == INBOX else at_level(one, mode) for one in chosen]
    place = mode if options.cluster is Kind.PROCESS else f"{mode}-{options.cluster}"
    seeds, directory = range(1, options.seeds + 1), options.directory.absolute() / place
    _forget(directory, audited=options.audit_again, broken=options.again)
    print(f"{mode}:", flush=True)
    outcomes = trial(
        scenarios, seeds, directory, lambda text: print(text, flush=True), jobs=options.jobs, kind=options.cluster
    )
    by_id = {one.id: one for one in scenarios}
    return [Judged(by_id[outcome.scenario], outcome) for outcome in outcomes]


def _forget(directory: Path, *, audited: bool, broken: bool) -> None:
    """The verdicts of all, or that those were played which did not come to their end."""
    for path in directory.glob(f"*/{PLAYED}"):
        if audited:
            (path.parent / AUDITED).unlink(missing_ok=True)
        if broken and msgspec.json.decode(path.read_bytes(), type=PlayedRun).problem:
            path.unlink()


def _command(options: argparse.Namespace) -> str:
    """As somebody would type it."""
    words = ["make", "trial", f"SEEDS={options.seeds}", f"MODES={shlex.quote(' '.join(options.modes))}"]
    words += [f"CLUSTER={options.cluster}"] if options.cluster is not Kind.PROCESS else []
    return " ".join([*words, *([f"SCENARIOS={shlex.quote(' '.join(options.scenarios))}"] if options.scenarios else [])])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ConfigError, ClusterFailed) as error:
        sys.exit(f"trial: {error}")
