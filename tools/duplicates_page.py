"""Writes docs/duplicates.md from the causes of the audit, the scenarios of the lab, and how each looks in a report.

``python tools/duplicates_page.py`` writes the page, with ``--check`` it says whether the committed one is today's.
"""

import argparse
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

from dejamq_analytics.report.causes import CAUSES
from dejamq_lab.machines.rocketmq import VERSION
from dejamq_lab.rocketmq.scenario import recorded_name
from dejamq_lab.rocketmq.scenarios import NOT_SHOWN, SCENARIOS
from dejamq_lab.scenario.script.not_supported import UnsupportedCause, all_causes, cause_of, not_supported
from dejamq_lab.scenario.script.text import Scenario, catalogue

TREE = Path(__file__).parents[1]
PAGE = TREE / "docs" / "duplicates.md"
RECORDED = TREE / "tests" / "data" / "rocketmq"
WIDTH = 118
LOOKS = Path(__file__).with_name("duplicates_looks.toml")
GROUPS = {
    "P": "P: the producer's side stores it twice",
    "B": "B: a broker stores it again",
    "O": 'O: "done" did not reach the place where the next owner reads',
    "R": "R: two owners at once",
    "L": "L: the handler or the design asks for it",
}
INTRODUCTION = """\
# Why a message came twice

Made by `make duplicates` from the audit's causes and the lab's scenarios; a test fails when this page is not theirs.

Delivery is at least once: whatever nobody knows to be done is done again. This is the catalogue of all ways to get
there that RocketMQ has, with the ids that `dejamq audit` gives them. Each cause says what happens, how its example
looks in a report (capitals are lines of the [journal](journal.md)), the command that makes it happen on a cluster of
its own ([the lab](lab.md)), with which of RocketMQ's own clients it was seen on RocketMQ itself, and what to change.
What somebody asked for is *expected*: it is told apart and changes no exit status. What holds of the things people say
about duplicates is in [claims](claims.md). Against all of them at once helps an effect that happens once: `Inbox`, in
the [examples](../examples/README.md).
"""


def page() -> str:
    """The whole page."""
    scenarios = catalogue()
    looks = tomllib.loads(LOOKS.read_text(encoding="utf-8"))
    absent = {each.id: each for each in not_supported(scenarios)}
    return "\n".join([INTRODUCTION, *_sections(scenarios, looks, absent), *_controls(scenarios)]).rstrip() + "\n"


def _sections(
    scenarios: dict[str, Scenario], looks: dict[str, str], absent: dict[str, UnsupportedCause]
) -> Iterator[str]:
    for letter, title in GROUPS.items():
        yield f"## {title}\n"
        for cause in all_causes():
            if cause[0] == letter:
                shows = [one for one in scenarios if cause_of(one) == cause and not one.endswith("-control")]
                yield _cause(cause, shows, looks, absent.get(cause))


def _cause(cause: str, scenarios: list[str], looks: dict[str, str], absent: UnsupportedCause | None) -> str:
    told = CAUSES.get(cause)
    if absent is not None:
        shown = f" Shown by {', '.join(f'`{test}`' for test in absent.shown_by)}." if absent.shown_by else ""
        return f"### {cause}: {absent.title}\n\n{_wrapped(f'Not supported: {absent.why}{shown}')}\n"
    title = told.title if told else catalogue()[scenarios[0]].title
    story = told.story if told else " ".join(catalogue()[scenarios[0]].happens.split())
    lines = [f"### {cause}: {title}\n"]
    lines += [f"{_wrapped(story)}\n", _wrapped(f"- In a report: {looks[cause]}")]
    lines.append(_wrapped(f"- Try it: {_commands(scenarios)}"))
    lines += _seen(cause)
    advice = told or CAUSES.get(cause.rstrip("b"))  # P1b is a shape of P1
    lines += [_wrapped(f"- Prevent it: {advice.change}{_setting(advice.setting)}")] if advice else []
    return "\n".join([*lines, ""])


def _wrapped(text: str) -> str:
    """In lines that fit a screen; commands and names stay whole."""
    indent = "  " if text.startswith("- ") else ""
    whole = re.sub("`[^`]+`", lambda found: found[0].replace(" ", "\0"), text)
    filled = textwrap.fill(whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ")


def _commands(scenarios: list[str]) -> str:
    return ", ".join(f"`dejamq lab run {scenario}`" for scenario in scenarios)


def _seen(cause: str) -> list[str]:
    """The commands that made it happen on RocketMQ itself, each with the clients of its recorded runs."""
    seen = []
    for one in SCENARIOS.values():
        clients = [client for client in one.clients if (RECORDED / recorded_name(one.id, client)).exists()]
        if cause_of(one.id) == cause and clients:
            seen.append(f"`dejamq lab run {one.id} --cluster rocketmq` ({', '.join(clients)})")
    if why := NOT_SHOWN.get(cause):
        return [_wrapped(f"- Not on RocketMQ {VERSION}: {why}.")]
    return [_wrapped(f"- Seen on RocketMQ {VERSION}: {', '.join(seen)}")] if seen else []


def _setting(setting: str) -> str:
    return f" Setting: {setting}." if setting else ""


def _controls(scenarios: dict[str, Scenario]) -> Iterator[str]:
    """What looks like a cause and is none, and scenarios of the lab that are about something else."""
    shown = set(all_causes())
    yield "## What causes no duplicate\n"
    yield "These are played as well, and the audit must name none of the causes that they look like.\n"
    yield "| scenario | what happens |\n|---|---|"
    for scenario in scenarios.values():
        if cause_of(scenario.id) not in shown or scenario.id.endswith("-control"):
            yield f"| `dejamq lab run {scenario.id}` | {' '.join(scenario.happens.split())} |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when the page is stale")
    if parser.parse_args(arguments).check:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        if not fresh:
            print("docs/duplicates.md is not of today's causes and scenarios; run: make duplicates", file=sys.stderr)
        return 0 if fresh else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
