"""The page for somebody who has been woken: what it says, and how it looks in a real browser."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from dejamq_analytics.report.digest import Digest
from dejamq_analytics.report.ownership_chart import ChartLane, Holding
from dejamq_analytics.report.page import render
from dejamq_analytics.report.verdict import Verdict
from pages import looked_at, run
from pyspark.sql import Row

NASTY = "<script>document.title='taken'</script><img src=http://example.invalid/x onerror=alert(1)>"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LINE = Row(process="c1", boot_id="1", seq=177, event="DELIVER", summary="queue offset 30, delivery 31 of " + NASTY)


def side(process: str) -> Row:
    return Row(
        process=process, broker_name="broker-a", topic="orders", queue_id=0, queue_offset=30, delivered_at=NOON,
        result="success",
    )  # fmt: skip


def finding(cause: str | None) -> Row:
    return Row(
        kind="delivered twice", cause=cause, message_id="C00002023BCC0BC5D66C6BBFB0FC001E", consumer_group=NASTY,
        trigger="the members differ: c1, c2 at broker-a, c2 at broker-b", evidence=[LINE] * 5,
        missing=None if cause else "seq gap of c1, lines 5-9", first=side("c1"), second=side("c2"),
    )  # fmt: skip


UNUSUAL = Row(
    kind="two_owners", time=NOON, consumer_group="g", topic="orders", broker_name="broker-a", queue_id=0,
    queue_offset=None, message_id=None, detail="c2 opened it 3 times while c1 held it and kept it",
)  # fmt: skip
VERDICT = Verdict(
    run_id="run-3a6132615fa3", verdict="findings", messages=150, deliveries=234, duplicates=85, unfinished_first=0,
    expected_duplicates=2, lost=3, unseen=0, out_of_order=0, causes={"R2": 84}, expected_causes={"L1": 2},
    undetermined=1, undetermined_missing={"seq gap of c1, lines 5-9": 1}, anomalies={"two_owners": 4}, processes=7,
    journal_gaps=1, by_group={},
)  # fmt: skip
DIGEST = Digest(
    ["L1", "R2", "undetermined"],
    [{"R2": number, "L1": number % 2} for number in range(60)],
    ("2026-11-21 12:00:00 UTC", "2026-11-21 12:01:00 UTC"),
    [(0.01, "cut c1 - broker-b"), (0.03, "pause c1"), (0.97, "heal c1 - broker-b"), (0.99, NASTY[:30])],
    [("orders broker-a:0", 84), ("orders broker-b:3", 1)],
    [
        ChartLane(
            "a-rather-long-topic-name broker-a:0",
            [Holding("c1", 0, 0.9), Holding("c2", 0.2, 0.4)],
            [(0.3, 7), (0.999, 1)],
        ),
        ChartLane("orders broker-b:3", [Holding("c2", 0, 1)], []),
    ],
    [finding("R2"), finding(None)],
    [UNUSUAL],
)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(render(VERDICT, DIGEST), encoding="utf-8")
    return path


def test_the_first_sentence_says_how_much_why_and_when() -> None:
    assert (
        "85 came twice, 84 of them because of R2 (brokers disagreed about the members); 3 lost, "
        "between 2026-11-21 12:00:00 UTC and 2026-11-21 12:01:00 UTC."
    ) in render(VERDICT, DIGEST)


def test_a_clean_page_says_what_was_looked_at_and_nothing_to_do() -> None:
    empty = Digest([], [], ("", ""), [], [], [], [], [])
    clean = Verdict(
        run_id="run-1", verdict="clean", messages=150, deliveries=150, duplicates=0, unfinished_first=0,
        expected_duplicates=0, lost=0, unseen=0, out_of_order=0, causes={}, expected_causes={}, undetermined=0,
        undetermined_missing={}, anomalies={}, processes=4, journal_gaps=0, by_group={},
    )  # fmt: skip
    told = render(clean, empty)
    assert "150 deliveries of 150 messages were looked at." in told
    assert all(heading not in told for heading in ("What to change", "Who held", "What else is unusual"))


def test_the_page_says_how_the_last_lines_of_a_killed_process_are_kept() -> None:
    lost = "the last 100 ms of billing-1, which ended without closing at journal level audit"
    told = render(msgspec.structs.replace(VERDICT, undetermined_missing={lost: 1}), DIGEST)
    assert "DEJAMQ_JOURNAL_LEVEL" in told
    assert "DEJAMQ_JOURNAL_LEVEL" not in render(VERDICT, DIGEST)


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    told = render(VERDICT, DIGEST)
    assert "<script" not in told
    assert "<img" not in told
    assert "url(" not in told
    assert "<link" not in told


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_all_of_it_can_be_read_and_nothing_sticks_out(page: Path, scheme: str) -> None:
    found = looked_at(page, scheme)
    assert (found["pale"], found["outside"], found["wide"]) == ([], [], False)
    assert (found["scripts"], found["console"], found["charts"]) == (0, [], 4)
    assert (sum(found["paper"][:3]) > 600) == (scheme == "light")
    assert found["headings"] == [
        "Something is wrong", "What caused it", "When", "On which queue", "Who held which queue", "Show me one",
        "What to change", "What else is unusual", "What could not be told, and why",
    ]  # fmt: skip


@pytest.mark.browser
def test_on_a_telephone_nothing_is_wider_than_the_screen(page: Path) -> None:
    assert not looked_at(page, "light", 500)["wide"]


@pytest.mark.browser
def test_it_can_be_printed(page: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    run(page, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    assert paper.read_bytes().startswith(b"%PDF")
