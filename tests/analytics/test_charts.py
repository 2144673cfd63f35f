"""The report's charts: right lengths, everything escaped, nothing to load. Without Spark."""

import re
from xml.etree import ElementTree

import pytest
from dejamq_analytics.report.causes import CAUSES
from dejamq_analytics.report.charts import (
    COLOURS,
    HEAD,
    LABEL,
    LETTER,
    MOST_LINES,
    TALL,
    WIDTH,
    Bar,
    ChartMark,
    bars,
    timeline,
)

ENDS = ("begin", "end")
NASTY = "<script>alert('\"&</script>"


def parsed(svg: str) -> ElementTree.Element:
    """Well-formed, or this raises."""
    return ElementTree.fromstring(svg)


def boxes(svg: str) -> list[dict[str, str]]:
    return [dict(node.attrib) for node in parsed(svg).iter("rect")]


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in parsed(svg).iter("text")]


def test_the_longest_bar_fills_the_room_and_others_are_in_proportion() -> None:
    full, half = (float(box["width"]) for box in boxes(bars("t", [Bar("a", 10, 0), Bar("b", 5, 1)])))
    assert full == WIDTH - LABEL - 80
    assert half == pytest.approx(full / 2)


def test_a_bar_of_nothing_can_still_be_seen() -> None:
    assert float(boxes(bars("t", [Bar("a", 10, 0), Bar("b", 0, 1)]))[1]["width"]) == 2.0


def test_each_bar_has_its_label_and_its_number() -> None:
    assert texts(bars("t", [Bar("O1", 12, 0)])) == ["O1", "12"]


def test_no_bars_are_an_empty_chart() -> None:
    assert boxes(bars("t", [])) == []


@pytest.mark.parametrize("colour", [0, 7, 8, 15])
def test_colours_repeat_when_there_are_more_bars_than_colours(colour: int) -> None:
    assert boxes(bars("t", [Bar("a", 1, colour)]))[0]["class"] == f"c{colour % COLOURS}"


def test_labels_of_bars_are_escaped() -> None:
    svg = bars(NASTY, [Bar(NASTY, 1, 0)])
    assert "<script>" not in svg
    assert NASTY in texts(svg)


def test_marks_and_ends_of_a_time_line_are_escaped() -> None:
    svg = timeline(NASTY, [{0: 1}], [ChartMark(0.5, NASTY)], (NASTY, NASTY))
    assert "<script>" not in svg
    assert texts(svg) == [NASTY] * 3


def test_the_title_is_told_to_screen_readers() -> None:
    assert parsed(bars("causes", [])).attrib["aria-label"] == "causes"


def test_the_highest_column_decides_the_scale() -> None:
    svg = timeline("t", [{0: 4}, {0: 2}], [], ENDS)
    high, low = (float(box["height"]) for box in boxes(svg))
    assert high == TALL - HEAD
    assert low == pytest.approx(high / 2)


def test_parts_of_a_column_stand_on_each_other() -> None:
    lower, upper = boxes(timeline("t", [{0: 1, 1: 3}], [], ENDS))
    assert float(upper["y"]) + float(upper["height"]) == pytest.approx(float(lower["y"]))
    assert float(lower["y"]) + float(lower["height"]) == pytest.approx(TALL)


def test_a_column_without_findings_is_left_empty() -> None:
    assert len(boxes(timeline("t", [{}, {0: 1}, {}], [], ENDS))) == 1


def test_a_time_line_without_columns_shows_its_ends() -> None:
    assert texts(timeline("t", [], [], ENDS)) == ["begin", "end"]


@pytest.mark.parametrize(
    ("at", "x"), [(-1.0, 0.0), (0.0, 0.0), (0.25, WIDTH / 4), (1.0, float(WIDTH)), (9.0, float(WIDTH))]
)
def test_a_mark_stays_inside_of_the_chart(at: float, x: float) -> None:
    line = next(node for node in parsed(timeline("t", [], [ChartMark(at, "kill")], ENDS)).iter("line"))
    assert float(line.attrib["x1"]) == x


@pytest.mark.parametrize(("at", "anchor"), [(0.1, "start"), (0.5, "start"), (0.6, "end")])
def test_the_words_of_a_mark_lean_to_the_side_that_has_room(at: float, anchor: str) -> None:
    words = next(node for node in parsed(timeline("t", [], [ChartMark(at, "kill")], ENDS)).iter("text"))
    assert words.attrib["text-anchor"] == anchor


def test_charts_load_nothing_and_run_nothing() -> None:
    svg = timeline("t", [{0: 1}], [ChartMark(0.1, "kill")], ENDS) + bars("t", [Bar("a", 1, 0)])
    assert not re.search(r"href|url\(|http|<script|on\w+=", svg)


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_every_cause_has_a_title_a_story_and_a_change(cause: str) -> None:
    told = CAUSES[cause]
    assert told.title
    assert told.story.endswith(".")
    assert told.change.endswith(".")
    assert told.title[0].islower()


def places(svg: str) -> list[tuple[float, float, float]]:
    """Of the labels of marks: where each begins and ends, about, and its height."""
    labels = [node for node in parsed(svg).iter("text") if node.get("class") == "mark"]
    found = []
    for node in labels:
        wide = LETTER * len(node.text or "")
        begin = float(node.attrib["x"]) - (wide if node.get("text-anchor") == "end" else 0)
        found.append((begin, begin + wide, float(node.attrib["y"])))
    return found


@pytest.mark.parametrize("at", [(0.3, 0.31, 0.6, 0.61), (0.5, 0.51, 0.52, 0.53), (0.0, 0.4, 0.9, 1.0)])
def test_no_label_of_a_mark_covers_another_one_or_a_column(at: tuple[float, ...]) -> None:
    marks = [ChartMark(each, f"heal broker-b-s1 - namesrv-{number}") for number, each in enumerate(at)]
    svg = timeline("t", [{0: 1}], marks, ENDS)
    every = places(svg)
    assert len(every) == len(marks)
    assert not [
        (one, two) for number, one in enumerate(every) for two in every[:number]
        if one[2] == two[2] and one[0] < two[1] and two[0] < one[1]
    ]  # fmt: skip
    (column,) = boxes(svg)
    assert float(column["y"]) >= max(y for _, _, y in every)


def test_of_too_many_marks_in_one_place_the_last_are_told_where_the_pointer_is() -> None:
    svg = timeline("t", [], [ChartMark(0.2, f"fault {number}") for number in range(MOST_LINES + 2)], ENDS)
    assert len(places(svg)) == MOST_LINES
    assert f"<title>fault {MOST_LINES + 1}</title>" in svg
