"""``python benchmarks/compiled_parts.py``: what each compiled part gives to the figures of ``docs/performance.md``.

``dejamq bench`` measures each figure with everything compiled, and with one part at a time done by its Python twin.
Both alternate in each round. A ratio is of one round: what a message costs all processes of a core without the part,
through that with everything. The rate is given beside it. A part earns its C with 1.15 in one figure at least.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

import msgspec
from one_part_less.sitecustomize import PARTS, WITHOUT

SENT = ["join of a run", "checksums", "announced ids", "columns of the journal", "scan of a run", "message ids"]
SENT += ["check of a message", "permutation", "stretches", "shortcut of a send"]
READ = ["scan of a run", "checksums", "columns of the journal", "body and id"]
FIGURES = {
    "sent": (["send", "--messages", "600000"], SENT),
    "100 bytes": (["send", "--body-bytes", "100", "--messages", "1000000"], SENT),
    "256 senders": (["send", "--mode", "await", "--messages", "150000"], SENT),
    "consumed": (["consume", "--messages", "600000"], READ),
    "polled": (["poll", "--messages", "600000"], READ),
    "forensic": (["consume", "--journal-level", "forensic", "--messages", "100000"], READ),
}
"""Of ``dejamq bench``, named as on the page, and the parts that messages pass in it."""
ALL, EARNED = "all of them", 1.15


def main() -> int:
    options = _parsed()
    figures, parts = options.figures or list(FIGURES), options.parts or [ALL, *PARTS]
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(options.rounds):
        for figure in figures:
            passed = [part for part in parts if part in {ALL, *FIGURES[figure][1]}]
            for part in passed[:: -1 if number % 2 else 1]:
                whole, less = _measured(figure, None), _measured(figure, part)
                ratios.setdefault((part, figure), []).append((less[0] / whole[0], less[1] / whole[1]))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    for part in parts:
        of_part = {figure: _median(ratios[part, figure]) for figure in figures if (part, figure) in ratios}
        told = ", ".join(f"{figure} {cost:.2f} ({rate:.2f})" for figure, (cost, rate) in of_part.items())
        earned = "earned" if any(cost >= EARNED for cost, _ in of_part.values()) else "not earned"
        print(f"{part:24}{earned:12}core time (rate) without it: {told}")
    return 0


def _measured(figure: str, without: str | None) -> tuple[float, float]:
    """Core time of one message in all processes (µs), and messages a second."""
    environment = dict(os.environ)
    if without == ALL:
        environment["DEJAMQ_PURE_PYTHON"] = "1"
    elif without:
        environment |= {WITHOUT: without, "PYTHONPATH": str(Path(__file__).parent / "one_part_less")}
    command = [sys.executable, "-m", "dejamq_cli", "bench", *FIGURES[figure][0], "-o", "json"]
    told = msgspec.json.decode(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    cores = [value for name, value in told["baseline"].items() if name.endswith("_core_us_per_message")]
    return sum(cores), told["messages_per_second"]


def _median(of_rounds: list[tuple[float, float]]) -> tuple[float, float]:
    costs, rates = zip(*of_rounds, strict=True)
    return statistics.median(costs), statistics.median(rates)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--figures", nargs="*", choices=FIGURES)
    parser.add_argument("--parts", nargs="*", choices=[ALL, *PARTS])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
