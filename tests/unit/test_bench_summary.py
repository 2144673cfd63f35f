"""Side by side: medians and ratios of rounds, and how they are told."""

import xml.etree.ElementTree as ET

import msgspec
import pytest
from dejamq_lab.bench.client.result import BenchResult, Load
from dejamq_lab.bench.figures import BATCHES, FIGURES, FRAMES, Figure
from dejamq_lab.bench.page import BEGIN, END, rendered, written_into
from dejamq_lab.bench.picture import drawn
from dejamq_lab.bench.quick import Ratio, table
from dejamq_lab.bench.rounds import Sample, shown
from dejamq_lab.bench.summary import BenchReport, Spread, baselines, durabilities, journal_costs, summarized

SEND = Figure("send", "sent", "send", Load(), {"dejamq": 10, "redis": 5}, goal="≥ 3 × Redis")
SINGLE = Figure("single", "one at a time", "send", Load(mode="single"), {"dejamq": 10}, value="p50_ms")
SYNC = Figure("sync", "sync", "send", Load(flush_mode="sync"), {"dejamq": 10})


def result(rate: float, p50_ms: float | None = None, **more: float) -> BenchResult:
    ground = {"grpc_echo_p50_ms": 0.5, "memory_copy_gb_per_second": 8.0} | more
    mode = "single" if p50_ms else "submit"
    return BenchResult("send", 10, 1000, 1.0, rate, p50_ms, None, ground, {"mode": mode})


def sample(side: str, number: int, value: float, figure: Figure = SEND, **more: float) -> Sample:
    p50_ms = value if figure.value == "p50_ms" else None
    return Sample(figure.key, side, number, value, result(value, p50_ms, **more))


RATES = [
    sample("dejamq", 0, 300_000.0, producer_core_us_per_message=2.0), sample("redis", 0, 100_000.0),
    sample("dejamq", 1, 100_000.0, producer_core_us_per_message=6.0), sample("redis", 1, 20_000.0),
    sample("dejamq", 2, 200_000.0, producer_core_us_per_message=3.0), sample("redis", 2, 50_000.0),
]  # fmt: skip


def report(samples: list[Sample]) -> BenchReport:
    about = dict.fromkeys(("cores", "processor", "memory", "system", "python", "load"), "x")
    return BenchReport(
        "2026-01-01", about, 3, summarized((SEND, SINGLE, SYNC), samples), {"nats": "nats: not here"}, {},
        baselines(samples),
    )  # fmt: skip


def test_a_side_is_told_by_its_median_with_lowest_and_highest() -> None:
    (row,) = summarized([SEND], RATES)
    assert row.sides["dejamq"] == Spread(200_000, 100_000, 300_000)
    assert row.sides["redis"] == Spread(50_000, 20_000, 100_000)


def test_a_ratio_is_of_the_rounds_and_not_of_the_medians() -> None:
    (row,) = summarized([SEND], RATES[:4])
    assert row.ratios == {"redis": Spread(4.0, 3.0, 5.0)}


def test_a_round_that_one_side_missed_gives_no_ratio() -> None:
    (row,) = summarized([SEND], [RATES[0], RATES[3]])
    assert row.ratios == {}


def test_what_dejamq_was_not_measured_for_is_no_row() -> None:
    assert summarized([SEND, SINGLE], [RATES[1]]) == []


def test_a_send_alone_is_compared_with_an_echo_and_a_synced_one_with_its_floor() -> None:
    single = summarized([SINGLE], [sample("dejamq", 0, 0.4, SINGLE)])[0]
    assert single.floors == {"of a bare gRPC echo": Spread(0.8, 0.8, 0.8)}
    synced = summarized([SYNC], [sample("dejamq", 0, 900.0, SYNC, sync_floor_per_second=1000.0)])[0]
    assert synced.floors == {"of 64 / (fdatasync + round trip)": Spread(0.9, 0.9, 0.9)}


def test_core_time_of_a_message_is_the_median_of_rounds() -> None:
    assert summarized([SEND], RATES)[0].cores_us == {"dejamq": {"producer": 3.0}}


def test_a_report_survives_being_written() -> None:
    whole = report(RATES)
    assert msgspec.json.decode(msgspec.json.encode(whole), type=BenchReport) == whole


def test_the_table_has_goal_figure_peer_and_ratio_in_one_line() -> None:
    text = rendered(report(RATES), "bench.svg")
    assert (
        "| sent | ≥ 3 × Redis | **200 k/s (100 k/s to 300 k/s)** |  | Redis Streams 50 k/s (20 k/s to 100 k/s) "
        "| 4 × (3 to 5) |"
    ) in text.splitlines()
    assert "Skipped: nats: not here." in text.splitlines()


def test_the_table_has_a_column_for_frames_with_what_grpc_has_of_them() -> None:
    frames = [sample(FRAMES, number, 400_000.0, producer_core_us_per_message=1.0) for number in range(3)]
    lines = rendered(report([*RATES, *frames]), "bench.svg").splitlines()
    assert lines[2].split(" | ")[2:4] == ["dejamq (gRPC)", "dejamq (frames)"]
    assert lines[4].split(" | ")[2:5] == [
        "**200 k/s (100 k/s to 300 k/s)**",
        "400 k/s (400 k/s to 400 k/s)<br>gRPC: 0.5 × (0.25 to 0.75) of it",
        "Redis Streams 50 k/s (20 k/s to 100 k/s)",
    ]
    assert "| sent | 3 · 1 |  |  |" in lines


def test_the_page_tells_how_fast_the_processor_was_in_the_slowest_and_the_fastest_measurement() -> None:
    samples = [sample("dejamq", number, 1.0, python_step_ns=step) for number, step in enumerate((80.0, 160.0, 90.0))]
    assert "a step of a bare Python loop (ns) 90 (80 to 160)" in rendered(report(samples), "bench.svg")


def test_only_what_is_between_the_markers_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    made = written_into(page, report(RATES), "bench.svg")
    assert made.startswith(f"before\n{BEGIN}\n![")
    assert made.endswith(f"\n{END}\nafter\n")
    assert "old" not in made
    assert written_into(made, report(RATES), "bench.svg") == made


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no line"):
        written_into("before\n", report(RATES), "bench.svg")


def test_what_the_journal_costs_is_told_from_figures_with_and_without_it_on_brokers_of_their_own() -> None:
    on = Figure("send_on", "sent, with journal", "send", Load(), {"dejamq": 10}, alone=True)
    off = Figure("send_off", "sent, without journal", "send", Load(journal_level="off"), {"dejamq": 10})
    assert (on.stands_alone, off.stands_alone, SEND.stands_alone) == (True, True, False)
    samples = [
        sample("dejamq", 0, 50.0), sample("dejamq", 0, 90.0, on), sample("dejamq", 0, 100.0, off),
        sample("dejamq", 1, 40.0, off), sample("dejamq", 1, 38.0, on), sample("dejamq", 2, 70.0, off),
        sample("dejamq", 2, 49.0, on), sample("dejamq", 3, 1.0, on),
    ]  # fmt: skip
    whole = msgspec.structs.replace(report(RATES), journal=journal_costs(samples))
    assert "at `audit` costs sending 10 % (5 to 30) of" in rendered(whole, "bench.svg")
    assert journal_costs(samples[:1]) == {}


def test_the_picture_is_svg_with_a_bar_for_each_side_the_best_first() -> None:
    picture = ET.fromstring(drawn(report(RATES)))
    bars = [part for part in picture.iter("{http://www.w3.org/2000/svg}rect") if part.get("class") != "paper"]
    assert [bar.get("class") for bar in bars] == ["own", "peer"]
    assert float(bars[0].get("width", 0)) == pytest.approx(4 * float(bars[1].get("width", 0)), rel=0.01)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (1_250_000, "/s", "1.25 M/s"), (98_400, "/s", "98.4 k/s"), (421_600, "/s", "422 k/s"), (950, "/s", "950 /s"),
        (0.4312, "ms", "0.431 ms"), (1234.5, "ms", "1,234 ms"),
    ],
)  # fmt: skip
def test_numbers_are_told_with_three_digits(value: float, unit: str, words: str) -> None:
    assert shown(value, unit) == words


def test_durability_is_told_once_for_each_peer() -> None:
    told = msgspec.structs.replace(result(1.0), settings={"peer": "redis", "durability": "everysec"})
    assert durabilities([Sample("send", "redis", 0, 1.0, told), *RATES]) == {"redis": "everysec"}


def test_a_quick_rate_is_told_in_echoes_and_copies_and_a_time_in_echoes() -> None:
    rate = Ratio.of("send", result(400_000.0))
    assert (rate.echoes, rate.copies) == (200.0, 0.05)
    alone = Ratio.of("alone", result(1000.0, 0.4))
    assert (alone.echoes, alone.copies) == (0.8, None)
    lines = table([rate, alone], {"send": msgspec.structs.replace(rate, echoes=180.0)}).splitlines()
    assert lines[1].split() == ["send", "400", "k/s", "200.0", "5.00%", "180.0"]


def test_every_figure_measures_dejamq_and_those_beside_peers_both_of_its_transports() -> None:
    assert all("dejamq" in figure.sides for figure in FIGURES)
    assert all(FRAMES in figure.sides for figure in FIGURES if len(figure.sides) > 1)
    assert FIGURES[0].load_of(FRAMES).transport == "frames"
    assert FIGURES[0].load_of("dejamq").transport == "grpc"


def test_batches_are_only_rocketmqs() -> None:
    assert len({figure.key for figure in FIGURES}) == len(FIGURES)
    assert FIGURES[0].load_of(BATCHES).mode == "batch"
    assert FIGURES[0].load_of("rocketmq").mode == "submit"
