"""A report as the table of a page: between two markers, so that no figure is typed by hand. Pure."""

from collections.abc import Iterator, Mapping

from dejamq_lab.bench.client.worker import OWN
from dejamq_lab.bench.figures import FRAMES
from dejamq_lab.bench.rounds import shown
from dejamq_lab.bench.summary import GROUND, BenchReport, Spread, SummaryRow

BEGIN = "<!-- made by `make bench-page`: begin -->"
END = "<!-- made by `make bench-page`: end -->"
BODY_BYTES = 1024
NAMES = {
    OWN: "dejamq (gRPC)",
    FRAMES: "dejamq (frames)",
    "redis": "Redis Streams",
    "nats": "NATS JetStream",
    "rabbitmq": "RabbitMQ",
    "kafka": "Kafka, librdkafka",
    "rocketmq": "RocketMQ, Java client",
}


def written_into(page: str, report: BenchReport, picture: str) -> str:
    """The page with the report between its markers. Raises ValueError for a page without them."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no line {BEGIN} with a line {END} after it")
    return f"{before}{BEGIN}\n{rendered(report, picture)}\n{END}{after}"


def rendered(report: BenchReport, picture: str) -> str:
    """Markdown: the picture, the table, the machine."""
    rows = [row for row in report.rows if row.peers or row.goal]
    lines = [
        f"![dejamq beside its peers: {rows[0].title if rows else ''}]({picture})",
        "",
        f"| figure | goal | {NAMES[OWN]} | {NAMES[FRAMES]} | peers in the same rounds "
        f"| {NAMES[OWN]} through the peer |",
        "|---|---|---|---|---|---|",
        *map(_row, rows),
        "",
        *_journal(report),
        *_limits(report),
        f"Medians of {report.rounds} rounds in alternation, lowest and highest in brackets; ratios are of each round",
        f"by itself. {_machine(report)}",
        "",
        *_beneath(report),
        *(f"Skipped: {why}." for why in report.skipped.values()),
    ]
    return "\n".join(lines).rstrip()


def named(side: str) -> str:
    """A side as people call it."""
    if side in NAMES:
        return NAMES[side]
    system, comma, how = side.partition(",")
    return "RocketMQ," + how if comma else system


def spread(value: Spread, unit: str) -> str:
    return f"{shown(value.median, unit)} ({shown(value.low, unit)} to {shown(value.high, unit)})"


def times(value: Spread) -> str:
    numbers = (value.median, value.low, value.high)
    median, low, high = (f"{number:.2g}" if number < 10 else f"{number:.0f}" for number in numbers)
    return f"{median} × ({low} to {high})"


def _row(row: SummaryRow) -> str:
    peers = "<br>".join(f"{named(side)} {spread(row.sides[side], row.unit)}" for side in row.peers)
    ratios = [times(row.ratios[side]) if side in row.ratios else "" for side in row.peers]
    ratios += [f"{times(value)} {name}" for name, value in row.floors.items()]
    own = f"**{spread(row.sides[OWN], row.unit)}**"
    return f"| {row.title} | {row.goal} | {own} | {_frames(row)} | {peers} | {'<br>'.join(ratios)} |"


def _frames(row: SummaryRow) -> str:
    """The fast port's figure, and gRPC's figure divided by it."""
    if FRAMES not in row.sides:
        return ""
    ratio = f"<br>gRPC: {times(row.ratios[FRAMES])} of it" if FRAMES in row.ratios else ""
    return spread(row.sides[FRAMES], row.unit) + ratio


def _journal(report: BenchReport) -> Iterator[str]:
    costs = [f"{word} {cost.median:.0f} % ({cost.low:.0f} to {cost.high:.0f})" for word, cost in report.journal.items()]
    if costs:
        yield f"The journal at `audit` costs {' and '.join(costs)} of the rate without it (goal: at most 15 %)."
        yield ""


def _machine(report: BenchReport) -> str:
    about = report.machine
    ground = ", ".join(
        f"{words} {spread_plain(report.baseline[name])}" for name, words in GROUND.items() if name in report.baseline
    )
    return (
        f"{report.date}, {about['cores']} cores ({about['processor']}), {about['memory']}, {about['system']}, "
        f"Python {about['python']}, load {about['load']}. In the same run: {ground}."
    )


def _limits(report: BenchReport) -> Iterator[str]:
    """How far the bytes that pass are from one copy of them in memory."""
    copy = report.baseline.get("memory_copy_gb_per_second")
    rates = {row.key: row for row in report.rows if row.key in ("send", "consume", "poll")}
    if copy and rates:
        told = [
            f"{row.title}: {(bytes_s := row.sides[OWN].median * BODY_BYTES) / 1e6:.0f} MB/s, "
            f"{bytes_s / copy.median / 1e9:.0%} of a memory copy"
            for row in rates.values()
        ]
        yield f"In bytes of bodies: {'; '.join(told)}."
        yield ""


def spread_plain(value: Spread) -> str:
    return f"{value.median:.3g} ({value.low:.3g} to {value.high:.3g})"


def _beneath(report: BenchReport) -> Iterator[str]:
    if report.durability:
        told = (f"{NAMES.get(peer, peer)}: {promise}" for peer, promise in report.durability.items())
        yield f"What each promises. {'. '.join(told)}."
        yield ""
    yield "## Cost by process"
    yield ""
    yield f"| what a message cost of a core (µs), {NAMES[OWN]} · {NAMES[FRAMES]} | producer | broker | consumer |"
    yield "|---|---|---|---|"
    for row in report.rows:
        own, frames = (row.cores_us.get(side, {}) for side in (OWN, FRAMES))
        if own and not row.title.endswith(SAME):
            yield f"| {row.title} | {' | '.join(_cost(own, frames, name) for name in PROCESSES)} |"
    yield ""


def _cost(own: Mapping[str, float], frames: Mapping[str, float], process: str) -> str:
    """Of one process, by gRPC and by frames."""
    return " · ".join(f"{side[process]:.3g}" for side in (own, frames) if process in side)


SAME = "99th percentile"
"""Another number of the measurement in the row above."""
PROCESSES = ("producer", "broker", "consumer")
