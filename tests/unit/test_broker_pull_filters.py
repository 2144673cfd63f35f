"""Which messages a filtered pull is given, how far a look goes, and what keeps it held."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_parts import Parts, parts_in
from broker_pulls import answered, asked, bodies, pull
from dejamq_broker.filters.chosen import FilterFactory
from dejamq_broker.tables.topics import TopicConfig
from dejamq_proto.codes import Code, ConfigError

TAGS = {"none": "", "a": "A", "b": "B", "c": "C", "aa": "Aa", "bb": "BB", "both": "A||B", "中": "标签"}
EVERYTHING = list(TAGS)
RICH = {"expression": "amount > 5", "expression_type": "SQL92"}


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path, enable_property_filter=True) as made:
        made.topics.update(TopicConfig("orders", 2, 2))
        yield made


def given(parts: Parts, request: Any) -> list[str]:
    return [body.decode() for body in bodies(answered(parts, request))]


def send_amounts(parts: Parts, *amounts: int) -> None:
    for amount in amounts:
        parts.send("orders", b"%d" % amount, properties={"amount": str(amount)})


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("", EVERYTHING),
        ("*", EVERYTHING),
        ("A", ["a"]),
        ("A||B", ["a", "b"]),
        (" A || nobody ", ["a"]),
        ("A || B || C", ["a", "b", "c"]),
        ("A || A ||", ["a"]),
        ("nobody", []),
        ("标签", ["中"]),
        ("Aa", ["aa", "bb"]),  # one hash; the client tells them apart
        ("a", []),
    ],
)
def test_a_tag_expression_and_the_messages_it_gives(parts: Parts, expression: str, wanted: list[str]) -> None:
    """A message has one tag, whatever is in it: ``A||B`` as a tag is neither A nor B."""
    for name, tag in TAGS.items():
        parts.send("orders", name.encode(), tags=tag)
    answer = answered(parts, pull(0, expression=expression))
    assert [body.decode() for body in bodies(answer)] == wanted
    assert answer.next_offset == len(TAGS)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("TAGS IS NULL", ["none"]),
        ("TAGS IS NOT NULL AND TAGS IN ('A', 'B')", ["a", "b"]),
        ("TAGS = 'Aa'", ["aa"]),  # the text, not its hash
        ("TAGS CONTAINS '||'", ["both"]),
        ("NOT (TAGS IN ('A', 'B', 'C', 'Aa', 'BB'))", ["both", "中"]),
        ("TAGS = '标签'", ["中"]),
        ("UNIQ_KEY IS NOT NULL", EVERYTHING),
        ("amount > 5", []),
    ],
)
def test_a_sql_expression_and_the_messages_it_gives(parts: Parts, expression: str, wanted: list[str]) -> None:
    for name, tag in TAGS.items():
        parts.send("orders", name.encode(), tags=tag)
    answer = answered(parts, pull(0, expression=expression, expression_type="SQL92"))
    assert [body.decode() for body in bodies(answer)] == wanted
    assert answer.next_offset == len(TAGS)


def test_a_message_that_cannot_be_judged_is_passed_over(parts: Parts) -> None:
    for amount in ("7", "much", "5.5", "8"):
        parts.send("orders", amount.encode(), properties={"amount": amount})
    assert given(parts, pull(0, **RICH)) == ["7", "8"]


def test_no_more_wanted_messages_than_asked_for_are_given(parts: Parts) -> None:
    send_amounts(parts, 1, 7, 2, 8, 9)
    answer = answered(parts, pull(0, max_messages=2, **RICH))
    assert (bodies(answer), answer.next_offset) == ([b"7", b"8"], 4)
    assert given(parts, pull(4, max_messages=2, **RICH)) == ["9"]


def test_no_more_bytes_than_asked_for_are_given_but_one_message(parts: Parts) -> None:
    parts.send("orders", b"x" * 5000, b"y" * 5000, properties={"amount": "7"})
    answer = answered(parts, pull(0, max_bytes=6000, **RICH))
    assert (bodies(answer), answer.next_offset) == ([b"x" * 5000], 1)
    answer = answered(parts, pull(1, max_bytes=1, **RICH))
    assert (bodies(answer), answer.next_offset) == ([b"y" * 5000], 2)


@pytest.mark.parametrize("filtered", [{"expression": "nobody"}, RICH])
def test_a_look_goes_through_a_bounded_part_of_the_queue_and_says_where_to_go_on(
    parts: Parts, filtered: dict[str, str]
) -> None:
    """RocketMQ: maxFilterMessageSize, 16,000 bytes of queue entries."""
    parts.send("orders", *[b"%d" % number for number in range(1000)])
    answer = answered(parts, pull(0, **filtered))
    assert (answer.code, answer.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 800)
    answer = answered(parts, pull(800, **filtered))
    assert (answer.code, answer.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 1000)


@pytest.mark.parametrize("filtered", [{"expression": "paid"}, RICH])
def test_a_held_pull_wakes_only_for_what_it_wants(parts: Parts, filtered: dict[str, str]) -> None:
    request = pull(0, suspend_ms=1000, **filtered)
    assert asked(parts, request) is None
    parts.send("orders", b"no", tags="open", properties={"amount": "1"})
    parts.settle()
    assert parts.puller.look(request, first=False, last=False) is None
    assert request.read_offset == 1
    parts.send("orders", b"yes", tags="paid", properties={"amount": "7"})
    parts.settle()
    answer = parts.puller.look(request, first=False, last=False)
    assert answer is not None
    assert (bodies(answer), answer.next_offset) == ([b"yes"], 2)


@pytest.mark.parametrize("filtered", [{"expression": "paid"}, RICH])
def test_a_held_pull_whose_look_ends_before_the_queue_does_is_answered(parts: Parts, filtered: dict[str, str]) -> None:
    """What it wants may be there already, and nothing may ever arrive to wake it again."""
    request = pull(0, suspend_ms=1000, **filtered)
    assert asked(parts, request) is None
    parts.send("orders", *[b"%d" % number for number in range(1000)])
    parts.send("orders", b"yes", tags="paid", properties={"amount": "7"})
    parts.settle()
    answer = parts.puller.look(request, first=False, last=False)
    assert answer is not None
    assert (answer.code, answer.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 800)
    assert given(parts, pull(800, **filtered)) == ["yes"]


def test_a_filtered_pull_outside_the_queue_is_corrected_like_any_other(parts: Parts) -> None:
    send_amounts(parts, 7)
    answer = answered(parts, pull(9, **RICH))
    assert (answer.code, answer.next_offset) == (Code.PULL_OFFSET_MOVED, 1)
    assert answered(parts, pull(1, **RICH)).code == Code.PULL_NOT_FOUND


def test_a_broker_that_shall_filter_by_sql_without_the_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'dejamq\[broker\]'"):
        FilterFactory(sql=True)
