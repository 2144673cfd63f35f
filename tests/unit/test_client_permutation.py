"""What is one object in a list, and columns put in that order: the compiled part, and the same in Python."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from dejamq.native import COMPILED, Permutation, stretches
from dejamq.native import permutation as in_python
from hypothesis import given
from hypothesis import strategies as st

WAYS = pytest.mark.parametrize(
    "order_type", [in_python.Permutation, Permutation] if COMPILED else [in_python.Permutation]
)
THINGS = [object() for _ in range(2000)]


@st.composite
def columns_and_ends(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    columns = draw(st.lists(st.lists(st.integers(0, 400), max_size=300), min_size=1, max_size=5))
    count = sum(map(len, columns))
    ends = draw(st.lists(st.integers(0, count), max_size=6))
    return columns, [*sorted(ends), count]


@WAYS
@given(columns_and_ends())
def test_objects_that_are_one_stand_side_by_side_by_when_each_comes_first(
    order_type: type[Permutation], drawn: tuple[list[list[int]], list[int]]
) -> None:
    numbers, ends = drawn
    together = [number for column in numbers for number in column]
    dealt = order_type([THINGS[number] for number in together]).deal([column[:] for column in numbers], ends)
    assert list(map(len, dealt)) == [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    first = {number: place for place, number in reversed(list(enumerate(together)))}
    assert [number for run in dealt for number in run] == sorted(together, key=lambda number: first[number])


@WAYS
def test_more_objects_than_a_small_table_holds_are_told_apart(order_type: type[Permutation]) -> None:
    queues = THINGS * 3
    (dealt,) = order_type(queues).deal([[*range(6000)]], [6000])
    assert dealt == [place for first in range(2000) for place in range(first, 6000, 2000)]


@WAYS
def test_what_was_dealt_is_owned_once(order_type: type[Permutation]) -> None:
    messages = [object() for _ in range(10)]
    before = [sys.getrefcount(message) for message in messages]
    columns = [messages[:4], messages[4:]]
    dealt = order_type([THINGS[number % 3] for number in range(10)]).deal(columns, [3, 3, 10])
    assert columns == [[], []]
    del dealt
    assert [sys.getrefcount(message) for message in messages] == before


@WAYS
@pytest.mark.parametrize(
    ("columns", "ends"),
    [([[1, 2, 3]], [3]), ([[1, 2, 3, 4]], [3]), ([[1, 2, 3, 4]], []), ([[1, 2, 3, 4]], [3, 2, 4]),
     ([[1, 2, 3, 4]], [5]), ([[1, 2, 3, 4]], [-1, 4])],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused_and_keep_what_they_hold(
    order_type: type[Permutation], columns: list[list[int]], ends: list[int]
) -> None:
    copy = [column[:] for column in columns]
    with pytest.raises(ValueError, match="object"):
        order_type(THINGS[:4]).deal(copy, ends)
    assert copy == columns


@WAYS
def test_a_column_that_comes_twice_is_refused(order_type: type[Permutation]) -> None:
    column = [1, 2]
    with pytest.raises(ValueError, match="twice"):
        order_type(THINGS[:4]).deal([column, column], [4])


class Garbage:
    """Looks at all objects when it goes, as a debugger might."""

    looked = 0

    def __init__(self) -> None:
        self.myself = self

    def __del__(self) -> None:
        lists = [one for one in gc.get_objects() if type(one) is list]
        Garbage.looked += sum(len(list(map(id, one))) > 0 for one in lists)


def test_garbage_that_looks_at_all_objects_sees_no_list_that_is_half_made() -> None:
    before, garbage = gc.get_threshold(), [Garbage() for _ in range(3)]
    order, columns = Permutation(THINGS[:200]), [list(range(200))]
    gc.set_threshold(1)
    try:
        garbage.clear()
        dealt = order.deal(columns, [*range(200), 200])
    finally:
        gc.set_threshold(*before)
    assert Garbage.looked
    assert gc.is_tracked(dealt)
    assert all(map(gc.is_tracked, dealt))


@pytest.mark.skipif(not COMPILED, reason="Python looks at it by itself")
def test_what_is_no_column_breaks_nothing() -> None:
    order = Permutation(THINGS[:4])
    not_lists: list[Any] = [(1, 2, 3, 4), [(1, 2, 3, 4)], None]
    for columns in not_lists:
        with pytest.raises((TypeError, ValueError)):
            order.deal(columns, [4])
    for ends in ((4,), ["4"], [1 << 70]):
        with pytest.raises((TypeError, OverflowError)):
            order.deal([[1, 2, 3, 4]], ends)  # type: ignore[arg-type]
    no_list: Any = (1, 2)
    functions: list[Callable[[Any], Any]] = [Permutation, stretches]
    for function in functions:
        with pytest.raises(TypeError):
            function(no_list)


@given(st.lists(st.integers(0, 5), max_size=60), st.booleans())
def test_python_and_the_compiled_part_say_the_same_of_what_stands_where(numbers: list[int], sort: bool) -> None:
    objects = [THINGS[number] for number in (sorted(numbers) if sort else numbers)]
    assert stretches(objects) == in_python.stretches(objects)
    assert [one for one, count in stretches(objects) for _ in range(count)] == objects
