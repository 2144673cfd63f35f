"""The functions of ``pyspark.sql.functions`` that the rules use: same names, arguments and results."""

from collections.abc import Callable, Iterable
from itertools import count as numbers
from typing import Any, TypeVar

from dejamq_analytics.duck.column import Case, Column, literal, named, operand
from dejamq_analytics.duck.types import duck_type

Named = str | Column
Frame = TypeVar("Frame")
_variables = numbers()


def col(name: str) -> Column:
    return named(name)


def lit(value: Any) -> Column:
    return value if isinstance(value, Column) else Column(literal(value))


def expr(sql: str) -> Column:
    return Column(f"({sql})")


def when(condition: Column, value: Any) -> Case:
    return Case(f" WHEN {condition.sql} THEN {operand(value)}")


def desc(column: Named) -> Column:
    return Column(f"{named(column).sql} DESC")


def broadcast(frame: Frame) -> Frame:
    """There is one place only."""
    return frame


def _call(name: str, *arguments: Named) -> Column:
    return Column(f"{name}({', '.join(named(one).sql for one in arguments)})")


# --- values


def coalesce(*columns: Named) -> Column:
    return _call("coalesce", *columns)


def nullif(column: Named, other: Named) -> Column:
    return _call("nullif", column, other)


def greatest(*columns: Named) -> Column:
    return _call("greatest", *columns)


def least(*columns: Named) -> Column:
    return _call("least", *columns)


def abs(column: Named) -> Column:
    return _call("abs", column)


def floor(column: Named) -> Column:
    return _call("floor", column).cast("bigint")


def hex(column: Named) -> Column:
    return _call("to_hex", column)


def xxhash64(*columns: Named) -> Column:
    """Another hash than Spark's, for comparing within one audit."""
    return _call("hash", *columns)


def sha2(column: Named, bits: int) -> Column:
    return _call(f"sha{bits}", column)


def timestamp_micros(column: Named) -> Column:
    return _call("make_timestamp", column)


def unix_micros(column: Named) -> Column:
    return _call("epoch_us", column)


# --- texts


def concat(*columns: Named) -> Column:
    """Of texts or of lists; null where one of them is."""
    return Column("(" + " || ".join(named(one).sql for one in columns) + ")")


def concat_ws(separator: str, *columns: Named) -> Column:
    return _call("concat_ws", lit(separator), *columns)


def format_string(pattern: str, *columns: Named) -> Column:
    return _call("printf", lit(pattern), *columns)


def lower(column: Named) -> Column:
    return _call("lower", column)


def lpad(column: Named, width: int, filler: str) -> Column:
    return _call("lpad", column, lit(width), lit(filler))


def substring(column: Named, first: int, length: int) -> Column:
    return _call("substring", column, lit(first), lit(length))


def contains(column: Named, part: Named) -> Column:
    return _call("contains", column, part)


def split(column: Named, separator: str) -> Column:
    """By a plain text: the rules have no pattern here."""
    return _call("string_split", column, lit(separator))


def regexp_extract(column: Named, pattern: str, group: int) -> Column:
    return _call("regexp_extract", column, lit(pattern), lit(group))


def regexp_extract_all(column: Named, pattern: Column, group: Column) -> Column:
    return _call("regexp_extract_all", column, pattern, group)


def from_json(column: Named, kind: str) -> Column:
    """Null for what is no JSON."""
    return Column(f"TRY_CAST(TRY_CAST({named(column).sql} AS JSON) AS {duck_type(kind)})")


# --- structs, lists and maps


def struct(*columns: Named) -> Column:
    fields = [(named(one), f"col{place}") for place, one in enumerate(columns, 1)]
    return Column(_packed((one.name or place, one.sql) for one, place in fields), order=_packed(
        pair for one, place in fields for pair in ((f"has_{place}", f"{one.sql} IS NOT NULL"), (place, one.sql))
    ))  # fmt: skip


def _packed(fields: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{literal(name)}: {sql}" for name, sql in fields) + "}"


def array(*columns: Named) -> Column:
    return Column(f"[{', '.join(named(one).sql for one in columns)}]")


def size(column: Named) -> Column:
    return _call("len", column)


def get(column: Named, index: Named) -> Column:
    """Counted from 0; null outside."""
    return Column(f"{named(column).sql}[{named(index).sql} + 1]")


def explode(column: Named) -> Column:
    return Column(f"unnest({named(column).sql})", names=("col",))


def posexplode(column: Named) -> Column:
    items = named(column).sql
    return Column(f"unnest(range(len({items})))", f"unnest({items})", names=("pos", "col"))


def arrays_zip(*columns: Named) -> Column:
    """One struct a place; the shorter lists go on with nulls. Null where a list is."""
    lists = [named(one) for one in columns]
    fields = ", ".join(f"{literal(one.name)}: z[{place}]" for place, one in enumerate(lists, 1))
    absent = " OR ".join(f"{one.sql} IS NULL" for one in lists)
    zipped = f"list_zip({', '.join(one.sql for one in lists)})"
    return Column(f"CASE WHEN {absent} THEN NULL ELSE list_transform({zipped}, lambda z: {{{fields}}}) END")


def filter(column: Named, fits: Callable[[Column], Column]) -> Column:
    return Column(f"list_filter({named(column).sql}, {_lambda(fits)})")


def transform(column: Named, made: Callable[[Column], Column]) -> Column:
    return Column(f"list_transform({named(column).sql}, {_lambda(made)})")


def exists(column: Named, fits: Callable[[Column], Column]) -> Column:
    return Column(f"any_true(list_transform({named(column).sql}, {_lambda(fits)}))")


def aggregate(column: Named, begin: Column, step: Callable[[Column, Column], Column]) -> Column:
    total, one = _variable(), _variable()
    return Column(
        f"list_reduce({named(column).sql}, lambda {total.sql}, {one.sql}: {step(total, one).sql}, {begin.sql})"
    )


def _lambda(made: Callable[[Column], Column]) -> str:
    one = _variable()
    return f"lambda {one.sql}: {made(one).sql}"


def _variable() -> Column:
    return Column(f"x{next(_variables)}")


def array_max(column: Named) -> Column:
    return _call("list_max", column)


def array_min(column: Named) -> Column:
    return _call("list_min", column)


def array_sort(column: Named) -> Column:
    return _call("list_sort", column)


sort_array = array_sort


def array_contains(column: Named, value: Any) -> Column:
    return Column(f"list_contains({named(column).sql}, {operand(value)})")


def arrays_overlap(column: Named, other: Named) -> Column:
    return _call("list_has_any", column, other)


def array_distinct(column: Named) -> Column:
    return _call("once_each", column)


def array_union(column: Named, other: Named) -> Column:
    return _call("once_each", concat(column, other))


def array_intersect(column: Named, other: Named) -> Column:
    return _call("in_both", column, other)


def array_join(column: Named, separator: str) -> Column:
    return _call("array_to_string", column, lit(separator))


def array_repeat(column: Named, times: Named) -> Column:
    return Column(f"list_transform(range({named(times).sql}), lambda _: {named(column).sql})")


def flatten(column: Named) -> Column:
    return _call("flatten", column)


def map_from_entries(column: Named) -> Column:
    return _call("map_from_entries", column)


def map_keys(column: Named) -> Column:
    return _call("map_keys", column)


def element_at(column: Named, key: Named) -> Column:
    return Column(f"{named(column).sql}[{named(key).sql}]")


# --- of groups and windows


def count(column: Named) -> Column:
    return Column("count(*)") if column == "*" else _call("count", column)


def count_if(column: Named) -> Column:
    return Column(f"CAST(count_if({named(column).sql}) AS BIGINT)")


def count_distinct(*columns: Named) -> Column:
    """Rows with a null among several columns do not count."""
    if len(columns) == 1:
        return Column(f"count(DISTINCT {named(columns[0]).sql})")
    parts = [named(one).sql for one in columns]
    whole = " AND ".join(f"{part} IS NOT NULL" for part in parts)
    return Column(f"count(DISTINCT CASE WHEN {whole} THEN ({', '.join(parts)}) END)")


def sum(column: Named) -> Column:
    return Column(f"CAST(sum({named(column).sql}) AS BIGINT)")


def max(column: Named) -> Column:
    """Of structs see ``Column.order``."""
    one = named(column)
    return max_by(one, one) if one.order else _call("max", one)


def min(column: Named) -> Column:
    one = named(column)
    return min_by(one, one) if one.order else _call("min", one)


def max_by(column: Named, order: Named) -> Column:
    return Column(f"arg_max({named(column).sql}, {named(order).order or named(order).sql})")


def min_by(column: Named, order: Named) -> Column:
    return Column(f"arg_min({named(column).sql}, {named(order).order or named(order).sql})")


def collect_list(column: Named) -> Column:
    value = named(column).sql
    return Column(f"coalesce(list({value}) FILTER ({value} IS NOT NULL), [])")


def collect_set(column: Named) -> Column:
    value = named(column).sql
    return Column(f"coalesce(list(DISTINCT {value}) FILTER ({value} IS NOT NULL), [])")


def row_number() -> Column:
    return Column("row_number()")


def lag(column: Named) -> Column:
    return _call("lag", column)


def lead(column: Named) -> Column:
    return _call("lead", column)


def first(column: Named) -> Column:
    return _call("first_value", column)


def last(column: Named, ignorenulls: bool = False) -> Column:
    return Column(f"last_value({named(column).sql}{' IGNORE NULLS' if ignorenulls else ''})")
