"""dejamq beside Redis Streams, NATS JetStream, RabbitMQ, Kafka and RocketMQ: `make bench`.

Each peer that is installed is started in a temporary folder on the loopback; what is missing is skipped with a line
that says what to install; who is not measured at the moment stands still. dejamq is measured over gRPC, its default,
and by the frames of its fast port. Three rounds in alternation take about fifteen minutes. Writes a JSON report and a
picture; with --page the report is written into a page, between its markers, and nothing is measured.
"""

import argparse
import asyncio
import datetime
import sys
import time
from pathlib import Path

import msgspec
from dejamq_lab.bench import peers
from dejamq_lab.bench.figures import FIGURES
from dejamq_lab.bench.page import written_into
from dejamq_lab.bench.picture import drawn
from dejamq_lab.bench.rounds import BenchRounds
from dejamq_lab.bench.summary import BenchReport, baselines, durabilities, journal_costs, machine, summarized

OUT = Path(__file__).parents[1] / "build"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=20, help="no round is begun or gone on with after them")
    parser.add_argument("--peers", nargs="*", default=list(peers.NAMES), choices=peers.NAMES)
    parser.add_argument("--figures", nargs="*", choices=[figure.key for figure in FIGURES], help="only these")
    parser.add_argument("--memory-as-it-is", action="store_true", help="do not fill what is free of it first")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of bench.json and bench.svg (default: build/)")
    parser.add_argument("--page", type=Path, help="write the report of --out into this page, measure nothing")
    options = parser.parse_args()
    if options.page:
        write_page(options.out, options.page)
        return 0
    report = asyncio.run(measured(options))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "bench.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    (options.out / "bench.svg").write_text(drawn(report), encoding="utf-8")
    print(f"written: {options.out / 'bench.json'}, {options.out / 'bench.svg'}")
    return 0


async def measured(options: argparse.Namespace) -> BenchReport:
    """All rounds; progress is told on standard error."""
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {line}", file=sys.stderr, flush=True)

    figures = [figure for figure in FIGURES if not options.figures or figure.key in options.figures]
    rounds = BenchRounds(tell, options.minutes, figures)
    await rounds.run(options.rounds, options.peers, fills_memory=not options.memory_as_it_is)
    samples = rounds.samples
    return BenchReport(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(), machine=machine(rounds.loads),
        rounds=1 + max((sample.round for sample in samples), default=0), rows=summarized(figures, samples),
        skipped=rounds.skipped, durability=durabilities(samples), baseline=baselines(samples),
        journal=journal_costs(samples),
    )  # fmt: skip


def write_page(out: Path, page: Path) -> None:
    """The report's table into the page, and its picture beside it."""
    report = msgspec.json.decode((out / "bench.json").read_bytes(), type=BenchReport)
    picture = page.with_name("bench.svg")
    picture.write_text(drawn(report), encoding="utf-8")
    page.write_text(written_into(page.read_text("utf-8"), report, picture.name), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
