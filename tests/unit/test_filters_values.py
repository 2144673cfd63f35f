"""Numbers as Java reads and orders them."""

import math

import pytest
from dejamq_broker.filters.values import Incomparable, Long, Value, compare, read_double


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5.0), (" 5.5\n", 5.5), ("5.", 5.0), (".5", 0.5), ("+5", 5.0), ("-5e-1", -0.5), ("5E2", 500.0),
        ("5d", 5.0), ("5.5F", 5.5), ("Infinity", math.inf), ("-Infinity", -math.inf), ("1e999", math.inf),
        ("0x1p3", 8.0), ("0x.8P1f", 1.0), ("-0x1p9999", -math.inf),
    ],
)  # fmt: skip
def test_a_text_that_java_reads_as_a_double(text: str, number: float) -> None:
    assert read_double(text) == number


@pytest.mark.parametrize(
    "text", ["", ".", "x", "5x", "nan", "inf", "Infinityd", "1_000", "0x1", "５.５", "5 5", "+-5", "5e"]
)
def test_a_text_that_java_does_not_read_as_a_double(text: str) -> None:
    with pytest.raises(Incomparable):
        read_double(text)


@pytest.mark.parametrize("text", ["1" * 30_000 + "x", "0x" + "f" * 30_000 + "x", "0x." + "f" * 30_000 + "x"])
def test_a_long_text_that_is_no_number_is_read_once(text: str) -> None:
    """A property may be so long. A reader that begins anew at each digit would take half a minute for a hundred."""
    for _ in range(100):
        with pytest.raises(Incomparable):
            read_double(text)


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("5", 5, 0), ("+5", 5, 0), ("-5", 5, -1), ("５", 5, 0), (6, "5", 1), ("2147483647", 5, 1),
        ("9223372036854775807", Long(5), 1), (5, Long(6), -1), (5, 5.5, -1), (5.5, Long(5), 1), ("5.5", 5.5, 0),
        (-0.0, 0.0, -1), (math.nan, math.inf, 1), (math.nan, math.nan, 0), ("true", True, 0), ("x", False, 0),
        (True, 5, -1), (5, True, -1), ("a", "b", -1), (Long((1 << 53) + 1), float(1 << 53), 0),
    ],
)  # fmt: skip
def test_two_values_and_their_order(left: Value, right: Value, order: int) -> None:
    assert compare(left, right) == order


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("5.5", 5), ("", 5), (" 5", 5), ("2147483648", 5), ("9223372036854775808", Long(5)), ("x", 5.5),
        (True, "true"), ("\U0001d7d8", 5), ("9" * 5000, 5),
    ],
)  # fmt: skip
def test_two_values_that_cannot_be_compared(left: Value, right: Value) -> None:
    with pytest.raises(Incomparable):
        compare(left, right)


def test_a_long_stays_one_when_it_is_negated() -> None:
    assert compare("-3000000000", -Long(2147483648)) < 0
