"""SQL92 filters: what matches, what is refused, and RocketMQ's own surprises."""

import json
from pathlib import Path

import pytest
from dejamq_broker.filters.sql import MAX_LENGTH, compile_sql
from dejamq_broker.filters.values import Incomparable
from dejamq_proto.codes import Code, DejamqError
from hypothesis import given
from hypothesis import strategies as st

ROCKETMQS = json.loads((Path(__file__).parents[1] / "data" / "sql_filter.json").read_text(encoding="utf-8"))
"""Printed by rocketmq-filter 5.3.3 for random expressions: text, properties, and what it answered."""
NAMES = st.sampled_from(["a", "b", "c"])
CONDITIONS = st.recursive(
    st.builds("{} {} {}".format, NAMES, st.sampled_from(["=", "<>", ">", "<="]), st.integers(0, 3))
    | st.builds("{} IS {}NULL".format, NAMES, st.sampled_from(["", "NOT "]))
    | st.builds("{} IN ('1', '2')".format, NAMES),
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
        | st.builds("(NOT ({}))".format, inner)
    ),
    max_leaves=8,
)
PIECES = [
    "a",
    "b",
    "(",
    ")",
    "=",
    "<>",
    ">",
    "NOT",
    "AND",
    "OR",
    "IN",
    "IS",
    "NULL",
    "'",
    "'x'",
    "5",
    ".5",
    ",",
    "-",
    "+",
]
PROPERTIES = st.dictionaries(NAMES, st.sampled_from(["0", "1", "2", "3"]))


def answered(text: str, properties: dict[str, str]) -> object:
    try:
        return compile_sql(text).evaluate(properties)
    except DejamqError:
        return "refused"
    except Incomparable:
        return "incomparable"


@pytest.mark.parametrize("answer", [True, False, None, "incomparable", "refused"])
def test_every_answer_is_the_one_of_rocketmq(answer: object) -> None:
    cases = [(text, properties) for text, properties, theirs in ROCKETMQS if theirs == answer]
    assert len(cases) >= 80
    differing = [case for case in cases if answered(*case) != answer]
    assert differing == []


@pytest.mark.parametrize(
    ("text", "properties", "answer"),
    [
        ("a > 5", {"a": "6"}, True),
        ("a > 5", {"a": "5"}, False),
        ("a > 5", {}, None),
        ("a > 5", {"a": "5.5"}, "incomparable"),  # 5 is an Integer and 5.5 is none
        ("a > 5.0", {"a": "5.5"}, True),
        ("a > b", {"a": "10", "b": "9.5"}, True),  # two properties are read as doubles
        ("a > 5", {"a": "3000000000"}, "incomparable"),
        ("a > 5L", {"a": "3000000000"}, "incomparable"),  # small enough for an Integer, whatever its suffix
        ("a < 3000000000", {"a": "2999999999"}, True),
        ("a = 'x'", {"a": "x"}, True),
        ("a <> 'x'", {"a": "y"}, True),
        ("a <> 'x'", {}, None),
        ("a = TRUE", {"a": "TruE"}, True),
        ("TRUE = a", {"a": "true"}, "incomparable"),
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("NOT a = 'x'", {"a": "y"}, "incomparable"),  # (NOT a) = 'x'
        ("NOT (a = 'x')", {"a": "y"}, True),
        ("a IS NULL", {}, True),
        ("a IS NOT NULL", {}, False),
        ("(a > 5) IS NULL", {}, True),
        ("a BETWEEN 2 AND 4", {"a": "4"}, True),
        ("a NOT BETWEEN 2 AND 4", {"a": "4"}, False),
        ("a BETWEEN b AND 4", {"a": "3", "b": "2.5"}, True),
        ("a IN ('x', 'y')", {"a": "y"}, True),
        ("a NOT IN ('x', 'y')", {"a": "z"}, True),
        ("a NOT IN ('x', 'y')", {}, None),
        ("a CONTAINS 'bc'", {"a": "abcd"}, True),
        ("a NOT CONTAINS 'bc'", {}, False),
        ("a STARTSWITH 'ab'", {"a": "abcd"}, True),
        ("a ENDSWITH ''", {"a": "abcd"}, False),
        ("a NOT ENDSWITH ''", {"a": "abcd"}, False),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("-a < 3", {"a": "5"}, None),  # a property is a text, and a text has no negative
        ("a > -3", {"a": "-2"}, True),
        ("TAGS IS NOT NULL AND TAGS IN ('paid')", {"TAGS": "paid"}, True),
        ("a = 1 OR b = 1 AND c = 1", {"a": "1", "b": "0", "c": "0"}, True),
        ("(a = 1 OR b = 1) AND c = 1", {"a": "1", "b": "0", "c": "0"}, False),
        ("a = 1 /* paid */ AND -- by card\n b = 2", {"a": "1", "b": "2"}, True),
    ],
)
def test_expressions_and_their_answers(text: str, properties: dict[str, str], answer: object) -> None:
    assert answered(text, properties) == answer


@pytest.mark.parametrize(("text", "matches"), [("a = 'x' OR a > 5", True), ("a > 5 OR a = 'x'", False)])
def test_what_cannot_be_compared_matches_nothing_unless_the_left_of_an_or_is_true(text: str, matches: bool) -> None:
    assert compile_sql(text).matches({"a": "x"}) is matches


@pytest.mark.parametrize("a", [True, False, None])
@pytest.mark.parametrize("b", [True, False, None])
def test_logic_has_three_values(a: bool | None, b: bool | None) -> None:
    given = {name: str(value) for name, value in (("a", a), ("b", b)) if value is not None}
    either = True if a or b else None if a is None or b is None else False
    both = False if a is False or b is False else None if a is None or b is None else True
    assert answered("a = TRUE OR b = TRUE", given) is either
    assert answered("a = TRUE AND b = TRUE", given) is both


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("a >", "the end does not fit at position 3"),
        ("a and between 2 and 10", "'between' does not fit at position 6"),
        ("a LIKE 'x%'", "'LIKE' does not fit at position 2"),
        ("a = 5 b = 6", "'b' does not fit at position 6"),  # RocketMQ: means a = 5
        ("a != 5", "'!' does not fit at position 2"),
        ('a = "x"', "does not fit at position 4"),
        ("a = 'x", "does not fit at position 4"),
        ("a > 'x'", "> compares numbers and properties only"),
        ("NOT a > 5", "> compares numbers and properties only"),
        ("a = NULL", "write IS NULL"),
        ("a BETWEEN 10 AND 0", "the lower bound comes first"),
        ("5 IN ('5')", "only a property can be IN a list"),
        ("a IN (5)", "'5' does not fit at position 6"),
        ("a CONTAINS b", "'b' does not fit at position 11"),
        ("5", "a condition is needed"),
        ("a = 5 AND 'x'", "a condition is needed"),
        ("a > 0.0", "write 0 for zero"),
        ("a > 1e400", "is no number that can be compared"),
        ("a > 9223372036854775808", "larger than any number of 64 bits"),
        ("a > 100000000000000000000000", "larger than any number of 64 bits"),
        ("NOT " * 201 + "a", "nested deeper than 200 levels"),
        ("a = '" + "x" * MAX_LENGTH + "'", f"{MAX_LENGTH} are the most"),
    ],
)
def test_what_is_no_expression_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(DejamqError) as caught:
        compile_sql(text)
    assert caught.value.code is Code.SUBSCRIPTION_PARSE_FAILED
    assert why in str(caught.value)


def test_long_chains_are_no_nesting() -> None:
    chain = " OR ".join(f"a = '{number}'" for number in range(3000))
    assert compile_sql(chain).matches({"a": "2999"})
    assert compile_sql("(" * 500 + "a = '1'" + ")" * 500).matches({"a": "1"})


@given(CONDITIONS, PROPERTIES)
def test_twice_not_is_the_condition_itself(text: str, properties: dict[str, str]) -> None:
    assert answered(f"NOT (NOT ({text}))", properties) is answered(text, properties)


@given(CONDITIONS, CONDITIONS, PROPERTIES)
def test_de_morgans_laws_hold_with_null(one: str, other: str, properties: dict[str, str]) -> None:
    assert answered(f"NOT ({one} AND {other})", properties) is answered(f"NOT ({one}) OR NOT ({other})", properties)
    assert answered(f"NOT ({one} OR {other})", properties) is answered(f"NOT ({one}) AND NOT ({other})", properties)


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_between_is_both_bounds_and_not_between_is_neither(value: int, one: int, other: int) -> None:
    low, high = sorted((one, other))
    given = {"a": str(value), "low": str(low), "high": str(high)}
    assert answered("a BETWEEN low AND high", given) is (low <= value <= high)
    assert answered("a NOT BETWEEN low AND high", given) is not answered("a BETWEEN low AND high", given)


@given(st.lists(st.sampled_from(PIECES)))
def test_any_sequence_of_pieces_is_an_expression_or_refused(pieces: list[str]) -> None:
    answered(" ".join(pieces), {"a": "5"})


@given(st.text(max_size=30), st.dictionaries(NAMES, st.text(max_size=5)))
def test_any_text_in_a_property_and_in_a_literal_can_be_looked_for(text: str, properties: dict[str, str]) -> None:
    quoted = text.replace("'", "''")
    assert compile_sql(f"a = '{quoted}'").matches({**properties, "a": text})
    answered("a > 5 OR b > 5L OR c > 5.5 OR a < b OR c = TRUE", properties)
