"""``dejamq bench``: the shape of its JSON, and what it refuses, with measurements that are stood in."""

import pytest
from cli_runner import run_here
from dejamq_cli.commands import bench
from dejamq_lab.bench.client.result import BenchResult, Load

KEYS = [
    "what", "messages", "body_bytes", "seconds", "messages_per_second", "p50_ms", "p99_ms", "baseline", "settings"
]  # fmt: skip


class StandIn:
    asked: list[tuple[Load, str | None, str | None]]

    def __init__(self, load: Load, namesrv: str | None = None, peer: str | None = None) -> None:
        self.asked.append((load, namesrv, peer))

    async def run(self, what: str) -> BenchResult:
        return BenchResult(what, 100, 64, 0.5, 200.0, 1.5, None, {"echo": 1.0}, {"queues": 4})


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Load, str | None, str | None]]:
    StandIn.asked = []
    monkeypatch.setattr(bench, "Bench", StandIn)
    return StandIn.asked


@pytest.mark.parametrize("what", ["send", "consume", "poll", "latency"])
def test_json_is_one_object_with_the_fields_that_programs_rely_on(what: str) -> None:
    row = run_here("bench", what, "-o", "json").json()
    assert list(row) == KEYS
    assert row["what"] == what


def test_people_see_one_row_with_what_was_measured() -> None:
    lines = run_here("bench", "send").output.splitlines()
    assert lines[0].split() == [
        "what",
        "messages",
        "body_bytes",
        "seconds",
        "messages_per_second",
        "p50_ms",
        "echo",
        "queues",
    ]
    assert lines[1].split() == ["send", "100", "64", "0.5", "200.0", "1.5", "1.0", "4"]


def test_the_load_is_what_the_options_say(asked: list[tuple[Load, str | None, str | None]]) -> None:
    options = (
        "--messages",
        "5",
        "--body-bytes",
        "7",
        "--mode",
        "await",
        "--concurrency",
        "3",
        "--journal-level",
        "off",
    )
    assert run_here("bench", "send", *options, "--namesrv", "n:1").status == 0
    assert asked == [(Load(5, 7, mode="await", concurrency=3, journal_level="off"), "n:1", None)]
    assert run_here("bench", "latency", "--rate", "9").status == 0
    assert asked[1][0].rate == 9
    assert run_here("bench", "send", "--mode", "batch", "--flush-mode", "sync", "--topics", "2").status == 0
    assert asked[2][0] == Load(200_000, mode="batch", batch_size=32, flush_mode="sync", topics=2)
    assert run_here("bench", "consume", "--peer", "redis", "--batch-size", "64", "--while-sending").status == 0
    assert asked[3] == (Load(200_000, batch_size=64, together=True), None, "redis")


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (("send", "--mode", "fast"), "--mode"),
        (("send", "--messages", "0"), "--messages"),
        (("consume", "--journal-level", "loud"), "--journal-level"),
        (("audit", "--journal-level", "off"), "nothing to audit"),
        (("send", "--peer", "redis", "--namesrv", "n:1"), "--peer"),
        (("send", "--flush-mode", "sync", "--namesrv", "n:1"), "--flush-mode"),
    ],
)
def test_what_cannot_be_measured_is_bad_use(command: tuple[str, ...], word: str) -> None:
    ran = run_here("bench", *command)
    assert ran.status == 2
    assert word in ran.one_line()
