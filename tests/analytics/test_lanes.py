"""The chart of owners: rows that cover nothing, frames where two held at once, everything in its place."""

from itertools import pairwise
from xml.etree import ElementTree

from dejamq_analytics.report.charts import ChartMark
from dejamq_analytics.report.ownership_chart import LABEL, ROOM, ChartLane, Holding, overlaps, ownership, rows_of
from hypothesis import given
from hypothesis import strategies as st

NASTY = "<script>alert('\"&</script>"
moments = st.integers(0, 100).map(lambda number: number / 100)
holds = st.lists(
    st.builds(lambda owner, a, b: Holding(owner, min(a, b), max(a, b)), st.sampled_from("abc"), moments, moments),
    max_size=12,
).map(lambda found: sorted(found, key=lambda hold: (hold.begin, hold.end)))


@given(holds)
def test_no_holding_covers_another_one(found: list[Holding]) -> None:
    rows = rows_of(found)
    for row in set(rows):
        mine = [hold for hold, own in zip(found, rows, strict=True) if own == row]
        assert all(earlier.end <= later.begin for earlier, later in pairwise(mine))


@given(holds, st.integers(0, 99).map(lambda number: number / 100 + 0.005))
def test_a_frame_is_where_two_owners_held_and_nowhere_else(found: list[Holding], at: float) -> None:
    owners = {hold.owner for hold in found if hold.begin < at < hold.end}
    assert any(begin < at < end for begin, end in overlaps(found)) == (len(owners) > 1)


def test_an_owner_that_opens_its_queue_again_does_not_overlap_with_itself() -> None:
    assert overlaps([Holding("a", 0.0, 0.5), Holding("a", 0.4, 1.0)]) == []


def drawn(*lanes: ChartLane) -> ElementTree.Element:
    return ElementTree.fromstring(ownership("t", lanes, {"a": 0, "b": 1}, [ChartMark(0.5, NASTY)], ("begin", "end")))


def test_a_bar_lies_where_its_time_is() -> None:
    bar = next(node.attrib for node in drawn(ChartLane("q", [Holding("a", 0.25, 0.75)], [])).iter("rect"))
    assert (float(bar["x"]), float(bar["width"])) == (LABEL + ROOM / 4, ROOM / 2)


def test_two_owners_at_once_are_framed_and_said() -> None:
    svg = drawn(ChartLane("q", [Holding("a", 0.0, 0.6), Holding("b", 0.5, 1.0)], []))
    (frame,) = [node for node in svg.iter("rect") if node.get("class") == "overlap"]
    assert [node.text for node in frame] == ["q: two owners"]


def test_duplicates_are_ticks_that_say_how_many() -> None:
    (tick,) = drawn(ChartLane("q", [Holding("a", 0.0, 1.0)], [(0.5, 7)])).iter("path")
    assert [node.text for node in tick] == ["q: 7 came again"]


def test_names_from_journals_are_escaped() -> None:
    texts = [node.text for node in drawn(ChartLane(NASTY, [Holding(NASTY, 0.0, 1.0)], [(0.1, 1)])).iter("text")]
    assert texts == ["…" + NASTY[-23:], NASTY, "begin", "end"]
