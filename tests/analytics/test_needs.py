"""Rules declare what they read. Whoever leaves lines out of an audit picks by that, and the findings stay the same."""

import ast
import importlib
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Union

import dejamq_analytics
import msgspec
import pytest
from dejamq_analytics import pipeline
from dejamq_analytics.frames import DUCKDB, DataFrame, using
from dejamq_analytics.rules import declared
from dejamq_analytics.run import conclude
from dejamq_analytics.sources import journals
from dejamq_analytics.sources.needs import Needs, Undeclared, every, those
from dejamq_analytics.survey.survey import Surveyed
from dejamq_analytics.survey.wire import PICKED, JournalLine
from dejamq_proto.journal.events import EVENTS, Event, OffSet, Persist, PqOpen
from dejamq_proto.journal.lines import tag_of, whole_lines
from dejamq_proto.journal.readings import COLUMNS
from pyspark.sql import SparkSession
from surveyed import taken
from told import Told

PACKAGE = Path(dejamq_analytics.__file__).parent
RULES = sorted((PACKAGE / "rules").rglob("*.py"))
MAY_READ_EVENTS = {"sources/needs.py", "sources/schema.py"}
NAMES_LINES = {"rules/evidence.py"}
"""Builds evidence, whose lines have a field of that name."""
CONDITIONS = [need for need in declared.EVERYTHING.declared if need.where]
ANY: Any = Union[EVENTS]  # noqa: UP007  # a tuple of types


def module_of(path: Path) -> str:
    return ".".join(("dejamq_analytics", *path.relative_to(PACKAGE).with_suffix("").parts))


def test_a_rule_cannot_read_an_event_that_it_did_not_declare() -> None:
    needs = Needs(every(PqOpen), those(OffSet, lambda line: line.new < line.old))
    nothing: Any = None
    for ask in (lambda: needs.of(nothing, Persist), lambda: needs.lines(nothing, PqOpen, Persist),
                lambda: needs.is_a(Persist)):  # fmt: skip
        with pytest.raises(Undeclared, match=r"^Persist: add it to the module's needs"):
            ask()


def test_nothing_but_needs_reads_events() -> None:
    """Neither by asking for them nor by their names."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        asks = [
            node for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "dejamq_analytics.sources.schema"
            and any(alias.name == "of" for alias in node.names)
        ]  # fmt: skip
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == "event"]
        if (asks and name not in MAY_READ_EVENTS) or (names and path in RULES and name not in NAMES_LINES):
            found.append(name)
    assert found == []


def test_every_declaration_is_among_those_that_lines_are_picked_by() -> None:
    known = [*declared.OF_PARTS, *declared.OF_WHOLE]
    modules = [importlib.import_module(module_of(path)) for path in RULES if path.name != "declared.py"]
    made = [(module.__name__, needs) for module in (*modules, journals) for needs in vars(module).values()
            if isinstance(needs, Needs)]  # fmt: skip
    assert [name for name, needs in made if not any(needs is one for one in known)] == []
    assert len(made) >= len(known)


def test_lines_with_columns_of_messages_pass() -> None:
    """A following audit forgets them: it would grow with its traffic."""
    standing = {tag_of(event) for event in COLUMNS if event in declared.BY_PARTS.events()} - {*declared.passing()}
    assert standing == set()
    assert {"PULL", "POP", "ACK", "CHANGE", "REVIVE", "ACK_TRY", "SEND_RESULT"} <= {*declared.passing()}


def test_every_event_that_the_second_reading_picks_has_a_way_to_be_picked() -> None:
    """A rule that declares one more kind of lines about messages fails here first: ``Pick`` has nothing for it."""
    ways = ast.parse((PACKAGE / "survey" / "pick.py").read_text(encoding="utf-8"))
    asked = {node.value for node in ast.walk(ways) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert PICKED - asked == set()


def test_a_line_of_the_survey_has_the_types_and_defaults_of_its_event() -> None:
    mine = {field.name: field for field in msgspec.structs.fields(JournalLine)}
    read = {name for need in declared.EVERYTHING.declared for name in (*need.by, *need.rank)}
    assert read <= mine.keys()
    for event in declared.EVERYTHING.events():
        for field in msgspec.structs.fields(event):
            if field.name in mine:
                assert field.type == mine[field.name].type, (event, field.name)


@pytest.fixture(scope="module")
def events(stories: Path) -> dict[type[Event], list[tuple[Event, JournalLine]]]:
    """All lines of stories that can be read, as events and as the survey reads them."""
    as_event, as_line = msgspec.json.Decoder(ANY).decode, msgspec.json.Decoder(JournalLine).decode
    found = defaultdict[type[Event], list[tuple[Event, JournalLine]]](list)
    for path in sorted(stories.glob("*.jsonl")):
        for text in whole_lines(path):
            with suppress(msgspec.DecodeError):
                event = as_event(text)
                found[type(event)].append((event, as_line(text)))
    return found


def test_a_condition_holds_of_the_same_lines_in_each_reading(
    events: dict[type[Event], list[tuple[Event, JournalLine]]], quick: SparkSession, stories: Path
) -> None:
    """Of structs, of the survey's lines, and of columns, with defaults that were left out."""
    with using(DUCKDB):
        every_line = journals.readable(journals.read_lines(quick, [str(stories)])).localCheckpoint()
        for need in CONDITIONS:
            assert need.where is not None
            by_struct = {(one.boot_id, one.seq) for one, _ in events[need.event] if need.where(one)}
            by_survey = {(one.boot_id, one.seq) for _, one in events[need.event] if need.where(one)}
            rows = Needs([need]).of(every_line, need.event).select("boot_id", "seq").collect()
            assert by_survey == by_struct, need
            assert {(row.boot_id, row.seq) for row in rows} == by_struct, need


@pytest.mark.timeout(300)
def test_of_all_stories_rules_find_the_same_in_the_lines_that_are_picked(
    told: Told, quick: SparkSession, stories: Path
) -> None:
    """Row by row, to the last letter of the evidence."""
    picked = taken(stories)
    counts = Counter[str]()
    for note in picked.notes:
        counts.update(note.counts)
    texts: Any = SimpleNamespace(each=lambda: iter(picked.texts))
    extents = [one for note in picked.notes for one in note.extents]
    surveyed = Surveyed(texts, extents, picked.messages, dict(counts), picked.wanted.ranges, picked.overlap)
    with using(DUCKDB):
        part = conclude(pipeline.gather(quick, [str(stories)], taken=surveyed), told.verdict.run_id)
    assert in_order(part.findings, "finding_id") == in_order(told.result.findings, "finding_id")
    assert in_order(part.anomalies, "anomaly_id") == in_order(told.result.anomalies, "anomaly_id")
    kept = Counter(line["event"] for line in picked.lines)
    assert kept["HANDOUT"] + kept["SEND_END"] == 0 < kept["DELIVER"]


def in_order(table: DataFrame, by: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in table.orderBy(by).collect()]
